// Criteo through the contract: numbers and ids against NumPy, days and halves, skipped lines and errors.
#include "criteo.hpp"
#include "testing/criteo_text.hpp"

#include "base/testing/allocation_count.hpp"
#include "reference/recorded.hpp"

#include <tenon/testing/batches.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <zlib.h>

#include <filesystem>

namespace tenon::ctr::criteo_test {
namespace {

using testing::Batch;
using ::testing::ElementsAre;
using testing::error_of;
using Made = testing::MadeData<Criteo>;

class CriteoTest : public testing::FolderTest {
 protected:
  Made open(const std::string& toml, std::uint64_t seed = 1) {
    Made made = testing::make_data<Criteo>(toml, host_);
    made->open(seed);
    return made;
  }
  /// "path = '...'" of a file of `count` rows, each line `index` of criteo_line.
  std::string rows(const std::string& name, std::uint64_t count, const std::string& behind = "") {
    std::string text;
    for (std::uint64_t i = 0; i < count; ++i) text += criteo_line(4, i);
    return "path = '" + write(name, text + behind) + "'\n";
  }
  static std::vector<std::int32_t> labels(const Made& made, Split split, std::int64_t count) {
    std::vector<std::int32_t> found;
    Batch batch(*made.data);
    for (std::int64_t first = 0; first < count; ++first) {
      made->read({.split = split, .first = first, .count = 1}, batch.views);
      found.push_back(batch.values<std::int32_t>("labels", 0)[0]);
    }
    return found;
  }
  testing::QuietHost host_;
};

TEST_F(CriteoTest, NumbersAndIdsAreThoseOfTheTwoScripts) {
  const testing::Recorded reference("ctr_criteo");
  std::string text, list;
  for (const double byte : reference.values("file")) text += static_cast<char>(byte);
  for (const double rows : reference.values("rows"))
    list += std::to_string(static_cast<std::int64_t>(rows)) + ", ";
  write("rows.txt", text);
  for (const std::string normalisation : {"dlrm", "torchrec"}) {
    for (const std::string categorical : {"hash", "vocabulary"}) {
      // 40 rows in seven days: 35 in the first six, then 3 to test on, then 2 to validate on.
      for (const std::string evaluate : {"test", "validation"}) {
        const Made made = open("path = '" + folder_ + "/rows.txt'\nrows = [" + list +
                               "]\norder = 'sequential'\nbatch = 1\nnormalisation = '" + normalisation +
                               "'\ncategorical = '" + categorical + "'\nevaluate = '" + evaluate + "'");
        ASSERT_EQ(made->info().train_samples, 35);
        const std::int64_t first = evaluate == "test" ? 35 : 38, val = evaluate == "test" ? 3 : 2;
        ASSERT_EQ(made->info().val_samples, val);
        Batch batch(*made.data);
        for (std::int64_t row = 0; row < 35 + val; ++row) {
          const bool train = row < 35;
          const std::int64_t line = train ? row : first + row - 35;
          made->read(
              {.split = train ? Split::kTrain : Split::kVal, .first = train ? row : row - 35, .count = 1},
              batch.views);
          const std::vector<float> dense = batch.values<float>("dense", 0);
          const std::vector<double> expected = reference.row(normalisation, line);
          for (std::size_t i = 0; i < 13; ++i) {
            // Two logarithms in f32 of numbers up to 3e6 + 2, exact before: at most an ulp each.
            EXPECT_NEAR(dense[i], expected[i], 2.4e-7 * std::max(1.0, expected[i]))
                << normalisation << line << ' ' << i;
          }
          const std::vector<std::int32_t> ids = batch.values<std::int32_t>("ids", 0);
          EXPECT_EQ(std::vector<double>(ids.begin(), ids.end()), reference.row(categorical, line)) << line;
          EXPECT_EQ(batch.values<std::int32_t>("labels", 0)[0], reference.values("labels")[line]);
        }
        const std::vector<double> used = reference.values(categorical == "hash" ? "rows" : "vocabulary_rows");
        ASSERT_EQ(made->info().attributes.size(), 26u);
        for (std::size_t table = 0; table < 26; ++table) {
          EXPECT_EQ(made->info().attributes[table].name, "rows." + std::to_string(table));
          EXPECT_EQ(made->info().attributes[table].value, used[table]) << table;
        }
      }
    }
  }
}

TEST_F(CriteoTest, FactsAndTheRecordOfTheChoice) {
  const std::string path = rows("train.txt", 100);
  const Made made = open(path + "batch = 4");
  const DataInfo& info = made->info();
  ASSERT_EQ(info.fields.size(), 3u);
  EXPECT_EQ(info.fields[0].name, "dense");
  EXPECT_EQ(info.fields[0].shape, Shape{13});
  EXPECT_EQ(info.fields[1].name, "ids");
  EXPECT_EQ(info.fields[1].dtype, DType::kI32);
  EXPECT_EQ(info.fields[1].shape, Shape{26});
  EXPECT_EQ(info.fields[2].name, "labels");
  EXPECT_EQ(info.attributes[2].value, 10131227) << "Kaggle's third table";
  std::int64_t sum = 0;
  for (const DataAttribute& attribute : info.attributes) sum += attribute.value;
  EXPECT_EQ(sum, 33762577) << "rows of Kaggle's tables";
  ASSERT_EQ(info.sources.size(), 2u);
  EXPECT_EQ(info.sources[0].path, folder_ + "/train.txt");
  EXPECT_EQ(info.sources[0].sha256, sha256_of_file(*make_posix_files(), folder_ + "/train.txt"));
  EXPECT_EQ(info.sources[1].path.rfind(
                "preprocessing: normalisation = dlrm, categorical = hash, rows = 1460 583 ", 0),
            0u);
  const Made other = open(path + "batch = 4\nnormalisation = 'torchrec'");
  EXPECT_NE(other->info().sources[1].sha256, info.sources[1].sha256)
      << "a resumed run notices another choice";
  EXPECT_EQ(open(path + "batch = 4\nrow_cap = 500")->info().attributes[2].value, 500);
  EXPECT_EQ(open(path + "batch = 4\nrow_cap = 500")->info().attributes[5].value, 24);
  EXPECT_EQ(open(path + "batch = 4\nrows = [70]")->info().attributes[25].value, 70);
}

TEST_F(CriteoTest, DayFilesInPlaceOfDays) {
  rows("day_0", 10);
  rows("day_1", 20);
  rows("day_2", 7);
  const std::string toml = "path = '" + folder_ + "/day_0'\nfurther_days = ['" + folder_ + "/day_1', '" +
                           folder_ + "/day_2']\nbatch = 4\norder = 'sequential'\n";
  const Made validation = open(toml), test = open(toml + "evaluate = 'test'");
  EXPECT_EQ(validation->info().train_samples, 30);
  EXPECT_EQ(validation->info().val_samples, 3);
  EXPECT_EQ(test->info().val_samples, 4);
  EXPECT_EQ(validation->info().sources.size(), 4u);
  // Each file begins with the same lines.
  std::vector<std::int32_t> all;
  for (std::uint64_t i = 0; i < 20; ++i) all.push_back(criteo_line(4, i)[0] - '0');
  std::vector<std::int32_t> expected(all.begin(), all.begin() + 10);
  expected.insert(expected.end(), all.begin(), all.end());
  EXPECT_EQ(labels(validation, Split::kTrain, 30), expected);
  EXPECT_EQ(labels(test, Split::kVal, 4), std::vector<std::int32_t>(all.begin(), all.begin() + 4));
  EXPECT_EQ(labels(validation, Split::kVal, 3), std::vector<std::int32_t>(all.begin() + 4, all.begin() + 7));
}

TEST_F(CriteoTest, ReadsAreFunctionsOfThePosition) {
  for (const std::string categorical : {"hash", "vocabulary"}) {
    const Made made = open(rows("r", 300) + "batch = 16\nrow_cap = 50\ncategorical = '" + categorical + "'");
    testing::expect_reads_agree(*made.data, Split::kTrain, 250, 16);
    testing::expect_reads_agree(*made.data, Split::kVal, 5, 16);
  }
}

TEST_F(CriteoTest, PackedFilesGiveTheSameSamples) {
  const std::string plain = rows("plain", 200);
  std::string text;
  for (std::uint64_t i = 0; i < 200; ++i) text += criteo_line(4, i);
  const gzFile file = ::gzopen((folder_ + "/packed.gz").c_str(), "wb6");
  ASSERT_EQ(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  ::gzclose(file);
  const Made one = open(plain + "batch = 64"), two = open("path = '" + folder_ + "/packed.gz'\nbatch = 64");
  Batch first(*one.data), second(*two.data);
  one->read({.first = 100, .count = 64}, first.views);
  two->read({.first = 100, .count = 64}, second.views);
  EXPECT_EQ(first.memory, second.memory);
}

TEST_F(CriteoTest, MalformedLinesAreLoggedAndRefusedAboveTheShare) {
  const std::string line = criteo_line(4, 0);
  const std::string bad = line.substr(0, line.size() - 1) + "\r\n" + "1\t2\n";
  const std::string toml = rows("train.txt", 998, bad) + "batch = 4\n";
  const std::string found =
      "data file '" + folder_ +
      "/train.txt': 2 of 1000 lines are no rows of Criteo's logs: 1 with a carriage return (line "
      "999), 1 with another number of fields than 40 (line 1000)";
  EXPECT_EQ(error_of([&] { open(toml); }),
            found + ". That is more than max_bad_share = 0.001 allows; mend the file, or raise it");
  const Made made = open(toml + "max_bad_share = 0.002");
  EXPECT_THAT(host_.messages, ElementsAre(found + ". They are left out"));
  EXPECT_EQ(made->info().train_samples + 2 * made->info().val_samples, 998);
}

TEST_F(CriteoTest, RefusalsAreWholeMessages) {
  const std::string line = criteo_line(4, 0);
  const std::string unlabelled = line.substr(2) + line.substr(2);
  const std::string path = folder_ + "/train.txt";
  struct Case {
    std::string bytes, toml, message;
  } const cases[] = {
      {unlabelled, "max_bad_share = 1.0",
       "data file '" + path +
           "': 2 of 2 lines are no rows of Criteo's logs: 2 with 39 fields, without a label (lines 1, 2). It "
           "has no "
           "labels, as Kaggle's test.txt; train on train.txt"},
      {"", "", "data file '" + path + "': expected rows of Criteo's logs, found an empty file"},
      {"x\n", "max_bad_share = 1.0",
       "data file '" + path +
           "': 1 of 1 lines are no rows of Criteo's logs: 1 with another number of fields than 40 (line 1). "
           "None is "
           "left to train on"},
      {line + line + line, "",
       "data.criteo: the last day of '" + path +
           "' has 0 rows; expected at least two, one to test and one to validate on; lower days, or take "
           "more data"},
      {line + line + line, "days = 2",
       "data.criteo: the last day of '" + path +
           "' has 1 rows; expected at least two, one to test and one to validate on; lower days, or take "
           "more data"},
      {line, "rows = [5, 6]",
       "data.criteo: rows: expected one number, or one for each of the 26 tables, from 1 to 2147483647, "
       "found [5, 6]"},
      {line, "rows = [0]",
       "data.criteo: rows: expected one number, or one for each of the 26 tables, from 1 to 2147483647, "
       "found [0]"},
  };
  for (const Case& c : cases) {
    write("train.txt", c.bytes);
    std::filesystem::remove_all(folder_ + "/tenon-cache");
    EXPECT_EQ(error_of([&] { open("path = '" + path + "'\n" + c.toml); }), c.message);
  }
}

TEST_F(CriteoTest, ReadingAllocatesNothing) {
  for (const std::string categorical : {"hash", "vocabulary"}) {
    const Made made = open(rows("r", 300) + "batch = 16\ncategorical = '" + categorical + "'");
    Batch batch(*made.data);
    const std::int64_t before = testing::allocation_count();
    for (std::int64_t first = 0; first < 320; first += 16)
      made->read({.first = first, .count = 16}, batch.views);
    made->read({.split = Split::kVal, .first = 8, .count = 2}, batch.views);
    EXPECT_EQ(testing::allocation_count(), before) << categorical;
  }
}

}  // namespace
}  // namespace tenon::ctr::criteo_test
