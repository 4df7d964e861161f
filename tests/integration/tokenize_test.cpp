// tenon tokenize as a user starts it: a tokenizer is learned, text becomes a file of tokens with its
// documents and text again, two tokenizers are compared, and refusals leave no files.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

namespace tenon::integration::tokenize_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenizeCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    text_ = read_file(fs::path(TENON_SOURCE_DIR) / "data/text/tinyshakespeare.txt").substr(0, 60000);
    write_file(scratch_ / "plays.txt", text_);
    const Ended ended = tokenize(
        {"train", "--vocabulary", "400", "--special", "<|endoftext|>", "--out", "t.json", "plays.txt"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("t.json: 400 tokens from 60000 bytes of text in "));
  }
  Ended tokenize(std::vector<std::string> words) const {
    words.insert(words.begin(), "tokenize");
    return scratch_.run(words);
  }
  std::string out(std::vector<std::string> words) const {
    const Ended ended = tokenize(std::move(words));
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.out;
  }
  /// What is said; no file appears.
  std::string refusal(std::vector<std::string> words, int status = 2) const {
    const auto before = tree(scratch_.folder());
    const Ended ended = tokenize(std::move(words));
    EXPECT_EQ(ended.status, status) << ended.err;
    EXPECT_EQ(changes(scratch_.folder(), before), std::vector<std::string>());
    return ended.err;
  }

  Scratch scratch_;
  std::string text_;
};

TEST_F(TokenizeCommand, LearningTwiceWritesEqualBytes) {
  out({"train", "--vocabulary", "400", "--special", "<|endoftext|>", "--out", "again.json", "plays.txt"});
  EXPECT_EQ(read_file(scratch_ / "again.json"), read_file(scratch_ / "t.json"));
  out({"train", "--vocabulary", "400", "--pattern", "llama3", "--out", "other.json", "plays.txt"});
  EXPECT_NE(read_file(scratch_ / "other.json"), read_file(scratch_ / "t.json"));
}

TEST_F(TokenizeCommand, TextBecomesTokensAndTextAgain) {
  EXPECT_THAT(out({"encode", "--tokenizer", "t.json", "--out", "whole.bin", "plays.txt"}),
              AllOf(HasSubstr("whole.bin: "), HasSubstr(" tokens of 1 documents, ")));
  const std::string whole = read_file(scratch_ / "whole.bin");
  const auto* header = reinterpret_cast<const std::int32_t*>(whole.data());
  EXPECT_EQ(header[0], 20240520);
  EXPECT_EQ(static_cast<std::int64_t>(whole.size()), 1024 + 2 * std::int64_t{header[2]});
  EXPECT_EQ(out({"decode", "--tokenizer", "t.json", "whole.bin"}), text_ + "<|endoftext|>");

  EXPECT_THAT(out({"encode", "--tokenizer", "t.json", "--line", "", "--out", "parts.bin", "plays.txt"}),
              HasSubstr("parts.bin: "));
  const std::string parts = out({"decode", "--tokenizer", "t.json", "parts.bin"});
  EXPECT_THAT(parts, ::testing::StartsWith(
                         "First Citizen:\nBefore we proceed any further, hear me speak.\n<|endoftext|>All:"));

  out({"train", "--vocabulary", "300", "--out", "small.json", "plays.txt"});
  EXPECT_THAT(refusal({"decode", "--tokenizer", "small.json", "parts.bin"}),
              HasSubstr("name the tokenizer that wrote it"));
}

TEST_F(TokenizeCommand, JsonLinesAndBytesAreDocuments) {
  write_file(scratch_ / "lines.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  EXPECT_EQ(out({"encode", "--tokenizer", "bytes", "--jsonl", "text", "lines.jsonl"}),
            "111 110 101\n116 119 111\n");
  write_file(scratch_ / "zero", std::string("a\0bc", 4));
  EXPECT_EQ(out({"encode", "--tokenizer", "bytes", "--byte", "0", "zero"}), "97\n98 99\n");
  EXPECT_EQ(out({"decode", "--tokenizer", "t.json", "--ids", "72, 105 399"}), "Hi<|endoftext|>\n");
  write_file(scratch_ / "t.toml", "[tokenizer]\ntype = \"bpe\"\n");
  EXPECT_EQ(out({"encode", "--tokenizer", "t.toml", "--byte", "0", "zero"}), "97\n98 99\n");
}

