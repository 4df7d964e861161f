// Documents, rows of them, and encoded text: fields against a plain reading of the files, coverage, errors.
#include "mixture.hpp"
#include "test_support.hpp"

#include "base/testing/allocation_count.hpp"

#include <tenon/sdk/token_files.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace tenon::text::documents_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

/// The four fields of one sample.
struct Sample {
  Ids tokens, targets, documents, positions;
};

template <typename Data>
Sample read_sample(Opened<Data>& made, Split split, std::int64_t number) {
  const std::int64_t context = made->info().tokens_per_sample, batch = made->batch();
  const std::size_t fields = made->info().fields.size();
  std::vector<Ids> memory(fields, Ids(static_cast<std::size_t>(batch * context), -7));
  std::vector<TensorView> views;
  for (Ids& field : memory) views.push_back({field.data(), Shape{batch, context}, DType::kI32});
  made->read({.split = split, .first = number, .count = 1}, views);
  for (Ids& field : memory) field.resize(static_cast<std::size_t>(context));
  memory.resize(4);
  return {memory[0], memory[1], memory[2], memory[3]};
}

/// A tokenizer that is only known by its facts.
class Facts final : public Tokenizer {
 public:
  explicit Facts(char digest = 'f') : digest_(64, digest) {}
  std::int64_t vocabulary() const override { return 5000; }
  std::int32_t end_of_text() const override { return -1; }
  std::span<const SpecialToken> special() const override { return {}; }
  std::string_view token_bytes(std::int32_t) const override { return "xy"; }
  std::string_view digest() const override { return digest_; }
  std::vector<std::int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const std::int32_t>) const override { return {}; }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::string digest_;
};

class DocumentsTest : public FileTest {
 protected:
  template <typename Data = Text>
  Opened<Data> open(const std::string& toml, Tokenizer* tokenizer = nullptr, std::uint64_t seed = 1) const {
    Opened<Data> made = make_text<Data>(toml, tokenizer);
    made->open(seed);
    return made;
  }
  std::string refusal(const std::string& toml, Tokenizer* tokenizer = nullptr,
                      ErrorKind kind = ErrorKind::kConfig) const {
    return error_of([&] { open(toml, tokenizer); }, kind);
  }
  /// Documents of these lengths, whose tokens count from 0 through the file. Returns "path = '...'".
  std::string counting(const std::vector<int>& lengths, const std::string& name = "tokens.bin",
                       const Tokenizer& tokenizer = Facts()) const {
    const std::unique_ptr<FileSystem> files = make_posix_files();
    TokenFileWriter writer(*files, folder_ + "/" + name, tokenizer);
    std::int32_t next = 0;
    for (const int length : lengths) {
      for (int i = 0; i < length; ++i, ++next) writer.append(std::span(&next, 1));
      writer.end_document();
    }
    writer.finish();
    return "path = '" + folder_ + "/" + name + "'\n";
  }
  std::string text_path(const std::string& name, const std::string& text) const {
    return "path = '" + write(name, text) + "'\n";
  }
};

constexpr const char* kTokenizer = "tokenizer = {type = 'words'}\n";

