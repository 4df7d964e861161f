// Lengths of tokens and bytes per target: files of a small vocabulary, whose texts are decoded here to be
// counted.
#include "mixture.hpp"
#include "test_support.hpp"

#include <gmock/gmock.h>

#include <numeric>

namespace tenon::text {
namespace {

using ::testing::HasSubstr;

/// A vocabulary of five tokens of 1 to 4 bytes; the third ends a text.
const std::vector<std::string> kWords = {"a", "the ", "<|endoftext|>", "\xC3\xA9", "\xE6\x97\xA5"};
constexpr std::int32_t kEnd = 2;

std::string tokenizer_of(const std::vector<std::string>& words, std::int32_t version = 2,
                         std::int32_t end = kEnd) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240328;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(words.size());
  header[3] = end;
  std::string bytes = bytes_of(header);
  for (const std::string& word : words) bytes += static_cast<char>(word.size()) + word;
  return bytes;
}

class TokenBytesTest : public FileTest {
 protected:
  std::string tokenizer() const { return write("tokenizer.bin", tokenizer_of(kWords)); }
  std::string tokens(const std::string& name, const std::vector<std::uint16_t>& ids) const {
    return write(name, bytes_of(ids));
  }

  template <typename Data>
  static Opened<Data> open(const std::string& toml) {
    Opened<Data> made = make_text<Data>(toml);
    made->open(1);
    return made;
  }
  template <typename Data>
  static double bytes_per_target(const std::string& toml) {
    return open<Data>(toml)->info().bytes_per_target;
  }

