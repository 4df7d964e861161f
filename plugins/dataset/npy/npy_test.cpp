// Fields, types and shapes, split and order, and errors.
#include "arrays.hpp"

#include "base/testing/allocation_count.hpp"
#include "store/testing/npy_bytes.hpp"

#include <tenon/testing/batches.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::npy::npy_test {
namespace {

using ::testing::ElementsAre;

using testing::Batch;
using testing::error_of;
using testing::npy;
using Made = testing::MadeData<Npy>;

class NpyTest : public testing::FolderTest {
 protected:
  Made open(const std::string& toml, std::uint64_t seed = 1) const {
    Made made = testing::make_data<Npy>(toml);
    made->open(seed);
    return made;
  }
  /// `count` inputs x = {i, i + 0.5} and targets y = i.
  std::string counting(int count, const std::string& prefix = "") const {
    std::vector<float> x;
    std::vector<std::int32_t> y;
    for (int i = 0; i < count; ++i) {
      x.insert(x.end(), {static_cast<float>(i), static_cast<float>(i) + 0.5f});
      y.push_back(i);
    }
    const std::string n = std::to_string(count);
    return prefix + "inputs = ['x=" + write(prefix + "x.npy", npy("<f4", "(" + n + ", 2)", x)) + "']\n" +
           prefix + "targets = ['y=" + write(prefix + "y.npy", npy("<i4", "(" + n + ",)", y)) + "']\n";
  }
  static std::vector<int> samples(const Made& made, Split split, std::int64_t first, std::int64_t count) {
    std::vector<int> found;
    Batch batch(*made.data);
    for (std::int64_t done = 0; done < count; done += made->batch()) {
      const std::int64_t now = std::min(made->batch(), count - done);
      made->read({.split = split, .first = first + done, .count = now}, batch.views);
      for (std::int64_t row = 0; row < now; ++row) {
        const int y = batch.views[1].span<std::int32_t>()[row];
        EXPECT_EQ(batch.views[0].span<float>()[2 * row], static_cast<float>(y));
        EXPECT_EQ(batch.views[0].span<float>()[2 * row + 1], static_cast<float>(y) + 0.5f);
        found.push_back(y);
      }
    }
    return found;
  }
};

TEST_F(NpyTest, FactsComeFromTheFiles) {
  const Made made = open(counting(50) + "batch = 4\nclasses = 50");
  const DataInfo& info = made->info();
  ASSERT_EQ(info.fields.size(), 2u);
  EXPECT_EQ(info.fields[0].name, "x");
  EXPECT_EQ(info.fields[0].dtype, DType::kF32);
  EXPECT_EQ(info.fields[0].shape, Shape{2});
  EXPECT_EQ(info.fields[1].name, "y");
  EXPECT_EQ(info.fields[1].dtype, DType::kI32);
  EXPECT_EQ(info.fields[1].shape, Shape{});
  EXPECT_EQ(info.train_samples, 45);
  EXPECT_EQ(info.val_samples, 5);
  ASSERT_EQ(info.attributes.size(), 1u);
  EXPECT_EQ(info.attributes[0].value, 50);
  ASSERT_EQ(info.sources.size(), 2u);
  EXPECT_EQ(info.sources[1].path, folder_ + "/y.npy");
  EXPECT_EQ(info.sources[1].sha256, sha256_of_file(*make_posix_files(), folder_ + "/y.npy"));
}

TEST_F(NpyTest, EachSampleIsTrainedOnOncePerEpochOrHeldOutAtAnyWorldSize) {
  for (const char* split : {"mixed", "tail"}) {
    const Made made = open(counting(64) + "batch = 4\nval_fraction = 0.25\nsplit = '" + split + "'");
    std::vector<int> all = samples(made, Split::kTrain, 0, 48);
    EXPECT_NE(samples(made, Split::kTrain, 48, 48), all) << "another epoch, another order";
    EXPECT_EQ(samples(made, Split::kTrain, 17, 20), std::vector<int>(all.begin() + 17, all.begin() + 37))
        << "resume";
    for (const int world : {1, 2, 4}) {
      std::vector<int> seen;
      for (std::int64_t step = 0; step < 12 / world; ++step) {
        for (int rank = 0; rank < world; ++rank) {
          const std::vector<int> mine = samples(made, Split::kTrain, (step * world + rank) * 4, 4);
          seen.insert(seen.end(), mine.begin(), mine.end());
        }
      }
      EXPECT_EQ(seen, all);
    }
    const std::vector<int> held_out = samples(made, Split::kVal, 0, 16);
    all.insert(all.end(), held_out.begin(), held_out.end());
    std::sort(all.begin(), all.end());
    for (int i = 0; i < 64; ++i) EXPECT_EQ(all[i], i);
  }
}

TEST_F(NpyTest, ValidationFilesInPlaceOfAShare) {
  const Made made = open(counting(10) + counting(3, "val_") + "batch = 2");
  EXPECT_EQ(made->info().train_samples, 10);
  EXPECT_EQ(made->info().val_samples, 3);
  EXPECT_EQ(made->info().sources.size(), 4u);
  EXPECT_THAT(samples(made, Split::kVal, 0, 3), ElementsAre(0, 1, 2));
}

TEST_F(NpyTest, TypesAndShapesAreConverted) {
  const std::string b = write("b.npy", npy<std::uint8_t>("|b1", "(2, 2, 2)", {1, 0, 0, 1, 1, 1, 0, 0})),
                    d = write("d.npy", npy<double>("<f8", "(2, 1)", {0.1, -2.5})),
                    l = write("l.npy", npy<std::int64_t>("<i8", "(2,)", {-1, 3})),
                    u = write("u.npy", npy<std::uint8_t>("|u1", "(2, 3)", {0, 128, 255, 1, 2, 3}));
  const Made made = open("inputs = ['b=" + b + "', 'd=" + d + "', 'u=" + u + "']\ntargets = ['l=" + l +
                         "']\ntypes = ['b=f32', 'd=f32', 'u=i64', 'l=i32']\nshapes = ['b=1x2x2', 'u=3x1']\n"
                         "batch = 2\nval_fraction = 0.0\norder = 'sequential'\nclasses = 4");
  EXPECT_EQ(made->info().fields[0].shape, (Shape{1, 2, 2}));
  EXPECT_EQ(made->info().fields[2].shape, (Shape{3, 1}));
  Batch batch(*made.data);
  made->read({.first = 0, .count = 2}, batch.views);
  EXPECT_THAT(batch.values<float>(0), ElementsAre(1, 0, 0, 1, 1, 1, 0, 0));
  EXPECT_THAT(batch.values<float>(1), ElementsAre(0.1f, -2.5f));
  EXPECT_THAT(batch.values<std::int64_t>(2), ElementsAre(0, 128, 255, 1, 2, 3));
  EXPECT_THAT(batch.values<std::int32_t>(3), ElementsAre(-1, 3));
}

TEST_F(NpyTest, ASampleLargerThanTheBufferIsConvertedWhole) {
  std::vector<std::uint8_t> pixels(2 * 20000);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7 % 251);
  const Made made = open("inputs = ['x=" + write("x.npy", npy("|u1", "(2, 20000)", pixels)) +
                         "']\ntypes = ['x=f64']\nbatch = 2\nval_fraction = 0.0\norder = 'sequential'");
  Batch batch(*made.data);
  made->read({.first = 0, .count = 2}, batch.views);
  EXPECT_EQ(batch.values<double>(0), std::vector<double>(pixels.begin(), pixels.end()));
}