TEST_F(DocumentsTest, WindowsMarkBordersAndPredictNothingAcrossThem) {
  auto made = open(counting({5, 1, 6, 8}) +
                   "pack = 'documents'\ncontext = 4\nbatch = 2\nval_fraction = 0.0\norder = 'sequential'");
  ASSERT_EQ(made->info().train_samples, 4);  // (20 - 1) / 4
  const DataInfo& info = made->info();
  ASSERT_EQ(info.fields.size(), 4u);
  EXPECT_EQ(info.fields[2].name, "documents");
  EXPECT_EQ(info.fields[3].name, "positions");
  EXPECT_EQ(info.fields[3].dtype, DType::kI32);
  EXPECT_EQ(info.fields[3].shape, Shape{4});
  // Documents begin at 0, 5, 6 and 12.
  const Sample second = read_sample(made, Split::kTrain, 1), third = read_sample(made, Split::kTrain, 2);
  EXPECT_THAT(second.tokens, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(second.targets, ElementsAre(-1, -1, 7, 8));
  EXPECT_THAT(second.documents, ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(second.positions, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(third.targets, ElementsAre(9, 10, 11, -1))
      << "the target after the window is another document's";
  EXPECT_THAT(third.documents, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(third.positions, ElementsAre(0, 1, 2, 3));
}

/// Every field of a sample follows from its tokens where those count and documents begin at `begins`.
void expect_fields(const Sample& sample, const std::set<std::int32_t>& begins) {
  std::int32_t document = 0, position = 0;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const bool begin =
        i > 0 && (begins.contains(sample.tokens[i]) || sample.tokens[i] != sample.tokens[i - 1] + 1);
    document += begin ? 1 : 0;
    position = begin ? 0 : position;
    EXPECT_EQ(sample.documents[i], document) << i;
    EXPECT_EQ(sample.positions[i], position++) << i;
    if (sample.targets[i] >= 0) {
      EXPECT_EQ(sample.targets[i], sample.tokens[i] + 1) << i;
      EXPECT_FALSE(begins.contains(sample.targets[i])) << i;
    }
  }
}

TEST_F(DocumentsTest, WindowsAnywhereHaveTheSameTokensAsAStream) {
  std::vector<int> lengths;
  std::mt19937 random(3);
  std::set<std::int32_t> begins;
  std::int32_t total = 0;
  for (int i = 0; i < 60; ++i) {
    begins.insert(total);
    lengths.push_back(1 + static_cast<int>(random() % 30));
    total += lengths.back();
  }
  for (const char* order : {"random", "shuffled", "sequential"}) {
    const std::string toml = counting(lengths) + "context = 16\nbatch = 1\norder = '" + order + "'\n";
    auto stream = open(toml), documents = open(toml + "pack = 'documents'");
    EXPECT_EQ(stream->info().fields.size(), 2u);
    EXPECT_EQ(documents->info().train_samples, stream->info().train_samples);
    ASSERT_EQ(documents->info().val_samples, stream->info().val_samples);
    int masked = 0;
    for (std::int64_t i = 0; i < 2 * stream->info().train_samples; ++i) {
      const Sample with = read_sample(documents, Split::kTrain, i);
      const Ids tokens = read_sample(stream, Split::kTrain, i).tokens;
      EXPECT_EQ(with.tokens, tokens) << order << i;
      expect_fields(with, begins);
      for (std::size_t k = 0; k < 16; ++k) {
        EXPECT_EQ(with.targets[k] == -1, begins.contains(with.tokens[k] + 1)) << order << i;
        masked += with.targets[k] == -1 ? 1 : 0;
      }
    }
    EXPECT_GT(masked, 20);
  }
}

TEST_F(DocumentsTest, ValidationPredictsEveryHeldOutTokenOfADocumentButItsFirst) {
  std::vector<int> lengths;
  std::set<std::int32_t> begins;
  std::int32_t total = 0;
  for (int i = 0; i < 40; ++i) {
    begins.insert(total);
    lengths.push_back(1 + 7 * i % 23);
    total += lengths.back();
  }
  for (const int context : {1, 3, 8, 33}) {
    auto made = open(counting(lengths) + "pack = 'documents'\nbatch = 1\nval_fraction = 0.3\ncontext = " +
                     std::to_string(context));
    std::map<std::int32_t, int> predicted;
    for (std::int64_t i = 0; i < made->info().val_samples; ++i) {
      const Sample sample = read_sample(made, Split::kVal, i);
      for (const std::int32_t target : sample.targets) predicted[target] += target >= 0 ? 1 : 0;
    }
    predicted.erase(-1);
    const auto first = static_cast<std::int32_t>(static_cast<double>(total) * 0.7);
    for (std::int32_t token = first + 1; token < total; ++token)
      EXPECT_EQ(predicted[token], begins.contains(token) ? 0 : 1) << context << ": " << token;
    EXPECT_EQ(predicted.begin()->first, first + 1);
  }
}

TEST_F(DocumentsTest, RowsHoldWholeDocumentsAndPadding) {
  // Of 3, 5, 4, 1 and 2 tokens: 2, 4, 3, 0 and 1 places. Best fit of 4, 3, 2, 1 into rows of 5: 4 + 1, 3 + 2.
  auto made = open(counting({3, 5, 4, 1, 2}) +
                   "pack = 'whole'\ncontext = 5\nbatch = 1\nval_fraction = 0.0\norder = 'sequential'");
  ASSERT_EQ(made->info().train_samples, 2);
  const Sample first = read_sample(made, Split::kTrain, 0), second = read_sample(made, Split::kTrain, 1);
  EXPECT_THAT(first.tokens, ElementsAre(0, 1, 8, 9, 10));
  EXPECT_THAT(first.targets, ElementsAre(1, 2, 9, 10, 11));
  EXPECT_THAT(first.documents, ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(second.tokens, ElementsAre(3, 4, 5, 6, 13));
  EXPECT_THAT(second.documents, ElementsAre(0, 0, 0, 0, 1));
  auto wide = open(counting({3, 5}) + "pack = 'whole'\ncontext = 8\nbatch = 1\nval_fraction = 0.0");
  const Sample padded = read_sample(wide, Split::kTrain, 0);
  EXPECT_THAT(padded.tokens, ElementsAre(0, 1, 3, 4, 5, 6, 0, 0));
  EXPECT_THAT(padded.targets, ElementsAre(1, 2, 4, 5, 6, 7, -1, -1));
  EXPECT_THAT(padded.documents, ElementsAre(0, 0, 1, 1, 1, 1, 2, 2));
  EXPECT_THAT(padded.positions, ElementsAre(0, 1, 0, 1, 2, 3, 0, 1));
}

TEST_F(DocumentsTest, AnEpochOfRowsHasEveryTargetOnceAndItsShareOfPaddingIsLogged) {
  std::vector<int> lengths;
  std::mt19937 random(11);
  std::int64_t targets = 0;
  for (int i = 0; i < 300; ++i) {
    lengths.push_back(2 + static_cast<int>(random() % 15));
    targets += lengths.back() - 1;
  }
  auto made = open(counting(lengths) +
                   "pack = 'whole'\ncontext = 16\nbatch = 1\nval_fraction = 0.0\norder = 'shuffled'");
  const std::int64_t rows = made->info().train_samples;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<std::int32_t> seen;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (const std::int32_t target : read_sample(made, Split::kTrain, epoch * rows + i).targets) {
        EXPECT_TRUE(target < 0 || seen.insert(target).second) << target;
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), targets);
  }
  // Lengths of up to a row: the bound of best fit decreasing is 11/9 of the fewest rows, and 4.
  EXPECT_LE(rows, (targets + 15) / 16 * 11 / 9 + 4);
  ASSERT_EQ(made.host->messages.size(), 1u);
  EXPECT_EQ(
      made.host->messages[0],
      fmt::format("data.text: '{}/tokens.bin': 300 documents in {} rows of 16 tokens to train on, {:.2f} % "
                  "of them padding",
                  folder_, rows,
                  100.0 * static_cast<double>(16 * rows - targets) / static_cast<double>(16 * rows)));
}

TEST_F(DocumentsTest, LongDocumentsAreRefusedOrSplit) {
  const std::string toml =
      counting({3, 12, 2}) + "pack = 'whole'\ncontext = 5\nbatch = 1\nval_fraction = 0.0\n";
  EXPECT_EQ(refusal(toml), "data.text: pack = \"whole\": the document of '" + folder_ +
                               "/tokens.bin' that begins at token 3 has 12 tokens, and a row of context = 5 "
                               "holds one of up to 6; raise context, or set long_documents = \"split\"");
  auto made = open(toml + "long_documents = 'split'\norder = 'sequential'");
  std::map<std::int32_t, int> predicted;
  for (std::int64_t i = 0; i < made->info().train_samples; ++i) {
    const Sample sample = read_sample(made, Split::kTrain, i);
    for (const std::int32_t target : sample.targets) predicted[target] += target >= 0 ? 1 : 0;
  }
  for (std::int32_t token = 0; token < 17; ++token)
    EXPECT_EQ(predicted[token], token == 0 || token == 3 || token == 15 ? 0 : 1) << token;
  EXPECT_NE(refusal(counting({6, 2}) + "pack = 'whole'\ncontext = 4\nbatch = 1\nval_fraction = 0.0"),
            "no error");
  EXPECT_EQ(refusal(counting({5, 2}) + "pack = 'whole'\ncontext = 4\nbatch = 1\nval_fraction = 0.0"),
            "no error");
}

TEST_F(DocumentsTest, DocumentsThatBeginInTheTailAreHeldOut) {
  // 20 tokens, and the tail begins at 15, within the third document: the fourth is held out.
  auto made = open(counting({6, 6, 5, 3}) +
                   "pack = 'whole'\ncontext = 6\nbatch = 1\nval_fraction = 0.25\norder = 'sequential'");
  ASSERT_EQ(made->info().val_samples, 1);
  EXPECT_THAT(read_sample(made, Split::kVal, 0).targets, ElementsAre(18, 19, -1, -1, -1, -1));
  EXPECT_EQ(made->info().train_samples, 3);
  EXPECT_THAT(refusal(counting({6, 14}) + "pack = 'whole'\ncontext = 16\nbatch = 1\nval_fraction = 0.25"),
              HasSubstr("validation needs at least 2 tokens of a document that begins there"));
  const std::string val = counting({4, 4}, "val.bin");
  auto apart = open(counting({6, 6}) + "val_" + val + "pack = 'whole'\ncontext = 6\nbatch = 1");
  EXPECT_EQ(apart->info().val_samples, 1);
  EXPECT_THAT(read_sample(apart, Split::kVal, 0).tokens, ElementsAre(0, 1, 2, 4, 5, 6));
}

TEST_F(DocumentsTest, BytesOfATextAreNotCopiedForTheirSeparators) {
  const std::string text = "one\n---\ntwo\n---\n---\nthree\n";
  auto made = open(text_path("a.txt", text) +
                   "separator_line = '---'\npack = 'documents'\ncontext = 25\nbatch = 1\nval_fraction = 0.0");
  EXPECT_FALSE(fs::exists(folder_ + "/tenon-cache"));
  const Sample sample = read_sample(made, Split::kTrain, 0);
  const std::string tokens(sample.tokens.begin(), sample.tokens.end());
  EXPECT_EQ(tokens, text.substr(0, 25));
  Ids expected(25, 0);
  std::fill(expected.begin() + 8, expected.end(), 1);
  std::fill(expected.begin() + 20, expected.end(), 2);
  EXPECT_EQ(sample.documents, expected);
  ASSERT_EQ(made.host->messages.size(), 1u);
  EXPECT_THAT(made.host->messages[0], HasSubstr("1 of 4 documents are empty and left out"));
  EXPECT_EQ(made->info().bytes_per_target, 1);
}

TEST_F(DocumentsTest, TextIsEncodedOnceIntoTheCache) {
  const std::string text = "the word <|end|>\n--\n\xFF\xC3\xA9 the \n--\nword";
  const std::string toml =
      text_path("a.txt", text) + kTokenizer +
      "separator_line = '--'\npack = 'documents'\ncontext = 19\nbatch = 1\nval_fraction = 0.0\n";
  Words words;
  auto made = open(toml, &words);
  EXPECT_EQ(words.calls, 3) << "one for each document";
  const Sample sample = read_sample(made, Split::kTrain, 0);
  const Ids read(sample.tokens.begin(), sample.tokens.end());
  Ids expected = words.encode("the word <|end|>\n");
  expected.push_back(Words::kEnd);
  const std::size_t border = expected.size();
  for (const std::int32_t id : words.encode("\xFF\xC3\xA9 the \n")) expected.push_back(id);
  expected.push_back(Words::kEnd);
  expected.push_back(257);
  expected.push_back(Words::kEnd);
  expected.resize(19);
  EXPECT_EQ(read, expected) << "a special token inside the text is text";
  EXPECT_EQ(sample.documents[border - 1], 0);
  EXPECT_EQ(sample.documents[border], 1);
  EXPECT_EQ(sample.targets[border - 2], Words::kEnd) << "the end of a text is predicted";
  EXPECT_EQ(sample.targets[border - 1], -1);
  EXPECT_EQ(made->info().attributes[0].value, 260);
  EXPECT_EQ(made->info().sources[0].sha256, sha256_of(std::as_bytes(std::span(text))));
  EXPECT_EQ(made->info().sources[1].path, "tokenizer");
  EXPECT_EQ(made->info().sources[1].sha256, words.digest());
  auto* const text_of = static_cast<TokenizedText*>(made->query(TokenizedText::kId));
  ASSERT_NE(text_of, nullptr);
  EXPECT_EQ(&text_of->tokenizer(), &words);

  Words again;
  open(toml, &again);
  EXPECT_EQ(again.calls, 0) << "the cache is used";
  Words other(true, 'b');
  open(toml, &other);
  EXPECT_EQ(other.calls, 3) << "another tokenizer has its own tokens";
  open(toml, &again);
  EXPECT_EQ(again.calls, 0) << "beside those of the first";
  write("a.txt", text + "\n--\nthe ");
  auto longer = open(toml, &again);
  EXPECT_EQ(again.calls, 4) << "a text that changed is encoded again";
  // The cache is a file of tokens with an index, and says who wrote it.
  for (const auto& entry : fs::directory_iterator(folder_ + "/tenon-cache")) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".bin")) continue;
    const DocumentIndex index = read_document_index(*make_posix_files(), document_index_path(path));
    EXPECT_TRUE(index.tokenizer == words.digest() || index.tokenizer == other.digest());
    EXPECT_GE(index.first.size(), 3u);
  }
}