  /// Bytes of the text of `ids` beyond the first, ends of texts left out, per id.
  static double expected(const std::vector<std::vector<std::uint16_t>>& parts) {
    std::string text;
    std::size_t targets = 0;
    for (const auto& ids : parts) {
      for (std::size_t i = 1; i < ids.size(); ++i) {
        if (ids[i] != kEnd) text += kWords[ids[i]];
        ++targets;
      }
    }
    return static_cast<double>(text.size()) / static_cast<double>(targets);
  }
};

TEST_F(TokenBytesTest, LengthsAreThoseOfTheFile) {
  const TokenBytes bytes(tokenizer());
  ASSERT_EQ(bytes.size(), 5);
  const int lengths[] = {1, 4, 0, 2, 3};  // the end of a text is no byte of it
  for (int token = 0; token < 5; ++token) EXPECT_EQ(bytes.of(token), lengths[token]) << token;
}

TEST_F(TokenBytesTest, Version1EndsTextsAsGpt2Does) {
  std::vector<std::string> words(50257, "xy");
  const TokenBytes bytes(write("one.bin", tokenizer_of(words, 1, 0)));
  EXPECT_EQ(bytes.of(0), 2);
  EXPECT_EQ(bytes.of(50256), 0);
  EXPECT_EQ(TokenBytes(write("few.bin", tokenizer_of(kWords, 1, 0))).of(kEnd), 13) << "it has no token 50256";
}

TEST_F(TokenBytesTest, RefusalsSayExpectedAndFoundBytes) {
  const std::string whole = tokenizer_of(kWords);
  std::string magic = whole, none = tokenizer_of({});
  magic[0] = 1;
  struct Case {
    std::string bytes;
    const char* message;
  } const cases[] = {
      {"", "expected an llm.c header of 1024 bytes, found a file of 0 bytes"},
      {magic, "expected the magic number 20240328 of llm.c's tokenizers, found 20240129"},
      {tokenizer_of(kWords, 3), "expected version 1 or 2, found 3"},
      {none, "expected from 1 to 4194304 tokens, found 0"},
      {tokenizer_of(kWords, 2, 5), "the token that ends a text is 5; expected one of its 5 tokens"},
      {tokenizer_of(kWords, 2, -1), "the token that ends a text is -1; expected one of its 5 tokens"},
      {whole.substr(0, whole.size() - 1), "its 1051 bytes end within token 4 of 5; the file is cut off"},
      {whole.substr(0, 1024), "its 1024 bytes end within token 0 of 5; the file is cut off"},
      {whole + "x", "expected 1052 bytes for 5 tokens, found 1053; the file is longer than it says"},
  };
  for (const Case& c : cases) {
    const std::string path = write("bad.bin", c.bytes);
    EXPECT_EQ(error_of([&] { TokenBytes{path}; }), "tokenizer file '" + path + "': " + c.message);
  }
}

TEST_F(TokenBytesTest, PlainTextHasOneBytePerTarget) {
  const std::string text = write("words.txt", "to be or not to be, that is the question");
  EXPECT_EQ(bytes_per_target<Text>("path = '" + text + "'\ncontext = 3\nbatch = 1"), 1);
  EXPECT_EQ(bytes_per_target<Text>("path = '" + text + "'\ncontext = 3\nbatch = 1\nval_fraction = 0.0"), 1);
  EXPECT_EQ(
      bytes_per_target<Mixture>("sources = ['a=" + text + "']\nweights = ['1']\ncontext = 3\nbatch = 1"), 1);
}

TEST_F(TokenBytesTest, TokensCountTheBytesOfTheValidationTargets) {
  // Another text to train on: its lengths must not count.
  const std::string train = tokens("train.bin", std::vector<std::uint16_t>(40, 1));
  const std::vector<std::uint16_t> ids = {1, 0, 3, 2, 4, 4, 1, 2, 0, 3, 3};
  const std::string val = tokens("val.bin", ids);
  const double mean = expected({ids});
  EXPECT_EQ(mean, 18.0 / 10);  // 1+2+0+3+3+4+0+1+2+2: the first token is no target
  for (const int context : {1, 2, 3, 10, 20}) {
    const Made data = open<Text>("path = '" + train + "'\nval_path = '" + val + "'\ntoken_bytes = '" +
                                 tokenizer() + "'\nbatch = 1\ncontext = " + std::to_string(context));
    EXPECT_EQ(data->info().bytes_per_target, mean) << context;
    EXPECT_EQ(data->info().attributes.at(0).value, 5) << "the tokenizer's vocabulary";
    ASSERT_EQ(data->info().sources.size(), 3u);
    EXPECT_THAT(data->info().sources[2].path, HasSubstr("tokenizer.bin"));
  }
}

TEST_F(TokenBytesTest, AMixtureCountsTheTailsOfAllSources) {
  std::vector<std::uint16_t> a(50, 0), b(80, 4);
  a.insert(a.end(), {1, 1, 2, 3, 3});  // 55 tokens, of which a fifth is held out: 11
  b.insert(b.end(), {2, 0, 0, 1});     // 84: 17
  const std::string toml = "sources = ['a=" + tokens("a.bin", a) + "', 'b=" + tokens("b.bin", b) +
                           "']\nweights = ['0.5', '0.5']\ncontext = 4\nbatch = 1\nval_fraction = 0.2\n";
  const std::vector<std::uint16_t> tail_a(a.begin() + 44, a.end()), tail_b(b.begin() + 67, b.end());
  EXPECT_EQ(bytes_per_target<Mixture>(toml + "token_bytes = '" + tokenizer() + "'"),
            expected({tail_a, tail_b}));
  EXPECT_EQ(bytes_per_target<Mixture>(toml), 0) << "no tokenizer, no bytes";
}

TEST_F(TokenBytesTest, NothingIsClaimedWhereNothingIsKnown) {
  const std::string path = tokens("t.bin", std::vector<std::uint16_t>(40, 1));
  const std::string toml = "path = '" + path + "'\ncontext = 4\nbatch = 1\n";
  EXPECT_EQ(bytes_per_target<Text>(toml), 0);
  EXPECT_EQ(bytes_per_target<Text>(toml + "val_fraction = 0.0\ntoken_bytes = '" + tokenizer() + "'"), 0)
      << "no validation split";
}

TEST_F(TokenBytesTest, WrongTokenizersAreRefused) {
  const std::string text = write("words.txt", "to be or not to be"), given = tokenizer();
  EXPECT_EQ(error_of([&] {
              open<Text>("path = '" + text + "'\ncontext = 2\nbatch = 1\ntoken_bytes = '" + given + "'");
            }),
            "data.text: token_bytes = '" + given +
                "' is for files of tokens, and these are plain text, whose tokens are bytes; leave it out");
  std::vector<std::uint16_t> ids(39, 1);
  ids.push_back(7);
  const std::string toml = "path = '" + tokens("t.bin", ids) + "'\ncontext = 2\nbatch = 1\ntoken_bytes = '" +
                           given + "'\nvocabulary = ";
  EXPECT_THAT(error_of([&] { open<Text>(toml + "0"); }), HasSubstr("lies outside of the vocabulary of 5"));
  EXPECT_EQ(error_of([&] { open<Text>(toml + "8"); }),
            "data.text: token 7 of the validation split is beyond the 5 tokens of tokenizer '" + given +
                "'; name the tokenizer that wrote the file");
}

}  // namespace
}  // namespace tenon::text
