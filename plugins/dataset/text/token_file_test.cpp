// The three formats, and the text of every error.
#include "test_support.hpp"

#include <gmock/gmock.h>

#include <random>

namespace tenon::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenFileTest : public FileTest {
 protected:
  static std::vector<std::int32_t> tokens(const TokenFile& file) {
    std::vector<std::int32_t> all(file.size());
    file.copy(0, file.size(), all.data());
    for (std::int64_t i = 0; i < file.size(); ++i)
      EXPECT_EQ(file.token(i), static_cast<std::uint32_t>(all[i]));
    return all;
  }
};

TEST_F(TokenFileTest, ReadsEveryFormat) {
  const std::string u16 = bytes_of<std::uint16_t>({1, 256, 50256, 65535});
  const std::string u32 = bytes_of<std::uint32_t>({7, 128255});
  struct Case {
    const char* name;
    std::string bytes;
    const char* format;
    const char* found;
    std::vector<std::int32_t> tokens;
    std::int64_t vocabulary;
  } const cases[] = {
      {"a.txt", "Az\xFF", "auto", "bytes", {65, 122, 255}, 256},
      {"b.bin", u16, "auto", "nanogpt", {1, 256, 50256, 65535}, 50257},
      {"c.bin", llmc_header(20240520, 1, 4) + u16, "auto", "llmc", {1, 256, 50256, 65535}, 50257},
      {"d.bin", llmc_header(20240801, 7, 2) + u32, "auto", "llmc", {7, 128255}, 128256},
      {"e.tokens", llmc_header(20240801, 7, 2) + u32, "llmc", "llmc", {7, 128255}, 128256},
      {"f.tokens", u16, "nanogpt", "nanogpt", {1, 256, 50256, 65535}, 50257},
      {"g.bin", u16, "bytes", "bytes", {1, 0, 0, 1, 80, 196, 255, 255}, 256},
  };
  for (const Case& c : cases) {
    const TokenFile file(write(c.name, c.bytes), c.format);
    EXPECT_EQ(file.format(), c.found) << c.name;
    EXPECT_EQ(tokens(file), c.tokens) << c.name;
    EXPECT_EQ(file.usual_vocabulary(), c.vocabulary) << c.name;
  }
}

TEST_F(TokenFileTest, RefusalsSayExpectedAndFound) {
  const std::string two = bytes_of<std::uint16_t>({1, 2});
  struct Case {
    std::string bytes;
    const char* format;
    const char* message;
  } const cases[] = {
      {"", "auto", "expected a file with tokens, found an empty file"},
      {"abc", "nanogpt", "expected an even number of bytes (uint16 tokens, format nanogpt), found 3 bytes"},
      {llmc_header(20240520, 1, 2) + two, "nanogpt",
       "found the llm.c magic number 20240520; set format = \"llmc\""},
      {two, "llmc", "expected an llm.c header of 1024 bytes, found a file of 4 bytes"},
      {llmc_header(1, 1, 2) + two, "llmc",
       "expected the llm.c magic number 20240520 (uint16 tokens) or 20240801 (uint32 tokens), found 1"},
      {llmc_header(20240522, 1, 2) + two, "auto", "found 20240522; this is an llm.c evaluation file"},
      {llmc_header(20240326, 3, 2) + two, "auto", "this is an llm.c model checkpoint"},
      {llmc_header(20240520, 7, 2) + two, "auto", "llm.c magic number 20240520: expected version 1, found 7"},
      {llmc_header(20240801, 1, 2) + two, "auto", "llm.c magic number 20240801: expected version 7, found 1"},
      {llmc_header(20240520, 1, 3) + two, "auto", "expected 1030 bytes, found 1028; the file is cut off"},
      {llmc_header(20240520, 1, 1) + two, "auto",
       "expected 1026 bytes, found 1028; the file is longer than it says"},
      {llmc_header(20240801, 7, 1) + two + "x", "auto", "expected 1028 bytes, found 1029"},
      {llmc_header(20240520, 1, 0), "auto", "expected a number of tokens from 1 to 2^31 - 1, found 0"},
      {llmc_header(20240520, 1, -5) + two, "auto", "found -5"},
  };
  for (const Case& c : cases) {
    const std::string path = write("data.bin", c.bytes);
    const std::string error = error_of([&] { TokenFile(path, c.format); });
    EXPECT_THAT(error, HasSubstr(c.message));
    EXPECT_THAT(error, HasSubstr("data file '" + path + "'"));
  }
  EXPECT_THAT(error_of([&] { TokenFile(folder_ + "/absent", "auto"); }),
              HasSubstr("cannot open it: No such file"));
  EXPECT_THAT(error_of([&] { TokenFile(folder_, "auto"); }), HasSubstr("found a folder"));
}

TEST_F(TokenFileTest, NamesTheFirstTokenBeyondTheVocabulary) {
  const TokenFile file(write("a.bin", bytes_of<std::uint16_t>({1, 99, 100, 101})), "auto");
  file.check_tokens(102);
  EXPECT_THAT(error_of([&] { file.check_tokens(100); }),
              HasSubstr("token 100 at position 2 lies outside of the vocabulary of 100"));
  // A uint32 token above 2^31 must not pass as negative.
  const TokenFile wide(write("b.bin", llmc_header(20240801, 7, 1) + bytes_of<std::uint32_t>({0xFFFFFFFFu})),
                       "auto");
  EXPECT_THAT(error_of([&] { wide.check_tokens(128256); }), HasSubstr("token 4294967295 at position 0"));
  const TokenFile text(write("c.txt", "ab"), "auto");
  text.check_tokens(256);
  EXPECT_THAT(error_of([&] { text.check_tokens(98); }), HasSubstr("token 98 at position 1"));
}

TEST_F(TokenFileTest, MutatedFilesAreReadOrRefused) {
  const std::string whole = llmc_header(20240520, 1, 8) + bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8});
  std::mt19937 random(5);
  int refused = 0, read = 0;
  for (int round = 0; round < 600; ++round) {
    std::string bytes = whole;
    if (random() % 2 == 0) bytes.resize(random() % (whole.size() + 1));
    for (int flips = static_cast<int>(random() % 3); flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % std::min<std::size_t>(bytes.size(), 12)] = static_cast<char>(random());
    }
    const std::string path = write("m.bin", bytes);
    try {
      read += tokens(TokenFile(path, round % 3 == 0 ? "llmc" : "auto")).empty() ? 0 : 1;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace tenon::text