TEST_F(DocumentsTest, DamagedCachesAreMadeAgain) {
  const std::string toml = text_path("a.txt", "the word\n--\nword the \n--\nwordword\n") + kTokenizer +
                           "separator_line = '--'\ncontext = 4\nbatch = 1\nval_fraction = 0.0\ncache = '" +
                           folder_ + "/kept'\n";
  Words words;
  auto first = open(toml, &words);
  const Ids expected = read_sample(first, Split::kTrain, 0).tokens;
  for (const std::string& end : {std::string(".bin"), std::string(".documents"), std::string(".source")}) {
    for (const bool remove : {false, true}) {
      for (const auto& entry : fs::directory_iterator(folder_ + "/kept")) {
        if (!entry.path().string().ends_with(end)) continue;
        remove ? static_cast<void>(fs::remove(entry.path()))
               : fs::resize_file(entry.path(), fs::file_size(entry.path()) - 1);
        break;
      }
      words.calls = 0;
      auto made = open(toml, &words);
      EXPECT_EQ(words.calls, 3) << end;
      EXPECT_EQ(read_sample(made, Split::kTrain, 0).tokens, expected);
    }
  }
  write("file", "");
  EXPECT_THAT(refusal(text_path("b.txt", "the word the word") + kTokenizer +
                          "context = 2\nbatch = 1\ncache = '" + folder_ + "/file'",
                      &words),
              HasSubstr("cannot keep its tokens, 2 or 4 bytes each"));
}

