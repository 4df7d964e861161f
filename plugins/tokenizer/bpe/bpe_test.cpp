// Byte-level BPE: ids that Hugging Face's tokenizers gave, bytes that come back, learning against a count of
// all pairs for each token, and what is refused.
#include "encoder.hpp"
#include "trainer.hpp"

#include "reference/recorded.hpp"

#include <tenon/random.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>
#include <tenon/tokenizer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace tenon::bpe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

const std::string kRecords = std::string(TENON_SOURCE_DIR) + "/tests/reference/tokenizer/";
constexpr const char* kNames[] = {"gpt2", "llama3", "phi4"};
constexpr const char* kKinds[] = {"english", "code", "digits", "world"};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class BpeTest : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    registry_.discover({});
  }
  testing::Made<Tokenizer> make(const std::string& toml) {
    return testing::make<Tokenizer>(registry_, host_, "bpe", toml);
  }
  testing::Made<Tokenizer> recorded(const std::string& name) {
    return make(fmt::format("file = '{}{}.json'", kRecords, name));
  }
  testing::Made<Tokenizer> of_text(const std::string& json) {
    return make(fmt::format("file = '{}'", write("tokenizer.json", json)));
  }
  std::string learned(const testing::Made<Tokenizer>& from, const std::string& text, std::int64_t vocabulary,
                      std::vector<std::string> special = {}) {
    const std::string_view view = text;
    return static_cast<TokenizerTraining*>(from->query(TokenizerTraining::kId))
        ->train(std::span(&view, 1), {vocabulary, std::move(special)});
  }

  Registry registry_;
  testing::QuietHost host_;
};

std::string random_bytes(std::uint64_t index) {
  const RandomKey key = random_key(7, "bytes");
  std::uint64_t at = 0;
  const auto below = [&](std::uint64_t bound) {
    return static_cast<std::uint64_t>(random_uniform(key, index, at++) * static_cast<double>(bound));
  };
  // Half of them have many letters and starts of characters, since bytes alone are rarely valid.
  static const std::vector<std::string> kParts = {
      "a",        "the",  " ",        "\n",           "\r\n",
      "'s",       "12",   "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
      "\xE2\x82", "\xC3", "\x80",     "\xF0\x9F",     "<|endoftext|>",
      "\0"};
  const std::uint64_t length = below(24);
  std::string text;
  for (std::uint64_t i = 0; i < length; ++i) {
    if (index % 2 == 0)
      text += static_cast<char>(below(256));
    else
      text += kParts[below(kParts.size())];
  }
  return text;
}

TEST_F(BpeTest, C3_GivesTheIdsOfHuggingFace) {
  const testing::Recorded ids("tokenizer_ids");
  for (const std::string name : kNames) {
    const auto tokenizer = recorded(name);
    EXPECT_EQ(tokenizer->vocabulary(), 768);
    for (const std::string kind : kKinds) {
      const std::vector<double> expected = ids.values(name + "." + kind);
      const std::vector<std::int32_t> found = tokenizer->encode(read(kRecords + kind + ".txt"));
      ASSERT_GT(expected.size(), 900u);
      EXPECT_EQ(std::vector<double>(found.begin(), found.end()), expected) << name << " " << kind;
    }
  }
}

TEST_F(BpeTest, SpecialTokensInsideATextAreText) {
  const testing::Recorded ids("tokenizer_ids");
  const std::string text = "A text of <|endoftext|> and <|im_start|>: a text.";
  for (const std::string name : kNames) {
    const auto tokenizer = recorded(name);
    const std::vector<std::int32_t> found = tokenizer->encode(text);
    EXPECT_EQ(std::vector<double>(found.begin(), found.end()), ids.values(name + ".special")) << name;
    ASSERT_EQ(tokenizer->special().size(), 2u);
    for (const SpecialToken& token : tokenizer->special()) {
      EXPECT_EQ(std::count(found.begin(), found.end(), token.id), 0) << name << ": " << token.text;
      EXPECT_EQ(tokenizer->token_bytes(token.id), token.text);
    }
  }
}