TEST_F(NpyTest, PaddingCountsForNoLoss) {
  const std::string x = write("x.npy", npy<float>("<f4", "(2,)", {1, 2})),
                    y = write("y.npy", npy<double>("<f8", "(2,)", {1, 2})),
                    z = write("z.npy", npy<std::int64_t>("<i8", "(2,)", {1, 2}));
  const Made made = open("inputs = ['x=" + x + "']\ntargets = ['y=" + y + "', 'z=" + z +
                         "']\nbatch = 2\nval_fraction = 0.0\norder = 'sequential'");
  Batch batch(*made.data);
  made->read({.first = 0, .count = 1}, batch.views);
  EXPECT_THAT(batch.values<float>(0), ElementsAre(1, 0));
  EXPECT_EQ(batch.values<double>(1)[0], 1);
  EXPECT_TRUE(std::isnan(batch.values<double>(1)[1])) << "a real target that no loss may count is NaN";
  EXPECT_THAT(batch.values<std::int64_t>(2), ElementsAre(1, -1));
}

TEST_F(NpyTest, RefusalsAreWholeMessages) {
  const std::string x = write("x.npy", npy<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6})),
                    y = write("y.npy", npy<std::int64_t>("<i8", "(3,)", {0, 7, -1})),
                    two = write("two.npy", npy<float>("<f4", "(2, 2)", {1, 2, 3, 4})),
                    wide = write("wide.npy", npy<float>("<f4", "(3, 3)", std::vector<float>(9))),
                    big = write("big.npy", npy<std::int64_t>("<i8", "(3,)", {1, std::int64_t{1} << 31, 0})),
                    bad = write("bad.npy", npy<std::uint8_t>("|b1", "(3,)", {0, 1, 2}));
  const std::string in = "val_fraction = 0.0\nbatch = 1\ninputs = ['x=" + x + "']\n";
  struct Case {
    std::string toml, message;
  } const cases[] = {
      {in + "targets = ['y=" + two + "']",
       "data files '" + x + "' and '" + two + "': expected one number of samples, found 3 and 2"},
      {in + "targets = ['y=" + y + "']\nclasses = 7",
       "data file '" + y +
           "': target 7 at element 1 is neither -1 (ignored) nor one of the 7 classes; set classes to their "
           "number"},
      {in + "targets = ['y=" + big + "']\ntypes = ['y=i32']",
       "data file '" + big + "': 2147483648 at element 1 does not fit into i32"},
      {in + "targets = ['y=" + bad + "']",
       "data file '" + bad + "': element 2 of type bool has the byte 2; expected 0 or 1"},
      {in + "types = ['x=i32']",
       "data file '" + x +
           "': its elements are f32 and cannot become i32 without loss; round them before they are written"},
      {in + "types = ['x=f16']", "data.npy: types: expected f32, f64, i32, i64 or u8, found 'f16'"},
      {in + "types = ['z=f32']", "data.npy: types: there is no field 'z'"},
      {in + "shapes = ['x=3']",
       "data file '" + x + "': a sample of shape [2] has 2 elements; shapes asks for 3, which has 3"},
      {in + "shapes = ['x=2x']",
       "data.npy: shapes: expected extents such as 1x16x16 (at most 7), found '2x'"},
      {in + "targets = ['x=" + y + "']", "data.npy: 'x' is both an input and a target"},
      {in + "targets = ['" + y + "']", "data.npy: targets: expected \"name=file.npy\", found \"" + y + "\""},
      {"inputs = []", "data.npy: inputs: expected at least one \"name=file.npy\", found none"},
      {"inputs = ['x=" + x + "', 'x=" + y + "']", "data.npy: inputs: 'x' stands there twice"},
      {in + "val_inputs = ['z=" + x + "']",
       "data.npy: val_inputs: expected the names of inputs in their order (x), found z"},
      {in + "targets = ['y=" + y + "']\nval_inputs = ['x=" + x + "']",
       "data.npy: val_targets: expected the names of targets in their order (y), found none"},
      {in + "val_inputs = ['x=" + wide + "']",
       "data files '" + x + "' and '" + wide +
           "': expected one type and sample shape, found f32 [2] and f32 [3]"},
      {"inputs = ['x=" + x + "']\nbatch = 4\nval_fraction = 0.0",
       "data.npy has 3 samples, 3 of them to train on and 0 to validate on: batch = 4 is larger than the "
       "part to "
       "train on; lower batch or val_fraction, or take more data"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of([&] { open(c.toml); }), c.message);
  EXPECT_THAT(error_of([&] { open("inputs = ['x=no/such.npy']"); }),
              ::testing::StartsWith("test.toml:1:11: option 'inputs' of data.npy: cannot find 'no/such.npy'; "
                                    "tried\n  "));
}

TEST_F(NpyTest, ReadingAllocatesNothing) {
  for (const char* types : {"", "types = ['x=f64', 'y=i64']\n"}) {
    const Made made = open(counting(100) + types + "batch = 4");
    Batch batch(*made.data);
    const std::int64_t before = testing::allocation_count();
    for (std::int64_t first = 0; first < 400; first += 4)
      made->read({.first = first, .count = 4}, batch.views);
    EXPECT_EQ(testing::allocation_count(), before);
  }
}

}  // namespace
}  // namespace tenon::npy::npy_test