TEST_F(DocumentsTest, ATokenizerWithoutAnEndKeepsSeparators) {
  Words words(false);
  const std::string text = "the x\x1Eword\x1E";
  auto made =
      open(text_path("a.txt", text) + kTokenizer +
               "separator_byte = 30\npack = 'documents'\ncontext = 4\nbatch = 1\nval_fraction = 0.0\n",
           &words);
  const Sample sample = read_sample(made, Split::kTrain, 0);
  EXPECT_THAT(sample.tokens, ElementsAre(256, 'x', 30, 257));
  EXPECT_THAT(sample.targets, ElementsAre('x', 30, -1, 30));
}

TEST_F(DocumentsTest, ATextWithoutDocumentsIsEncodedAsOne) {
  Words words;
  auto made = open(
      text_path("a.txt", "the word the word") + kTokenizer + "context = 4\nbatch = 1\nval_fraction = 0.0",
      &words);
  EXPECT_EQ(words.calls, 1);
  EXPECT_THAT(read_sample(made, Split::kTrain, 0).tokens, ElementsAre(256, 257, ' ', 256));
  EXPECT_EQ(made->info().train_samples, 1) << "5 tokens: no end of text is added";
}

TEST_F(DocumentsTest, JsonLinesAreDocuments) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"text\": \"word " + std::to_string(i) + "\", \"id\": 3}\n";
  const std::string common =
      "jsonl_key = 'text'\npack = 'whole'\ncontext = 8\nbatch = 1\nval_fraction = 0.0\norder = "
      "'sequential'\n";
  // Without a tokenizer the tokens are the bytes of the texts.
  auto bytes = open(text_path("a.jsonl", lines) + common);
  const Sample sample = read_sample(bytes, Split::kTrain, 0);
  EXPECT_EQ(std::string(sample.tokens.begin(), sample.tokens.begin() + 5), "word ");
  EXPECT_EQ(bytes->info().attributes[0].value, 256);
  EXPECT_EQ(bytes->info().bytes_per_target, 1);
  Words words;
  auto made = open(text_path("a.jsonl", lines) + kTokenizer + common, &words);
  EXPECT_EQ(words.calls, 20);
  const Sample encoded = read_sample(made, Split::kTrain, 0);
  EXPECT_EQ(encoded.tokens[0], 257);
  // A broken line: named, and left out up to a share.
  const std::string broken = lines + "{\"text\": \"cut";
  EXPECT_THAT(
      refusal(text_path("b.jsonl", broken) + kTokenizer + common, &words),
      HasSubstr("1 of 21 lines are no JSON objects with a text under 'text', first line 21: not valid JSON"));
  auto lenient = open(text_path("b.jsonl", broken) + kTokenizer + common + "max_bad_share = 0.1", &words);
  ASSERT_GE(lenient.host->messages.size(), 3u);
  EXPECT_THAT(lenient.host->messages[2], HasSubstr("1 of 21 lines are no JSON objects"));
  EXPECT_THAT(refusal(text_path("b.jsonl", broken) + kTokenizer + common, &words), HasSubstr("1 of 21 lines"))
      << "also where the cache is there";
}

