// Standardised fields: statistics of the training values alone, by the textbook's two passes.
#include "arrays.hpp"

#include "store/testing/npy_bytes.hpp"

#include <tenon/testing/batches.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <cmath>

namespace tenon::npy::standardise_test {
namespace {

using testing::Batch;
using testing::error_of;
using testing::npy;
using Made = testing::MadeData<Npy>;

class StandardiseTest : public testing::FolderTest {
 protected:
  static Made open(const std::string& toml) {
    Made made = testing::make_data<Npy>(toml);
    made->open(1);
    return made;
  }
  /// Samples of two values: 1000 + i^2 / 10 and half of that.
  std::string squares(int count, const std::string& prefix = "") const {
    std::vector<float> x;
    for (int i = 0; i < count; ++i)
      for (const double factor : {1.0, 0.5}) x.push_back(static_cast<float>(factor * (1000 + i * i / 10.0)));
    return prefix +
           "inputs = ['x=" + write(prefix + "x.npy", npy("<f4", "(" + std::to_string(count) + ", 2)", x)) +
           "']\n";
  }
  /// Returns all values of a split, as fields hold them.
  static std::vector<double> values(const Made& made, Split split) {
    const DataInfo& info = made->info();
    const std::int64_t count = split == Split::kTrain ? info.train_samples : info.val_samples;
    std::vector<double> all;
    Batch batch(*made.data);
    for (std::int64_t s = 0; s < count; ++s) {
      made->read({.split = split, .first = s, .count = 1}, batch.views);
      for (int i = 0; i < 2; ++i) all.push_back(batch.views[0].span<float>()[i]);
    }
    return all;
  }
};

struct Statistics {
  double mean = 0, deviation = 0;
};
Statistics two_passes(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Statistics s;
  for (const double v : values) s.mean += v / n;
  for (const double v : values) s.deviation += (v - s.mean) * (v - s.mean) / n;
  s.deviation = std::sqrt(s.deviation);
  return s;
}

TEST_F(StandardiseTest, TakesMeanAndDeviationOfWhatIsTrainedOn) {
  for (const char* split : {"mixed", "tail"}) {
    const std::string toml = squares(20) + "batch = 4\nval_fraction = 0.25\nsplit = '" + split + "'\n";
    const Made plain = open(toml), standard = open(toml + "standardise = ['x']");
    const auto train = values(plain, Split::kTrain), val = values(plain, Split::kVal);
    ASSERT_EQ(train.size(), 30u);
    const Statistics s = two_passes(train);
    const DataField& field = standard->info().fields[0];
    EXPECT_NEAR(field.offset, s.mean, 1e-9 * s.mean);
    EXPECT_NEAR(field.scale, s.deviation, 1e-9 * s.deviation);
    EXPECT_EQ(plain->info().fields[0].offset, 0);
    EXPECT_EQ(plain->info().fields[0].scale, 1);
    for (const auto& [part, before] : {std::pair{Split::kTrain, &train}, std::pair{Split::kVal, &val}}) {
      const auto after = values(standard, part);
      for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_NEAR(after[i], ((*before)[i] - s.mean) / s.deviation, 1e-6) << split << " " << i;
    }
    const Statistics now = two_passes(values(standard, Split::kTrain));
    EXPECT_NEAR(now.mean, 0, 1e-6);
    EXPECT_NEAR(now.deviation, 1, 1e-6);
  }
}

TEST_F(StandardiseTest, ValidationFilesTakeTheStatisticsOfTheOthers) {
  const std::string toml = squares(20) + squares(3, "val_") + "batch = 4\n";
  const Made plain = open(toml), standard = open(toml + "standardise = ['x']");
  const Statistics s = two_passes(values(plain, Split::kTrain));
  const auto before = values(plain, Split::kVal), after = values(standard, Split::kVal);
  ASSERT_EQ(after.size(), 6u);
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_NEAR(after[i], (before[i] - s.mean) / s.deviation, 1e-6);
}

TEST_F(StandardiseTest, MissingValuesStayMissing) {
  const float nan = std::nanf("");
  const std::string file =
      write("x.npy", npy("<f4", "(4, 2)", std::vector<float>{1, nan, 3, 1, 3, nan, 1, 3}));
  const Made made = open("inputs = ['x=" + file + "']\nbatch = 1\nval_fraction = 0\nstandardise = ['x']");
  EXPECT_EQ(made->info().fields[0].offset, 2);
  EXPECT_EQ(made->info().fields[0].scale, 1);
  Batch batch(*made.data);
  int missing = 0;
  for (std::int64_t s = 0; s < 4; ++s) {
    made->read({.split = Split::kTrain, .first = s, .count = 1}, batch.views);
    for (const float value : batch.views[0].span<float>()) {
      if (std::isnan(value)) {
        ++missing;
      } else {
        EXPECT_EQ(std::abs(value), 1);
      }
    }
  }
  EXPECT_EQ(missing, 2);
}

TEST_F(StandardiseTest, RefusesWhatHasNoDeviation) {
  const std::string same = write("same.npy", npy("<f4", "(4, 1)", std::vector<float>(4, 7.0f)));
  EXPECT_EQ(error_of([&] {
              open("inputs = ['x=" + same + "']\nbatch = 1\nstandardise = ['x']\nval_fraction = 0");
            }),
            "data file '" + same +
                "': standardise: expected values that differ, found mean 7 and standard deviation 0 "
                "over 4 values of 4 samples");
  EXPECT_EQ(error_of([&] { open(squares(20) + "batch = 4\nstandardise = ['y']"); }),
            "data.npy: standardise: expected real fields (x), found 'y'");
}

}  // namespace
}  // namespace tenon::npy::standardise_test