TEST_F(TokenizeCommand, TwoTokenizersAreCompared) {
  const std::string text = out({"compare", "--tokenizer", "bytes", "--tokenizer", "t.json", "plays.txt"});
  EXPECT_THAT(text, AllOf(HasSubstr("first: bytes, 256 tokens"), HasSubstr("second: t.json, 400 tokens"),
                          HasSubstr("1.000")));
  const auto json = nlohmann::json::parse(
      out({"compare", "--tokenizer", "bytes", "--tokenizer", "t.json", "--json", "plays.txt", "t.json"}));
  EXPECT_EQ(json["texts"].size(), 3u);
  EXPECT_EQ(json["texts"][0]["tokens_first"], 60000);
  EXPECT_LT(json["texts"][0]["tokens_second"], 40000);
  EXPECT_EQ(json["texts"][2]["file"], "together");
}

TEST_F(TokenizeCommand, RefusesWhatItCannotDo) {
  EXPECT_THAT(refusal({}), HasSubstr("expected one of train, encode, decode, compare as the first word"));
  EXPECT_THAT(refusal({"trian"}), HasSubstr("there is no 'trian'; did you mean 'train'?"));
  EXPECT_THAT(refusal({"encode", "plays.txt"}),
              HasSubstr("expected --tokenizer FILE once, found it 0 times"));
  EXPECT_THAT(refusal({"compare", "--tokenizer", "bytes", "plays.txt"}),
              HasSubstr("expected --tokenizer FILE twice"));
  EXPECT_THAT(refusal({"encode", "--tokenizer", "bytes"}),
              HasSubstr("tenon tokenize encode: name files of text"));
  EXPECT_THAT(refusal({"encode", "--tokenizer", "bytes", "--vocabulary", "9", "plays.txt"}),
              HasSubstr("--vocabulary belongs to another action"));
  EXPECT_THAT(refusal({"encode", "--tokenizer", "bytes", "--byte", "256", "plays.txt"}),
              HasSubstr("--byte is 256, expected 0 to 255"));
  EXPECT_THAT(refusal({"encode", "--tokenizer", "bytes", "--byte", "0", "--line", "", "plays.txt"}),
              HasSubstr("give one"));
  EXPECT_THAT(refusal({"encode", "--tokenizer", "bytes", "--out", "x.bin", "."}),
              HasSubstr("expected a file with text, found a folder"));
  EXPECT_THAT(refusal({"encode", "--tokenizer", "none.json", "plays.txt"}),
              HasSubstr("cannot find 'none.json'"));
  EXPECT_THAT(refusal({"encode", "--tokenizer", "bytes", "--out", "t.json", "plays.txt"}),
              HasSubstr("--out 't.json' exists; name a new file"));
  EXPECT_THAT(refusal({"decode", "--tokenizer", "t.json", "plays.txt"}),
              HasSubstr("'plays.txt' is no whole file of tokens"));
  EXPECT_THAT(refusal({"decode", "--tokenizer", "t.json", "--ids", "72 x"}),
              HasSubstr("--ids: expected whole numbers, found '72 x'"));
  EXPECT_THAT(refusal({"decode", "--tokenizer", "t.json", "--ids", "400"}, 1),
              HasSubstr("token 400 is outside of the vocabulary: expected 0 to 399"));
  EXPECT_THAT(refusal({"train", "--vocabulary", "90000", "--out", "n.json", "plays.txt"}, 1),
              HasSubstr("expected 90000; give more text"));
  EXPECT_THAT(refusal({"train", "--type", "bytes", "--vocabulary", "300", "--out", "n.json", "plays.txt"}),
              HasSubstr("tokenizer bytes is not learned from text"));
}

}  // namespace
}  // namespace tenon::integration::tokenize_test