TEST_F(DocumentsTest, BytesPerTargetAreThoseOfTheTokenizer) {
  Words words;
  const std::string train = "the the the the the the the the the ", val = "word the \xC3\xA9x\n--\nthe y\n";
  auto made = open(text_path("a.txt", train + "\n--\n" + train) + "val_path = '" + write("v.txt", val) +
                       "'\n" + kTokenizer + "separator_line = '--'\ncontext = 3\nbatch = 1",
                   &words);
  // word| ' ' 'the ' e9 x \n END 'the ' y \n END: the first is no target, ends have no bytes.
  EXPECT_DOUBLE_EQ(made->info().bytes_per_target, (1 + 4 + 2 + 1 + 1 + 0 + 4 + 1 + 1 + 0) / 10.0);
  auto packed =
      open(text_path("a.txt", train + "\n--\n" + train) + "val_path = '" + write("v.txt", val) + "'\n" +
               kTokenizer + "separator_line = '--'\ncontext = 12\nbatch = 1\npack = 'whole'",
           &words);
  EXPECT_DOUBLE_EQ(packed->info().bytes_per_target, (1 + 4 + 2 + 1 + 1 + 0 + 1 + 1 + 0) / 9.0)
      << "the first of the second document is no target";
}

TEST_F(DocumentsTest, TokensOfAnotherTokenizerAreRefused) {
  const std::string toml = counting({30, 30}) + "context = 4\nbatch = 1\n";
  const Facts same;
  Facts writer('f'), other('e');
  EXPECT_EQ(refusal(toml + kTokenizer, &writer), "no error");
  const std::string path = folder_ + "/tokens.bin";
  EXPECT_EQ(refusal(toml + kTokenizer, &other),
            "data file '" + path + "' was written by the tokenizer " + std::string(64, 'f') +
                ", as its index '" + path + ".documents' says, and data.tokenizer is " +
                std::string(64, 'e') + "; name the tokenizer that wrote it, or encode the text again");
  auto known = open(toml + kTokenizer, &writer);
  EXPECT_EQ(known->info().bytes_per_target, 2);
  ASSERT_EQ(known->info().sources.size(), 3u);
  EXPECT_EQ(known->info().sources[1].path, path + ".documents");
  EXPECT_NE(known->query(TokenizedText::kId), nullptr);
  // Without a tokenizer the index still gives the vocabulary, and no text is offered.
  auto unknown = open(toml);
  EXPECT_EQ(unknown->info().attributes[0].value, 5000);
  EXPECT_EQ(unknown->info().bytes_per_target, 0);
  EXPECT_EQ(unknown->query(TokenizedText::kId), nullptr);
  counting({20, 30});
  write("tokens.bin", llmc_header(20240520, 1, 2) + bytes_of<std::uint16_t>({1, 2}));
  EXPECT_THAT(refusal(toml), HasSubstr("has 2 tokens, and its index '" + path + ".documents' counts 50"));
  write("tokens.bin.documents", "tenondoc");
  EXPECT_THAT(refusal(toml), HasSubstr("document index '" + path + ".documents': expected at least"));
}