TEST_F(BpeTest, C3_RandomBytesComeBack) {
  const char* const many = std::getenv("TENON_TOKENIZER_STRINGS");
  const std::uint64_t count = many == nullptr ? 100'000 : std::strtoull(many, nullptr, 10);
  std::vector<testing::Made<Tokenizer>> tokenizers;
  for (const char* name : kNames) tokenizers.push_back(recorded(name));
  tokenizers.push_back(make(""));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string text = random_bytes(i);
    for (const auto& tokenizer : tokenizers) {
      const std::vector<std::int32_t> ids = tokenizer->encode(text);
      ASSERT_EQ(tokenizer->decode(ids), text) << "string " << i;
      for (const std::int32_t id : ids)
        for (const SpecialToken& token : tokenizer->special()) ASSERT_NE(id, token.id) << "string " << i;
    }
  }
}

TEST_F(BpeTest, C3_AllFilesOfTheTreeComeBack) {
  std::vector<testing::Made<Tokenizer>> tokenizers;
  for (const char* name : kNames) tokenizers.push_back(recorded(name));
  int files = 0;
  for (const char* folder : {"cli", "configs", "core", "data", "docs", "kernels", "plugins", "python",
                             "scripts", "sdk", "services", "tests"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(TENON_SOURCE_DIR) + "/" + folder)) {
      if (!entry.is_regular_file() || entry.file_size() > (std::size_t{1} << 21)) continue;
      const std::string text = read(entry.path());
      // Each file by one of them, in turn.
      const auto& tokenizer = tokenizers[static_cast<std::size_t>(files++) % tokenizers.size()];
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << entry.path();
    }
  }
  EXPECT_GT(files, 2000);
}

