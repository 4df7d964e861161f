// A small model against the library itself: a text after a space has the library's ids, and bytes that the
// library would change come back.
#include "test_paths.hpp"

#include <tenon/random.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>
#include <tenon/tokenizer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <fstream>
#include <sstream>

namespace tenon::sentence {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

const std::string kFolder = std::string(TENON_SOURCE_DIR) + "/plugins/tokenizer/sentencepiece/testing/";

class SentencePieceTest : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    registry_.discover({});
  }
  testing::Made<Tokenizer> make(const std::string& path) {
    return testing::make<Tokenizer>(registry_, host_, "sentencepiece", fmt::format("file = '{}'", path));
  }

  Registry registry_;
  testing::QuietHost host_;
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(SentencePieceTest, ATextAfterASpaceHasTheIdsOfTheLibrary) {
  const auto tokenizer = make(kFolder + "tiny.model");
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load(kFolder + "tiny.model").ok());
  EXPECT_EQ(tokenizer->vocabulary(), library.GetPieceSize());
  EXPECT_EQ(tokenizer->end_of_text(), library.eos_id());
  std::istringstream lines(
      read(std::string(TENON_SOURCE_DIR) + "/data/text/tinyshakespeare.txt").substr(0, 50000));
  int compared = 0;
  for (std::string line; std::getline(lines, line); ++compared) {
    if (line.empty()) continue;
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(line, &expected).ok());
    ASSERT_EQ(tokenizer->encode(" " + line), std::vector<std::int32_t>(expected.begin(), expected.end()))
        << line;
  }
  EXPECT_GT(compared, 1000);
}

TEST_F(SentencePieceTest, C3_AnyBytesComeBack) {
  const auto tokenizer = make(kFolder + "tiny.model");
  for (const std::string text :
       {"", " ", "  two  spaces  ", "a\n\tb", "\xE2\x96\x81", "a\xE2\x96\x81 b", "<s> </s> <unk>", "<0x41>",
        "\xC3", "na\xC3\xAFve \xE4\xBD\xA0 \xF0\x9F\x98\x80", "\xED\xA0\x80\xC0\x80"})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  const RandomKey key = random_key(5, "bytes");
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    std::string text;
    const auto length = static_cast<std::uint64_t>(20 * random_uniform(key, i, 0));
    const double range = i % 2 == 0 ? 256 : 128;
    for (std::uint64_t at = 1; at <= length; ++at)
      text += static_cast<char>(static_cast<int>(range * random_uniform(key, i, at)));
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    ASSERT_EQ(tokenizer->decode(ids), text) << i;
    for (const SpecialToken& token : tokenizer->special())
      ASSERT_EQ(std::count(ids.begin(), ids.end(), token.id), 0) << i;
  }
}

TEST_F(SentencePieceTest, RefusesModelsThatLoseText) {
  EXPECT_THAT(error_of([&] { make(kFolder + "no_bytes.model"); }),
              ::testing::AllOf(HasSubstr("no_bytes.model': the model has no byte fallback"),
                               HasSubstr("--byte_fallback")));
  const std::string good = read(kFolder + "tiny.model");
  // normalizer_spec {precompiled_charsmap: "x"}
  EXPECT_THAT(error_of([&] { make(write("map.model", good + std::string("\x1A\x03\x12\x01x"))); }),
              HasSubstr("normalizer_spec changes characters"));
  EXPECT_THAT(error_of([&] { make(write("cut.model", good.substr(0, good.size() / 2))); }),
              HasSubstr("is no model of SentencePiece"));
  EXPECT_THAT(error_of([&] { make(write("text.model", "a text")); }),
              HasSubstr("is no model of SentencePiece"));
}

}  // namespace
}  // namespace tenon::sentence