TEST_F(DocumentsTest, MistakesAreNamed) {
  const std::string text = text_path("a.txt", "to be or not to be, that is the question");
  const std::string tokens = counting({30});
  const std::string small = "context = 2\nbatch = 1\n";
  Words words;
  struct Case {
    std::string toml;
    const char* message;
  } const cases[] = {
      {text + small + "pack = 'whole'",
       "pack = \"whole\" needs documents, and '{}/a.txt' has none that are known; set separator_line, "
       "separator_byte or jsonl_key"},
      {text + small + "separator_line = '---'",
       "data file '{}/a.txt': expected documents with the line \"---\" between them, found no such line; "
       "name "
       "the separator of this file"},
      {text + small + "separator_byte = 0\npack = 'documents'",
       "data file '{}/a.txt': expected documents with the byte 0 between them, found no such byte; name the "
       "separator of this file"},
      {text + small + "separator_byte = 0\njsonl_key = 'x'",
       "data.text: expected one of separator_line, separator_byte and jsonl_key, found the last two"},
      {text + small + "separator_line = \"a\\nb\"",
       "data.text: separator_line: expected one line without its end, found several"},
      {tokens + small + "separator_byte = 0",
       "data.text: separator_line, separator_byte and jsonl_key are for texts, and '{}/tokens.bin' is a file "
       "of tokens; leave them out: its documents are those of an index beside it"},
      {counting({1, 1, 1}) + small + "pack = 'whole'\nval_fraction = 0.0",
       "no document to train on has two tokens, one to read and one to predict"},
  };
  for (const Case& c : cases) {
    std::string expected = c.message;
    if (const std::size_t at = expected.find("{}"); at != std::string::npos) expected.replace(at, 2, folder_);
    EXPECT_THAT(refusal(c.toml), HasSubstr(expected));
  }
  EXPECT_THAT(refusal(counting({3, 3}) + "context = 2\nbatch = 9\npack = 'whole'\nval_fraction = 0.0"),
              HasSubstr("batch = 9 is larger than the data, which holds 2 rows of context = 2"));
  write("bare.bin", bytes_of(std::vector<std::uint16_t>(40, 1)));
  EXPECT_THAT(refusal("path = '" + folder_ + "/bare.bin'\n" + small + "pack = 'documents'"),
              HasSubstr("encode the text with `tenon tokenize encode`, which writes an index beside it"));
  const std::string bytes = write("tokenizer.bin", "x");
  EXPECT_EQ(refusal(tokens + small + kTokenizer + "token_bytes = '" + bytes + "'", &words),
            "data.text: token_bytes gives the bytes of tokens whose tokenizer is not at hand, and "
            "data.tokenizer is; leave it out");
}