/// The ids of a piece by the definition: the earliest merge, leftmost first, until there is none.
std::vector<std::int32_t> merged_by_definition(const Description& described, const std::string& piece) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ranks;
  for (std::size_t i = 0; i < described.merges.size(); ++i)
    ranks[{described.merges[i].left, described.merges[i].right}] = i;
  std::vector<std::int32_t> ids;
  for (const char byte : piece)
    ids.push_back(static_cast<std::int32_t>(
        std::find(described.tokens.begin(), described.tokens.end(), std::string(1, byte)) -
        described.tokens.begin()));
  for (;;) {
    std::size_t best = described.merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == described.merges.size()) return ids;
    ids[at] = described.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST_F(BpeTest, LongPiecesMergeAsTheDefinitionSays) {
  const std::string letters = "abc";
  std::string text;
  const RandomKey key = random_key(3, "letters");
  for (std::uint64_t i = 0; i < 4000; ++i)
    text += letters[static_cast<std::size_t>(random_uniform(key, 0, i) * 3)];
  const std::string_view view = text;
  const Description described = learn(std::span(&view, 1), {400, {}}, std::string(kGpt2Pattern));
  const Encoder encoder(described, "test");
  for (const std::size_t length : {1, 2, 7, 24, 25, 63, 64, 65, 66, 200, 1500})
    for (const std::size_t from : {0, 11, 501})
      EXPECT_EQ(encoder.encode(text.substr(from, length)),
                merged_by_definition(described, text.substr(from, length)))
          << length << " from " << from;
  EXPECT_EQ(encoder.decode(encoder.encode(std::string(300'000, 'a'))), std::string(300'000, 'a'));
}

/// A tokenizer of the bytes and these further tokens, whose ids begin at 256, in the layout of the file.
std::string file_with(const std::string& tokens, const std::string& merges, bool ignore_merges = false,
                      const std::string& added = "") {
  const Encoder bytes({.tokens =
                           [] {
                             std::vector<std::string> all;
                             for (int byte = 0; byte < 256; ++byte)
                               all.emplace_back(1, static_cast<char>(byte));
                             return all;
                           }(),
                       .merges = {},
                       .special = {},
                       .pattern = std::string(kGpt2Pattern)},
                      "test");
  std::string json = write_tokenizer_json(bytes.description());
  const auto replace = [&](const std::string& from, const std::string& to) {
    const std::size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    json.replace(at, from.size(), to);
  };
  if (!tokens.empty()) replace("\n    },\n    \"merges\"", ",\n" + tokens + "\n    },\n    \"merges\"");
  replace("\"merges\": [\n", "\"merges\": [" + merges + "\n");
  if (ignore_merges) replace("\"ignore_merges\": false", "\"ignore_merges\": true");
  if (!added.empty()) replace("\"added_tokens\": []", "\"added_tokens\": [" + added + "]");
  return json;
}

std::string added(int id, const std::string& text, const std::string& rest = "\"special\": true") {
  return fmt::format("{{\"id\": {}, \"content\": \"{}\", {}}}", id, text, rest);
}

TEST_F(BpeTest, EarlierMergesComeFirst) {
  const auto forward = of_text(file_with("\"ab\": 256, \"bc\": 257", "\"a b\", \"b c\""));
  EXPECT_EQ(forward->encode("abc"), (std::vector<std::int32_t>{256, 'c'}));
  const auto backward = of_text(file_with("\"ab\": 256, \"bc\": 257", "[\"b\", \"c\"], [\"a\", \"b\"]"));
  EXPECT_EQ(backward->encode("abc"), (std::vector<std::int32_t>{'a', 257}));
  EXPECT_NE(forward->digest(), backward->digest());
}

TEST_F(BpeTest, IgnoredMergesGiveTheWholePiece) {
  const std::string tokens = "\"ab\": 256, \"abc\": 257";
  EXPECT_EQ(of_text(file_with(tokens, "\"a b\""))->encode("abc"), (std::vector<std::int32_t>{256, 'c'}));
  EXPECT_EQ(of_text(file_with(tokens, "\"a b\"", true))->encode("abc"), (std::vector<std::int32_t>{257}));
  EXPECT_EQ(of_text(file_with(tokens, "\"a b\"", true))->encode("abcd"),
            (std::vector<std::int32_t>{256, 'c', 'd'}));
}

TEST_F(BpeTest, AWholePieceIsNeverASpecialToken) {
  const auto tokenizer = of_text(file_with("\"stop\": 256", "", true, added(256, "stop")));
  EXPECT_EQ(tokenizer->encode("stop"), (std::vector<std::int32_t>{'s', 't', 'o', 'p'}));
  EXPECT_EQ(tokenizer->end_of_text(), 256);
}

TEST_F(BpeTest, BytesThatAreNoUtf8ArePiecesOfTheirOwn) {
  // The merge of C3 28 would join a broken character to the text after it.
  const auto tokenizer =
      of_text(file_with("\"\u00c3(\": 256, \"\u00c3\u00c3\": 257", "\"\u00c3 (\", \"\u00c3 \u00c3\""));
  EXPECT_EQ(tokenizer->encode("\xC3("), (std::vector<std::int32_t>{0xC3, '('}));
  EXPECT_EQ(tokenizer->encode("\xC3\xC3("), (std::vector<std::int32_t>{257, '('}));
  EXPECT_EQ(utf8_length("\xED\xA0\x80"), 0u);      // a surrogate
  EXPECT_EQ(utf8_length("\xC0\x80"), 0u);          // an overlong form
  EXPECT_EQ(utf8_length("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(utf8_length("\xF4\x8F\xBF\xBF"), 4u);
}

/// As pre_tokenize_str() of `tokenizers` gives them: U+180E is no white space.
TEST_F(BpeTest, WhiteSpaceIsTheUnicodeProperty) {
  const std::string text = "a \xE1\xA0\x8E! \xE2\x80\xA8 b";
  const Splitter splitter(kGpt2Pattern, "test");
  Splitter::Scratch scratch;
  Splitter::Pass pass(splitter, scratch, text);
  std::vector<std::string> pieces;
  for (std::string_view piece; pass.next(piece);) pieces.emplace_back(piece);
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", " \xE1\xA0\x8E!", " \xE2\x80\xA8", " b"}));
}

TEST_F(BpeTest, ThreadsGetTheSameIds) {
  const auto tokenizer = recorded("gpt2");
  const std::string text = read(kRecords + "english.txt") + read(kRecords + "world.txt");
  const std::vector<std::int32_t> expected = tokenizer->encode(text);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) count += tokenizer->encode(text) == expected ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

/// Merges by the definition: all pairs are counted for each token.
std::vector<std::string> learned_by_definition(const std::string& text, const std::string& pattern,
                                               int tokens) {
  const Splitter splitter(pattern, "test");
  Splitter::Scratch scratch;
  Splitter::Pass pass(splitter, scratch, text);
  std::vector<std::vector<std::string>> pieces;
  for (std::string_view piece; pass.next(piece);) {
    pieces.emplace_back();
    for (const char byte : piece) pieces.back().emplace_back(1, byte);
  }
  std::vector<std::string> result;
  while (static_cast<int>(result.size()) < tokens) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& piece : pieces)
      for (std::size_t i = 0; i + 1 < piece.size(); ++i) ++counts[{piece[i], piece[i + 1]}];
    auto best = counts.begin();
    for (auto at = counts.begin(); at != counts.end(); ++at)
      if (at->second > best->second) best = at;
    const auto [left, right] = best->first;
    if (std::find(result.begin(), result.end(), left + right) == result.end()) result.push_back(left + right);
    for (auto& piece : pieces)
      for (std::size_t i = 0; i + 1 < piece.size(); ++i)
        if (piece[i] == left && piece[i + 1] == right) {
          piece[i] += right;
          piece.erase(piece.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return result;
}

TEST_F(BpeTest, LearnsTheMostFrequentPairTiesByBytes) {
  for (const std::string kind : kKinds) {
    const std::string text = read(kRecords + kind + ".txt");
    const std::string_view view = text;
    const Description made = learn(std::span(&view, 1), {256 + 120, {}}, std::string(kLlama3Pattern));
    const std::vector<std::string> tokens(made.tokens.begin() + 256, made.tokens.end());
    EXPECT_EQ(tokens, learned_by_definition(text, std::string(kLlama3Pattern), 120)) << kind;
  }
}

TEST_F(BpeTest, C3_LearningTwiceGivesEqualBytes) {
  const std::string text = read(kRecords + "english.txt") + read(kRecords + "code.txt");
  const auto bytes = make("pattern = 'llama3'");
  const std::string file = learned(bytes, text, 600, {"<|endoftext|>", "<|user|>"});
  EXPECT_EQ(learned(make("pattern = 'llama3'"), text, 600, {"<|endoftext|>", "<|user|>"}), file);

  const auto tokenizer = of_text(file);
  EXPECT_EQ(tokenizer->vocabulary(), 600);
  EXPECT_EQ(tokenizer->end_of_text(), 598);
  ASSERT_EQ(tokenizer->special().size(), 2u);
  EXPECT_EQ(tokenizer->special()[1].text, "<|user|>");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(tokenizer->encode(text).size(), text.size() / 2);
  // What it writes is what it read, and a description that is written and read again is the same one.
  auto* const as_file = static_cast<TokenizerFile*>(tokenizer->query(TokenizerFile::kId));
  EXPECT_EQ(as_file->name(), "tokenizer.json");
  EXPECT_EQ(as_file->text(), file);
  EXPECT_EQ(write_tokenizer_json(read_tokenizer_json(file, "test")), file);
}

TEST_F(BpeTest, TheTextsOfSpecialTokensAreNotLearned) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "abab ";
  const std::string file = learned(make(""), text, 258, {"ab"});
  EXPECT_EQ(of_text(file)->encode("ab"), (std::vector<std::int32_t>{'a', 'b'}));
}

TEST_F(BpeTest, WithoutAFileThereAreTheBytes) {
  const auto tokenizer = make("");
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->end_of_text(), -1);
  EXPECT_EQ(tokenizer->encode("a\xFF"), (std::vector<std::int32_t>{'a', 0xFF}));
  const std::string text = static_cast<TokenizerFile*>(tokenizer->query(TokenizerFile::kId))->text();
  EXPECT_EQ(of_text(text)->digest(), tokenizer->digest());
  EXPECT_THAT(error_of([&] { tokenizer->token_bytes(256); }, ErrorKind::kRun),
              HasSubstr("token 256 is outside of the vocabulary: expected 0 to 255"));
}

TEST_F(BpeTest, EndOfTextIsAnOption) {
  const std::string json =
      file_with("", "", false, added(256, "<|a|>") + ", " + added(257, "<|end_of_text|>"));
  EXPECT_EQ(of_text(json)->end_of_text(), 257);
  const std::string path = write("named.json", json);
  EXPECT_EQ(make(fmt::format("file = '{}'\nend_of_text = '<|a|>'", path))->end_of_text(), 256);
  EXPECT_THAT(
      error_of([&] { make(fmt::format("file = '{}'\nend_of_text = 'b'", path)); }),
      HasSubstr(
          "option 'end_of_text' names 'b', and there is no such special token (the first one is '<|a|>')"));
}

TEST_F(BpeTest, RefusesFilesThatItCannotHold) {
  const std::string good = file_with("\"ab\": 256", "\"a b\"");
  of_text(good);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, const char*> cases[] = {
      {good.substr(0, good.size() / 2), "not valid JSON at byte"},
      {"[]", "the file: expected a table, found []"},
      {with("\"truncation\": null", "\"truncation\": {\"max_length\": 4}"),
       "truncation: expected null, found {max_length = 4}"},
      {with("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}"),
       "normalizer: expected null, found {type = \"NFC\"}"},
      {with("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
       "pre_tokenizer.add_prefix_space: expected false, found true"},
      {with("{\"type\": \"ByteLevel\"", "{\"type\": \"Metaspace\""),
       "pre_tokenizer.type: expected ByteLevel, found \"Metaspace\""},
      {with("\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"WordPiece\""),
       "decoder.type: expected ByteLevel"},
      {with("\"post_processor\": null", "\"post_processor\": {\"type\": \"BertProcessing\"}"),
       "post_processor.type: expected ByteLevel or TemplateProcessing"},
      {with("\"type\": \"BPE\"", "\"type\": \"Unigram\""), "model.type: expected BPE, found \"Unigram\""},
      {with("\"dropout\": null", "\"dropout\": 0.1"), "model.dropout: expected null, found 0.1"},
      {with("\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\""),
       "model.end_of_word_suffix: expected null"},
      {with("\"byte_fallback\": false", "\"byte_fallback\": true"),
       "model.byte_fallback: expected false, found true"},
      {with("\"fuse_unk\"", "\"fuse_it\""), "model.fuse_it: unknown key, its value is false"},
      {with("\"version\"", "\"wersion\""), "wersion: unknown key"},
      {with("\"a\": 97", "\"a\": 97, \"a\": 300"), "model.vocab: token 'a' is listed twice"},
      {with("\"ab\": 256", "\"ab\": 97"), "token 'ab' and another one have the id 97"},
      {with("\"a\": 97", "\"aa\": 97"), "there is no token 'a'"},
      {with("\"z\": 122", "\"zz\": 122"), "there is no token for byte 0x7a, which a text may hold"},
      {with("\"ab\": 256", "\"ab\": -1"), "token 'ab' has the id -1, expected 0 to 4194303"},
      {with("\"ab\": 256", "\"ab\": 1e3"),
       "expected a whole number for token 'ab', found a number that is no id"},
      {with("\"ab\": 256", "\"ab\": 4000000"), "the largest id is 4000000, and there are 257 tokens"},
      {with("\"ab\": 256", "\"\u4e00\": 256"), "is not made of characters that stand for bytes"},
      {file_with("\"ab\": 256", "\"a c\""), "model.merges[0]: 'a' and 'c': there is no token 'ac'"},
      {file_with("\"ab\": 256", "\"a b\", [\"a\", \"b\"]"),
       "model.merges[0] and [1] are of the same two tokens"},
      {file_with("\"ab\": 256", "\"ab\""),
       "model.merges[0]: expected two tokens with a space between them, found 'ab'"},
      {file_with("\"ab\": 256", "[\"a\"]"), "found a list of fewer than two tokens"},
      {file_with("\"ab\": 256", "7"),
       "model.merges[0]: expected two tokens, as \"a b\" or [\"a\", \"b\"], found a number"},
      {file_with("", "", false, added(256, "\u00e9x") + ", " + added(257, "\u00e9x")),
       "tokens 256 and 257 have equal bytes"},
      {file_with("\"\u00e4\u00b8\u0122\": 256", "", false, added(257, "\u4e00")),
       "tokens 256 and 257 have equal bytes"},
      {file_with("\"ab\": 256", "\"a b\"", false, added(256, "ab")), "has to do with the special token 'ab'"},
      {file_with("", "", false, added(97, "a")), "there is no token for byte 0x61"},
      {file_with("", "", false, added(256, "x!", "\"special\": false")),
       "added_tokens[0].special: expected true, found false"},
      {file_with("", "", false, added(256, "a!") + ", " + added(256, "b!")), "'a!' and 'b!' have the id 256"},
      {with("\"version\": \"1.0\"", "\"version\": " + std::string(70, '[') + std::string(70, ']')),
       "more than 64 levels"},
  };
  for (const auto& [json, expected] : cases) {
    const std::string path = write("case.json", json);
    EXPECT_THAT(error_of([&] { make(fmt::format("file = '{}'", path)); }),
                ::testing::AllOf(HasSubstr("tokenizer file '" + path + "'"), HasSubstr(expected)));
  }
  EXPECT_THAT(error_of([&] { make("file = '" + folder_ + "'"); }), HasSubstr("tokenizer file '"));
  const std::string huge = write("huge.json", good);
  std::filesystem::resize_file(huge, static_cast<std::uintmax_t>(kLargestFile) + 1);
  EXPECT_THAT(error_of([&] { make("file = '" + huge + "'"); }),
              ::testing::AllOf(HasSubstr("tokenizer file '" + huge), HasSubstr("268435456")));
  EXPECT_THAT(error_of([&] { make(fmt::format("file = '{}'\npattern = 'gpt2'", write("good.json", good))); }),
              HasSubstr("option 'pattern' is for tokenizers without a file"));
}

TEST_F(BpeTest, RefusesPatternsThatOtherProgramsReadDifferently) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a", "is no regular expression"},
      {"a*", "matches the empty text"},
      {"\\\\w+", "\\w has another meaning in other programs"},
      {"^a", "anchors have another meaning"},
      {"a{1,3}+", "'}+' has another meaning"},
      {"(*UCP)a", "verbs are not supported"},
      {"[[:alpha:]]", "classes inside of classes are not supported"},
  };
  for (const auto& one : cases)
    EXPECT_THAT(error_of([&] { make(fmt::format("pattern = \"{}\"", one.first)); }),
                ::testing::AllOf(HasSubstr("tokenizer bpe: option 'pattern'"), HasSubstr(one.second)));
}

TEST_F(BpeTest, RefusesTargetsThatItCannotLearn) {
  const auto bytes = make("");
  EXPECT_THAT(error_of([&] { learned(bytes, "abc", 255); }),
              HasSubstr("a vocabulary of 255 tokens, expected 256"));
  EXPECT_THAT(error_of([&] { learned(bytes, "abc", 300, {"x"}); }),
              HasSubstr("special token 'x': expected UTF-8 of two bytes"));
  EXPECT_THAT(error_of([&] {
                learned(bytes, "abc", 300, {"xy", "xy"});
              }),
              HasSubstr("special token 'xy' is named twice"));
  EXPECT_THAT(
      error_of([&] { learned(bytes, "ababab", 300); }, ErrorKind::kRun),
      HasSubstr("the texts have pairs that occur twice for a vocabulary of 258 tokens, expected 300"));
  EXPECT_THAT(error_of([&] {
                learned(bytes, "abababab", 259, {"<|a|>", "</s>"});
              }),
              HasSubstr("special token '</s>' would end a text"));
}

}  // namespace
}  // namespace tenon::bpe
