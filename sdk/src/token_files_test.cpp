// Files of tokens and their indices: every byte, every refusal, and disks that fail at any operation.
#include "store/testing/faulty_files.hpp"

#include <tenon/sdk/token_files.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <cstring>
#include <iterator>
#include <random>

namespace tenon::token_files_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

/// Its facts count. A token is a byte.
class Facts final : public Tokenizer {
 public:
  Facts(std::int64_t vocabulary, std::int32_t end) : vocabulary_(vocabulary), end_(end) {}
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int32_t end_of_text() const override { return end_; }
  std::span<const SpecialToken> special() const override { return {}; }
  std::string_view token_bytes(std::int32_t) const override { return {}; }
  std::string_view digest() const override { return digest_; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    return {text.begin(), text.end()};
  }
  std::string decode(std::span<const std::int32_t>) const override { return {}; }
  void* query(std::string_view) override { return nullptr; }

  std::string digest_ = std::string(60, 'a') + "0123";

 private:
  std::int64_t vocabulary_;
  std::int32_t end_;
};

class TokenFilesTest : public testing::FolderTest {
 protected:
  static std::string bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  template <typename Integer>
  static Integer number(const std::string& bytes, std::size_t at) {
    Integer value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
  /// Three documents; the third has no end.
  void write_three(FileSystem& files, const Tokenizer& tokenizer) const {
    TokenFileWriter writer(files, path_(), tokenizer);
    writer.append(std::vector<std::int32_t>{5, 6});
    writer.append(std::vector<std::int32_t>{7});
    writer.end_document();
    writer.end_document();  // a document without tokens
    writer.append(std::vector<std::int32_t>{8});
    writer.end_document();
    writer.append(std::vector<std::int32_t>{9, 10});
    writer.finish();
  }
  std::string path_() const { return folder_ + "/tokens.bin"; }

  std::unique_ptr<FileSystem> files_ = make_posix_files();
};

TEST_F(TokenFilesTest, HaveTheHeaderAndWidthOfLlmc) {
  struct Case {
    std::int64_t vocabulary;
    std::int32_t magic, version;
    std::size_t width;
  } const cases[] = {{65536, 20240520, 1, 2}, {65537, 20240801, 7, 4}};
  for (const Case& c : cases) {
    write_three(*files_, Facts(c.vocabulary, 3));
    const std::string all = bytes(path_());
    ASSERT_EQ(all.size(), 1024 + 8 * c.width);
    EXPECT_EQ(number<std::int32_t>(all, 0), c.magic);
    EXPECT_EQ(number<std::int32_t>(all, 4), c.version);
    EXPECT_EQ(number<std::int32_t>(all, 8), 8);
    EXPECT_EQ(all.substr(12, 1012), std::string(1012, '\0'));
    std::vector<std::uint32_t> tokens;
    for (std::size_t at = 1024; at < all.size(); at += c.width)
      tokens.push_back(c.width == 2 ? number<std::uint16_t>(all, at) : number<std::uint32_t>(all, at));
    EXPECT_THAT(tokens, ElementsAre(5, 6, 7, 3, 8, 3, 9, 10));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "nothing temporary";
  }
}

TEST_F(TokenFilesTest, TheIndexHasTheDocumentsAndTheTokenizer) {
  const Facts tokenizer(300, 3), endless(300, -1);
  write_three(*files_, tokenizer);
  const DocumentIndex index = read_document_index(*files_, document_index_path(path_()));
  EXPECT_EQ(index.tokenizer, tokenizer.digest_);
  EXPECT_EQ(index.vocabulary, 300);
  EXPECT_EQ(index.tokens, 8);
  EXPECT_THAT(index.first, ElementsAre(0, 4, 6));
  write_three(*files_, endless);
  EXPECT_THAT(read_document_index(*files_, document_index_path(path_())).first, ElementsAre(0, 3, 4));
}

TEST_F(TokenFilesTest, SeparatorsEndDocumentsWhereNoTokenDoes) {
  const std::string text = "ab\n--\nc";
  const TextDocument documents[] = {
      {std::string_view(text).substr(0, 3), std::string_view(text).substr(3, 3)},
      {std::string_view(text).substr(6), {}}};
  for (const bool ends : {true, false}) {
    const Facts tokenizer(300, ends ? 256 : -1);
    TokenFileWriter writer(*files_, path_(), tokenizer);
    for (const TextDocument& document : documents) writer.append_document(document, tokenizer);
    writer.finish();
    const std::string all = bytes(path_());
    std::vector<int> tokens;
    for (std::size_t at = 1024; at < all.size(); at += 2) tokens.push_back(number<std::uint16_t>(all, at));
    if (ends) {
      EXPECT_THAT(tokens, ElementsAre('a', 'b', '\n', 256, 'c', 256));
    } else {
      EXPECT_THAT(tokens, ElementsAre('a', 'b', '\n', '-', '-', '\n', 'c'));
    }
    EXPECT_THAT(read_document_index(*files_, document_index_path(path_())).first,
                ElementsAre(0, ends ? 4 : 6));
  }
}

TEST_F(TokenFilesTest, ManyTokensPassInPieces) {
  constexpr std::int32_t kMany = 1'500'000;
  {
    TokenFileWriter writer(*files_, path_(), Facts(65536, -1));
    for (std::int32_t i = 0; i < kMany; ++i) {
      const std::int32_t id = i % 65521;
      writer.append(std::span(&id, 1));
      if (i % 1000 == 999) writer.end_document();
    }
    EXPECT_EQ(writer.tokens(), kMany);
    EXPECT_EQ(writer.documents(), kMany / 1000);
    writer.finish();
  }
  const std::string all = bytes(path_());
  ASSERT_EQ(all.size(), 1024u + 2u * kMany);
  for (std::int32_t i = 0; i < kMany; ++i)
    ASSERT_EQ(number<std::uint16_t>(all, 1024 + 2 * static_cast<std::size_t>(i)), i % 65521) << i;
  EXPECT_EQ(read_document_index(*files_, document_index_path(path_())).first[1499], 1'499'000);
}

TEST_F(TokenFilesTest, RefuseWhatCannotBeWritten) {
  const Facts tokenizer(300, -1);
  {
    TokenFileWriter writer(*files_, path_(), tokenizer);
    EXPECT_EQ(error_of(
                  [&] {
                    writer.append(std::vector<std::int32_t>{1, 300});
                  },
                  ErrorKind::kRun),
              "token file '" + path_() + "': token 300 at position 1 is outside of the vocabulary of 300");
    EXPECT_NE(error_of([&] { writer.append(std::vector<std::int32_t>{-1}); }, ErrorKind::kRun), "no error");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "never finished";
  {
    TokenFileWriter writer(*files_, path_(), tokenizer);
    writer.end_document();
    EXPECT_EQ(error_of([&] { writer.finish(); }), "token file '" + path_() + "': the texts hold no token");
  }
  Facts other(300, -1);
  other.digest_ = "sha256";
  EXPECT_EQ(error_of([&] { TokenFileWriter(*files_, path_(), other); }, ErrorKind::kPlugin),
            "the digest of the tokenizer is 'sha256': expected SHA-256 in lower-case hexadecimal");
}

TEST_F(TokenFilesTest, AFailingDiskLeavesTheOldFilesOrTokensWithoutIndex) {
  write_three(*files_, Facts(300, -1));
  testing::FaultyFiles faulty(*files_);
  faulty.arm({});
  write_three(faulty, Facts(300, 3));
  const std::int64_t operations = faulty.operations();
  ASSERT_GT(operations, 10);
  for (std::int64_t k = 0; k < operations; ++k) {
    write_three(*files_, Facts(300, -1));
    const std::string before = bytes(path_()), index = bytes(document_index_path(path_()));
    faulty.arm({.fail_at = k, .torn = k % 2 == 0, .dead_after = true});
    try {
      write_three(faulty, Facts(300, 3));
    } catch (const FileError&) {
    }
    const std::string after = bytes(path_());
    const bool has_index = std::filesystem::exists(document_index_path(path_()));
    EXPECT_TRUE(after == before || after.size() == 1024 + 16) << k;
    if (!has_index) continue;
    const DocumentIndex found = read_document_index(*files_, document_index_path(path_()));
    EXPECT_EQ(1024 + 2 * static_cast<std::size_t>(found.tokens), after.size()) << k << ": of other tokens";
  }
}

/// An index with the CRC that it should have.
std::string with_crc(std::string bytes) {
  bytes.resize(bytes.size() - 4);
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return bytes + std::string(reinterpret_cast<const char*>(&crc), 4);
}

TEST_F(TokenFilesTest, RefusalsOfAnIndexSayExpectedAndFound) {
  write_three(*files_, Facts(300, 3));
  const std::string path = document_index_path(path_()), whole = bytes(path);
  ASSERT_EQ(whole.size(), 104u + 3 * 8 + 4);
  const auto changed = [&](std::size_t at, std::int64_t value, std::size_t width) {
    std::string copy = whole;
    std::memcpy(copy.data() + at, &value, width);
    return with_crc(copy);
  };
  struct Case {
    std::string bytes;
    const char* message;
  } const cases[] = {
      {"", "expected at least 116 bytes, found 0; the file is cut off"},
      {changed(0, 'x', 1), "expected the magic text 'tenondoc' of an index of documents, found other bytes"},
      {changed(8, 2, 4), "expected version 1, found 2; write the tokens again"},
      {whole.substr(0, whole.size() - 8), "its 124 bytes do not hold the 3 documents that it counts"},
      {whole + "x", "its 133 bytes do not hold the 3 documents that it counts"},
      {changed(96, -1, 8), "its 132 bytes do not hold the -1 documents that it counts"},
      {changed(16, 'G', 1), "expected the digest of a tokenizer in lower-case hexadecimal"},
      {changed(80, 0, 8), "expected a vocabulary of 1 to 2147483647 tokens, found 0"},
      {changed(88, 0, 8), "expected 1 to 2147483647 tokens, found 0"},
      {changed(104, 1, 8), "expected the first document to begin at token 0, found 1"},
      {changed(112, 0, 8), "document 1 begins at token 0: expected a token after 0"},
      {changed(120, 8, 8),
       "document 2 begins at token 8: expected a token after 4, where the one before it begins, of 8 tokens"},
  };
  for (const Case& c : cases) {
    write("tokens.bin.documents", c.bytes);
    const std::string error = error_of([&] { read_document_index(*files_, path); });
    EXPECT_THAT(error, HasSubstr(c.message));
    EXPECT_THAT(error, HasSubstr("document index '" + path + "': "));
  }
  std::string flipped = whole;
  flipped[113] ^= 1;
  write("tokens.bin.documents", flipped);
  EXPECT_THAT(error_of([&] { read_document_index(*files_, path); }), HasSubstr("the file is damaged"));
  EXPECT_THAT(error_of([&] { read_document_index(*files_, folder_ + "/none"); }),
              HasSubstr("document index '" + folder_ + "/none': "));
}

TEST_F(TokenFilesTest, MutatedIndicesAreReadOrRefused) {
  write_three(*files_, Facts(300, 3));
  const std::string whole = bytes(document_index_path(path_()));
  std::mt19937 random(7);
  int refused = 0, read = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string copy = whole;
    if (random() % 8 == 0) copy.resize(random() % (whole.size() + 1));
    for (int flips = static_cast<int>(random() % 3); flips > 0 && !copy.empty(); --flips)
      copy[random() % copy.size()] = static_cast<char>(random());
    if (random() % 2 == 0 && copy.size() > 4) copy = with_crc(copy);
    try {
      const DocumentIndex index = parse_document_index(std::as_bytes(std::span(copy)), "index");
      EXPECT_EQ(index.first[0], 0);
      EXPECT_LT(index.first.back(), index.tokens);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace tenon::token_files_test