TEST_F(DocumentsTest, OrderDependsOnSeedAndPlaceAlone) {
  std::vector<int> lengths;
  for (int i = 0; i < 200; ++i) lengths.push_back(2 + 5 * i % 13);
  for (const char* pack : {"documents", "whole"}) {
    for (const char* order : {"random", "shuffled"}) {
      const std::string toml = counting(lengths) + "context = 16\nval_fraction = 0.0\npack = '" + pack +
                               "'\norder = '" + order + "'\nbatch = ";
      auto by_one = open(toml + "1"), by_five = open(toml + "5"), other = open(toml + "1", nullptr, 2);
      int same = 0;
      for (const std::int64_t i : {0, 1, 17, 99, 100, 1000}) {
        const Sample one = read_sample(by_one, Split::kTrain, i),
                     five = read_sample(by_five, Split::kTrain, i);
        EXPECT_EQ(one.tokens, five.tokens);
        EXPECT_EQ(one.documents, five.documents);
        EXPECT_EQ(one.positions, five.positions);
        same += read_sample(other, Split::kTrain, i).tokens == one.tokens ? 1 : 0;
      }
      EXPECT_LT(same, 3) << pack << order << ": another seed, another order";
    }
  }
}

TEST_F(DocumentsTest, PaddingOfABatchCountsForNoLoss) {
  auto made = open(counting({5, 5, 5, 5}) + "pack = 'whole'\ncontext = 4\nbatch = 3\nval_fraction = 0.0");
  std::vector<Ids> memory(4, Ids(12, -7));
  std::vector<TensorView> views;
  for (Ids& field : memory) views.push_back({field.data(), Shape{3, 4}, DType::kI32});
  made->read({.split = Split::kTrain, .first = 0, .count = 1}, views);
  for (std::size_t i = 4; i < 12; ++i) {
    EXPECT_EQ(memory[0][i], 0);
    EXPECT_EQ(memory[1][i], -1);
    EXPECT_EQ(memory[2][i], 0);
    EXPECT_EQ(memory[3][i], 0);
  }
  const std::vector<TensorView> two(views.begin(), views.begin() + 2);
  EXPECT_THAT(error_of([&] { made->read({.first = 0, .count = 1}, two); }, ErrorKind::kRun),
              HasSubstr("expected 4 fields, found 2"));
}

