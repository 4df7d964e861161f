// Adult through the contract: numbers and ids against NumPy, the split, and that no statistic uses a held-out
// row.
#include "adult.hpp"

#include "base/testing/allocation_count.hpp"
#include "reference/recorded.hpp"

#include <tenon/testing/batches.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <map>

namespace tenon::ctr::adult_test {
namespace {

using testing::Batch;
using testing::error_of;
using Made = testing::MadeData<Adult>;

Made open(const std::string& toml, std::uint64_t seed = 1) {
  Made made = testing::make_data<Adult>("path = '" TENON_SOURCE_DIR "/data/adult/adult.data'\n" + toml);
  made->open(seed);
  return made;
}

std::map<std::string, std::int64_t> attributes(const Dataset& data) {
  std::map<std::string, std::int64_t> found;
  for (const DataAttribute& attribute : data.info().attributes) found[attribute.name] = attribute.value;
  return found;
}

TEST(Adult, FactsOfTheShippedFiles) {
  const Made made = open("");
  const DataInfo& info = made->info();
  ASSERT_EQ(info.fields.size(), 3u);
  EXPECT_EQ(info.fields[0].name, "dense");
  EXPECT_EQ(info.fields[0].dtype, DType::kF32);
  EXPECT_EQ(info.fields[0].shape, Shape{6});
  EXPECT_EQ(info.fields[1].name, "ids");
  EXPECT_EQ(info.fields[1].dtype, DType::kI32);
  EXPECT_EQ(info.fields[1].shape, Shape{8});
  EXPECT_EQ(info.fields[2].name, "labels");
  EXPECT_EQ(info.fields[2].dtype, DType::kI32);
  EXPECT_EQ(info.fields[2].shape, Shape{});
  EXPECT_EQ(info.train_samples, 29305);
  EXPECT_EQ(info.val_samples, 3256);
  const std::vector<double> rows = testing::Recorded("ctr_adult").values("rows");
  const auto found = attributes(*made.data);
  EXPECT_EQ(found.size(), 8u);
  for (std::size_t table = 0; table < 8; ++table) {
    EXPECT_EQ(found.at("rows." + std::to_string(table)), rows[table]) << table;
  }
  ASSERT_EQ(info.sources.size(), 2u) << "the test file is not read";
  EXPECT_EQ(info.sources[0].sha256, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d");
}

TEST(Adult, NumbersIdsAndBucketsAreThoseOfNumPy) {
  const testing::Recorded reference("ctr_adult");
  const Made made = open("evaluate = 'test'\norder = 'sequential'\nbuckets = 16\nbatch = 8");
  EXPECT_EQ(made->info().train_samples, 32561);
  EXPECT_EQ(made->info().val_samples, 16281);
  ASSERT_EQ(made->info().sources.size(), 3u);
  EXPECT_EQ(made->info().sources[1].sha256,
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05");
  const std::vector<double> rows = reference.values("rows");
  for (std::size_t table = 0; table < rows.size(); ++table) {
    EXPECT_EQ(attributes(*made.data).at("rows." + std::to_string(table)), rows[table]) << table;
  }
  Batch batch(*made.data);
  for (const Split split : {Split::kTrain, Split::kVal}) {
    const std::string name = split == Split::kTrain ? "train." : "test.";
    made->read({.split = split, .first = 0, .count = 8}, batch.views);
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::vector<float> dense = batch.values<float>("dense", i);
      const std::vector<double> expected = reference.row(name + "dense", i);
      for (std::size_t k = 0; k < 6; ++k) {
        // Tolerance: one rounding to f32 and the summation order of the mean.
        EXPECT_NEAR(dense[k], expected[k], 1e-7 * std::max(1.0, std::abs(expected[k])))
            << name << i << ' ' << k;
      }
      std::vector<double> ids = reference.row(name + "ids", i);
      const std::vector<double> buckets = reference.row(name + "buckets", i);
      ids.insert(ids.end(), buckets.begin(), buckets.end());
      const std::vector<std::int32_t> found = batch.values<std::int32_t>("ids", i);
      EXPECT_EQ(std::vector<double>(found.begin(), found.end()), ids) << name << i;
      EXPECT_EQ(batch.values<std::int32_t>("labels", i)[0], reference.values(name + "labels")[i]);
    }
  }
}

TEST(Adult, HeldOutRowsAreTheSameForEverySeedAndNeverTrainedOn) {
  // fnlwgt and age together identify nearly all rows; the bytes of the whole row are the key here.
  const auto rows = [](const Made& made, Split split, std::int64_t count) {
    std::vector<std::vector<float>> found;
    Batch batch(*made.data);
    for (std::int64_t first = 0; first < count; first += made->batch()) {
      const std::int64_t now = std::min(made->batch(), count - first);
      made->read({.split = split, .first = first, .count = now}, batch.views);
      for (std::int64_t i = 0; i < now; ++i) {
        std::vector<float> row = batch.values<float>("dense", i);
        for (const std::int32_t id : batch.values<std::int32_t>("ids", i))
          row.push_back(static_cast<float>(id));
        row.push_back(static_cast<float>(batch.values<std::int32_t>("labels", i)[0]));
        found.push_back(row);
      }
    }
    return found;
  };
  const Made one = open(""), other = open("", 9), plain = open("order = 'sequential'");
  const auto held_out = rows(one, Split::kVal, 3256);
  EXPECT_EQ(rows(other, Split::kVal, 3256), held_out);
  auto first = rows(one, Split::kTrain, 29305), second = rows(other, Split::kTrain, 29305);
  EXPECT_NE(first, second) << "the order does depend on the seed";
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  // Statistics come from the train rows: their mean is 0 and their deviation 1, unlike those of all rows.
  double sum = 0, squares = 0, all = 0;
  for (const auto& row : first) {
    sum += row[0];
    squares += static_cast<double>(row[0]) * row[0];
    all += row[0];
  }
  for (const auto& row : held_out) all += row[0];
  const double count = static_cast<double>(first.size());
  // f32 values of about 1, rounded to 6e-8 each.
  EXPECT_NEAR(sum / count, 0, 1e-7);
  EXPECT_NEAR(squares / count, 1, 1e-6);
  EXPECT_GT(std::abs(all / (count + 3256)), 1e-5) << "else this test could not see the difference";
}

TEST(Adult, ReadsAreFunctionsOfThePosition) {
  const Made made = open("batch = 16");
  testing::expect_reads_agree(*made.data, Split::kTrain, 29300, 16);
  testing::expect_reads_agree(*made.data, Split::kVal, 3240, 16);
}

TEST(Adult, PaddingCountsForNoLoss) {
  const Made made = open("batch = 4");
  Batch batch(*made.data);
  made->read({.split = Split::kVal, .first = 3255, .count = 1}, batch.views);
  EXPECT_GE(batch.values<std::int32_t>("labels", 0)[0], 0);
  for (std::int64_t i = 1; i < 4; ++i) {
    EXPECT_EQ(batch.values<std::int32_t>("labels", i)[0], -1);
    EXPECT_EQ(batch.values<std::int32_t>("ids", i), std::vector<std::int32_t>(8, 0));
  }
}

TEST(Adult, ReadingAllocatesNothing) {
  const Made made = open("batch = 64\nbuckets = 8");
  Batch batch(*made.data);
  const std::int64_t before = testing::allocation_count();
  for (std::int64_t first = 0; first < 6400; first += 64) {
    made->read({.first = first, .count = 64}, batch.views);
  }
  EXPECT_EQ(testing::allocation_count(), before);
}

using AdultFiles = testing::FolderTest;

TEST_F(AdultFiles, TooFewRowsAreRefused) {
  const std::string path =
      write("two",
            "39, ?, 7, HS-grad, 9, Divorced, Sales, Wife, White, Male, 0, 0, 40, Cuba, <=50K\n"
            "40, ?, 7, HS-grad, 9, Divorced, Sales, Wife, White, Male, 0, 0, 40, Cuba, >50K\n");
  const auto refusal = [&](const std::string& more) {
    return error_of([&] { testing::make_data<Adult>("path = '" + path + "'\n" + more)->open(1); });
  };
  EXPECT_EQ(refusal(""),
            "data.adult: '" + path +
                "' has 2 rows, and val_fraction = 0.1 leaves 2 to train on and 0 to validate on; "
                "both need at least one");
  EXPECT_EQ(
      refusal("val_fraction = 0.5\nbatch = 2"),
      "data.adult has 2 samples, 1 of them to train on and 1 to validate on: batch = 2 is larger than the "
      "part to train on; lower batch, or take more data");
  EXPECT_EQ(refusal("val_fraction = 0.5\nbatch = 1"), "no error");
}

}  // namespace
}  // namespace tenon::ctr::adult_test
