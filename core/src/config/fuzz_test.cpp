// Bytes from outside: whatever the text, reading it ends in a value or in Error(kConfig), and what was read
// can be written, read again and checked.
#include "config/run_schema.hpp"
#include "config/sample_components.hpp"

#include <gtest/gtest.h>

#include <random>

TENON_ABI_BEGIN
namespace config {
namespace {

// True when the text was accepted.
bool survives(const std::string& text) {
  Config config;
  try {
    config = Config::parse(text, "fuzz.toml", {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return false;
  }
  const std::string written = to_toml(config.root(), true);
  try {
    EXPECT_EQ(Config::parse(written, "again.toml", {}).root(), config.root()) << text << "\n-----\n"
                                                                              << written;
  } catch (const Error& error) {
    ADD_FAILURE() << error.what() << "\n" << text << "\n-----\n" << written;
  }
  try {
    check_run(config, sample::kCatalog, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
  }
  return true;
}

TEST(Fuzz, EveryTruncation) {
  const std::string text(sample::kRun);
  int accepted = 0;
  for (std::size_t length = 0; length <= text.size(); ++length)
    accepted += survives(text.substr(0, length)) ? 1 : 0;
  EXPECT_GT(accepted, 10);
  EXPECT_LT(accepted, static_cast<int>(text.size()));
}

TEST(Fuzz, RandomMutations) {
  static constexpr std::string_view kPieces[] = {"[",
                                                 "]",
                                                 "[[",
                                                 "]]",
                                                 "{",
                                                 "}",
                                                 "=",
                                                 ".",
                                                 ",",
                                                 "\"",
                                                 "'",
                                                 "'''",
                                                 "\"\"\"",
                                                 "\n",
                                                 "#",
                                                 "\\u",
                                                 "\\",
                                                 "+",
                                                 "-",
                                                 "_",
                                                 "e",
                                                 "0x",
                                                 "inf",
                                                 "nan",
                                                 "1979-05-27",
                                                 "07:32:00",
                                                 "\xff",
                                                 "\xc3",
                                                 "\xf0\x9f\x98\x80",
                                                 std::string_view("\0", 1),
                                                 "\r",
                                                 "extends = \"fuzz.toml\"\n",
                                                 "\"+grid\" = [1]\n",
                                                 "type = \"sgd\"\n"};
  std::mt19937_64 random(20240607);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text(sample::kRun);
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        case 2:
          text.erase(at, 1 + below(20));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), below(60)));
          break;
      }
    }
    accepted += survives(text) ? 1 : 0;
  }
  EXPECT_GT(accepted, 100);
}

TEST(Fuzz, SetsAndKeys) {
  static constexpr std::string_view kPieces[] = {"a", "sync", ".", "=", "+", "[",  "]",    "\"", "'",
                                                 "1", " ",    "{", "}", ",", "\n", "\xff", "#"};
  std::mt19937_64 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += kPieces[random() % std::size(kPieces)];
    try {
      const Config config = Config::parse("[sync]\na = [1]\n", "x.toml", {text});
      EXPECT_EQ(Config::parse(to_toml(config.root(), true), "again.toml", {}).root(), config.root()) << text;
      config.explain(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    }
  }
}

// Letters where the parser looks for white space: toml++ 3.3 takes them for a place that cannot be reached.
TEST(Fuzz, LettersOutsideOfAsciiAreNoWhiteSpace) {
  for (const char* text : {"a = [1, {b = \xcf\x82\n", "k\xc3\xa9y = 1\n", "[t\xc3\xa9]\n",
                           "a = 1 \xe2\x80\xa0\n", "\xe3\x80\x81 = 2\n"}) {
    EXPECT_FALSE(survives(text)) << text;
  }
}

}  // namespace
}  // namespace config
TENON_ABI_END