TEST_F(DocumentsTest, ReadingAllocatesNothing) {
  for (const char* pack : {"documents", "whole"}) {
    auto made = open(counting(std::vector<int>(100, 7)) + "context = 16\nbatch = 2\npack = '" +
                     std::string(pack) + "'");
    std::vector<Ids> memory(4, Ids(32, -7));
    std::vector<TensorView> views;
    for (Ids& field : memory) views.push_back({field.data(), Shape{2, 16}, DType::kI32});
    const std::int64_t before = testing::allocation_count();
    for (std::int64_t first = 0; first < 100; first += 2)
      made->read({.split = Split::kTrain, .first = first, .count = 2}, views);
    made->read({.split = Split::kVal, .first = 0, .count = 1}, views);
    EXPECT_EQ(testing::allocation_count(), before) << pack;
  }
}

TEST_F(DocumentsTest, S2S3AMixtureOfRowsKeepsItsSharesAndEpochs) {
  counting(std::vector<int>(40, 9), "a.bin");
  counting(std::vector<int>(90, 5), "b.bin");
  Opened<Mixture> made = open<Mixture>(
      "sources = ['a=" + folder_ + "/a.bin', 'b=" + folder_ +
      "/b.bin']\nweights = ['3/4', '1/4']\ncontext = 8\nbatch = 1\npack = 'whole'\nval_fraction = 0.1");
  // 36 and 81 documents to train on: a row holds one of 8 places, or two of 4.
  EXPECT_EQ(made->info().train_samples, 36 + 41);
  EXPECT_EQ(made->info().val_samples, 4 + 5);
  std::map<std::int32_t, int> rows_of_a;
  int a = 0;
  for (std::int64_t i = 0; i < 96; ++i) {
    const Sample sample = read_sample(made, Split::kTrain, i);
    const bool one = sample.documents.back() == 0;  // a row of `a` is one document
    a += one ? 1 : 0;
    EXPECT_LT(std::abs(a - 0.75 * static_cast<double>(i + 1)), 1) << i;
    if (one) ++rows_of_a[sample.tokens[0]];
  }
  EXPECT_EQ(a, 72) << "two epochs of the 36 rows";
  ASSERT_EQ(rows_of_a.size(), 36u);
  for (const auto& [token, times] : rows_of_a) EXPECT_EQ(times, 2) << token;
}

}  // namespace
}  // namespace tenon::text::documents_test
