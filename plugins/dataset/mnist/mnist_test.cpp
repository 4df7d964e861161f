// The shipped images against PyTorch, the split and the order, and errors.
#include "test_support.hpp"

#include "base/testing/allocation_count.hpp"
#include "reference/recorded.hpp"
#include "test_paths.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

namespace tenon::mnist {
namespace {

using ::testing::ElementsAre;

class MnistTest : public FileTest {
 protected:
  /// `count` images of 2 x 3, image i all bytes i, label i % 10.
  std::string counting_set(int count, const std::string& prefix = "", const std::string& name = "") const {
    std::string pixels, labels;
    for (int i = 0; i < count; ++i) {
      pixels += std::string(6, static_cast<char>(i));
      labels += static_cast<char>(i % 10);
    }
    const auto size = static_cast<std::uint32_t>(count);
    return prefix + "images = '" + write(name + "images", idx({size, 2, 3}, pixels)) + "'\n" + prefix +
           "labels = '" + write(name + "labels", idx({size}, labels)) + "'\n";
  }
  static Made open(const std::string& toml, std::uint64_t seed = 1) {
    Made made = make_mnist(toml);
    made->open(seed);
    return made;
  }
  /// Returns the images of a counting set in samples first ...; checks the label and every pixel.
  static std::vector<int> images(const Made& made, Split split, std::int64_t first, std::int64_t count) {
    std::vector<int> found;
    Batch batch(*made.data);
    for (std::int64_t done = 0; done < count; done += made->batch()) {
      const std::int64_t now = std::min(made->batch(), count - done);
      made->read({.split = split, .first = first + done, .count = now}, batch.views);
      for (std::int64_t row = 0; row < now; ++row) {
        const std::vector<float> image = batch.image(row);
        EXPECT_TRUE(std::all_of(image.begin(), image.end(), [&](float value) { return value == image[0]; }));
        EXPECT_EQ(batch.labels[row], static_cast<int>(image[0]) % 10);
        found.push_back(static_cast<int>(image[0]));
      }
    }
    return found;
  }
};

std::string shipped(const std::string& more) {
  return "images = '" TENON_SOURCE_DIR
         "/data/mnist/t10k-images-idx3-ubyte.gz'\n"
         "labels = '" TENON_SOURCE_DIR "/data/mnist/t10k-labels-idx1-ubyte.gz'\n" +
         more;
}

TEST_F(MnistTest, FactsOfTheShippedImages) {
  const Made made = open(shipped(""));
  const DataInfo& info = made->info();
  ASSERT_EQ(info.fields.size(), 2u);
  EXPECT_EQ(info.fields[0].name, "image");
  EXPECT_EQ(info.fields[0].dtype, DType::kF32);
  EXPECT_EQ(info.fields[0].shape, (Shape{1, 28, 28}));
  EXPECT_EQ(info.fields[1].name, "label");
  EXPECT_EQ(info.fields[1].dtype, DType::kI32);
  EXPECT_EQ(info.fields[1].shape, Shape{});
  ASSERT_EQ(info.attributes.size(), 1u);
  EXPECT_EQ(info.attributes[0].name, "classes");
  EXPECT_EQ(info.attributes[0].value, 10);
  EXPECT_EQ(info.train_samples, 8500);
  EXPECT_EQ(info.val_samples, 1500);
  EXPECT_EQ(info.tokens_per_sample, 1);
  // As data/SOURCES.md has them.
  ASSERT_EQ(info.sources.size(), 2u);
  EXPECT_EQ(info.sources[0].sha256, "ba05d2d6e06f59dd97d2d5378250478bb5c9b64296a5c2681700569121e3a2d7");
  EXPECT_EQ(info.sources[1].sha256, "94088eab8a64f51a9b34cc9716f54b6548ef8b2fd16ada6d1575091b933dbf4b");
}

TEST_F(MnistTest, ImagesAndLabelsEqualThoseReadByPyTorch) {
  const testing::Recorded reference("data_formats");
  const Made made = open(shipped("batch = 1\nval_fraction = 0.0\norder = 'sequential'\nsplit = 'tail'"));
  Batch batch(*made.data);
  std::vector<std::int64_t> counts(10, 0);
  const std::vector<double> labels = reference.values("mnist.labels");
  const std::int64_t chosen[] = {0, 4999, 9999};
  for (std::size_t i = 0; i < 3; ++i) {
    made->read({.first = chosen[i], .count = 1}, batch.views);
    EXPECT_EQ(batch.labels[0], labels[i]);
    const std::vector<double> expected = reference.row("mnist.images", static_cast<std::int64_t>(i));
    ASSERT_EQ(batch.images.size(), expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k)
      ASSERT_EQ(batch.images[k], expected[k]) << i << ": " << k;
  }
  for (std::int64_t i = 0; i < 10000; ++i) {
    made->read({.first = i, .count = 1}, batch.views);
    ++counts[batch.labels[0]];
  }
  EXPECT_EQ(std::vector<double>(counts.begin(), counts.end()), reference.values("mnist.class_counts"));
}

TEST_F(MnistTest, EveryByteIsScaledAsByTorchvision) {
  const testing::Recorded reference("data_formats");
  const std::string toml =
      counting_set(256) + "batch = 1\nval_fraction = 0.0\norder = 'sequential'\nsplit = 'tail'\n";
  for (const char* scale : {"unit", "standard", "raw"}) {
    const Made made = open(toml + "scale = '" + scale + "'");
    Batch batch(*made.data);
    for (int byte = 0; byte < 256; ++byte) {
      made->read({.first = byte, .count = 1}, batch.views);
      const double expected =
          scale == std::string("raw") ? byte : reference.values(std::string("mnist.") + scale)[byte];
      EXPECT_EQ(batch.images[5], expected) << scale << ' ' << byte;
    }
  }
}

TEST_F(MnistTest, EachImageIsTrainedOnOncePerEpochOrHeldOut) {
  for (const char* split : {"mixed", "tail"}) {
    const std::string toml = counting_set(100) + "batch = 7\nscale = 'raw'\nsplit = '" + split + "'\n";
    const Made made = open(toml);
    ASSERT_EQ(made->info().train_samples, 85);
    const std::vector<int> held_out = images(made, Split::kVal, 0, 15);
    std::set<std::vector<int>> orders;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> all = images(made, Split::kTrain, epoch * 85, 85);
      orders.insert(all);
      all.insert(all.end(), held_out.begin(), held_out.end());
      std::sort(all.begin(), all.end());
      for (int i = 0; i < 100; ++i) EXPECT_EQ(all[i], i) << split;
    }
    EXPECT_EQ(orders.size(), 3u) << "each epoch has its order";
    // Another seed holds out the same validation images.
    EXPECT_EQ(images(open(toml, 99), Split::kVal, 0, 15), held_out);
    EXPECT_NE(images(open(toml, 99), Split::kTrain, 0, 85), images(made, Split::kTrain, 0, 85));
    const bool is_tail = std::is_sorted(held_out.begin(), held_out.end()) && held_out[0] == 85;
    EXPECT_EQ(is_tail, split == std::string("tail"));
  }
}

TEST_F(MnistTest, SequentialIsTheOrderOfTheFile) {
  for (const char* split : {"mixed", "tail"}) {
    for (const char* share : {"0.0", "0.01", "0.15", "0.9"}) {
      const Made made = open(counting_set(100) + "batch = 4\nscale = 'raw'\norder = 'sequential'\nsplit = '" +
                             split + "'\nval_fraction = " + share);
      const auto trained = static_cast<int>(made->info().train_samples);
      const auto held = static_cast<int>(made->info().val_samples);
      const std::vector<int> order = images(made, Split::kTrain, 0, trained);
      EXPECT_TRUE(std::is_sorted(order.begin(), order.end())) << split << " " << share;
      EXPECT_EQ(images(made, Split::kTrain, trained, trained), order) << "every epoch";
      // Together with the held-out images they are all samples.
      std::vector<int> all = images(made, Split::kVal, 0, held);
      all.insert(all.end(), order.begin(), order.end());
      std::sort(all.begin(), all.end());
      for (int i = 0; i < 100; ++i) ASSERT_EQ(all[i], i) << split << " " << share;
    }
  }
}

TEST_F(MnistTest, OrderDependsOnSeedAndPlaceAlone) {
  for (const char* order : {"shuffled", "random", "sequential"}) {
    const std::string toml = counting_set(100) + "scale = 'raw'\norder = '" + order + "'\nbatch = ";
    const std::vector<int> all = images(open(toml + "1"), Split::kTrain, 0, 256);
    const Made made = open(toml + "8");
    EXPECT_EQ(images(made, Split::kTrain, 0, 256), all);
    EXPECT_EQ(images(made, Split::kTrain, 133, 50), std::vector<int>(all.begin() + 133, all.begin() + 183));
    // Ranks read batches in turn; together they see the one order at any number of ranks.
    for (const int world : {1, 2, 4, 8}) {
      std::vector<int> seen;
      for (std::int64_t step = 0; step < 32 / world; ++step) {
        for (int rank = 0; rank < world; ++rank) {
          const std::vector<int> mine = images(made, Split::kTrain, (step * world + rank) * 8, 8);
          seen.insert(seen.end(), mine.begin(), mine.end());
        }
      }
      EXPECT_EQ(seen, all) << order << ", world of " << world;
    }
  }
}

TEST_F(MnistTest, ValidationFilesInPlaceOfAShare) {
  const Made made =
      open(counting_set(20) + counting_set(5, "val_", "v") + "batch = 4\nscale = 'raw'\nval_fraction = 0.5");
  EXPECT_EQ(made->info().train_samples, 20);
  EXPECT_EQ(made->info().val_samples, 5);
  EXPECT_EQ(made->info().sources.size(), 4u);
  EXPECT_THAT(images(made, Split::kVal, 0, 5), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(MnistTest, PaddingCountsForNoLoss) {
  const Made made = open(counting_set(100) + "batch = 4\nscale = 'standard'");
  Batch batch(*made.data);
  made->read({.split = Split::kVal, .first = 14, .count = 1}, batch.views);
  EXPECT_GE(batch.labels[0], 0);
  EXPECT_THAT(std::vector<std::int32_t>(batch.labels.begin() + 1, batch.labels.end()),
              ElementsAre(-1, -1, -1));
  EXPECT_TRUE(
      std::all_of(batch.images.begin() + 6, batch.images.end(), [](float value) { return value == 0; }));
}

TEST_F(MnistTest, OddSizesAndNames) {
  const Made made =
      open("images = '" + write("i", idx({4, 27, 1}, std::string(108, 'x'))) + "'\nlabels = '" +
           write("l", idx({4}, std::string(4, '\0'))) +
           "'\nbatch = 1\nval_fraction = 0.25\nimage_field = 'inputs'\nlabel_field = 'targets'\nclasses = 1");
  EXPECT_EQ(made->info().fields[0].name, "inputs");
  EXPECT_EQ(made->info().fields[0].shape, (Shape{1, 27, 1}));
  EXPECT_EQ(made->info().fields[1].name, "targets");
  EXPECT_EQ(made->info().train_samples, 3);
  EXPECT_EQ(made->info().attributes[0].value, 1);
}

TEST_F(MnistTest, RefusalsAreWholeMessages) {
  const std::string images = write("i", idx({4, 2, 3}, std::string(24, 'x'))),
                    labels = write("l", idx({4}, std::string("\0\3\11\2", 4))),
                    three = write("three", idx({3}, "\1\2\3")),
                    wide = write("wide", idx({4, 3, 2}, std::string(24, 'x')));
  const std::string both = "images = '" + images + "'\nlabels = '" + labels + "'\n";
  struct Case {
    std::string toml, message;
  } const cases[] = {
      {"images = '" + images + "'\nlabels = '" + three + "'",
       "data files '" + images + "' and '" + three +
           "': expected one label per image, found 4 images and 3 labels"},
      {"images = '" + labels + "'\nlabels = '" + images + "'",
       "data file '" + labels +
           "': expected an IDX file of images, magic number 0x00000803; found 0x00000801 (a file of labels)"},
      {both + "classes = 9",
       "data file '" + labels +
           "': label 9 at position 2 lies outside of the 9 classes; set classes to their number"},
      {both + "val_images = '" + wide + "'\nval_labels = '" + labels + "'",
       "data files '" + images + "' and '" + wide + "': expected images of one size, found 2 x 3 and 3 x 2"},
      {both + "val_images = '" + images + "'",
       "data.mnist: val_images is set without val_labels; validation files come in pairs"},
      {both + "val_labels = '" + labels + "'",
       "data.mnist: val_labels is set without val_images; validation files come in pairs"},
      {both + "batch = 4\nval_fraction = 0.25",
       "data.mnist has 4 samples, 3 of them to train on and 1 to validate on: batch = 4 is larger than the "
       "part to train on; lower batch or val_fraction, or take more data"},
      {both + "batch = 2\nval_fraction = 0.1",
       "data.mnist has 4 samples, 4 of them to train on and 0 to validate on: validation needs at least one "
       "sample; raise val_fraction, or set it to 0 to train without validation"},
      {both + "image_field = 'x'\nlabel_field = 'x'",
       "data.mnist: image_field = \"x\" and label_field = \"x\": expected two different names"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of([&] { open(c.toml); }), c.message);
}

TEST_F(MnistTest, ReadChecksItsArguments) {
  const Made made = open(counting_set(20) + "batch = 4\nval_fraction = 0.25");
  Batch batch(*made.data);
  const auto message = [&](const BatchRequest& request, std::span<const TensorView> views) {
    try {
      made->read(request, views);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRun);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(
      message({.first = 0, .count = 5}, batch.views),
      "data.mnist: samples 0 to 5 of the train split were asked for; there are 15 per epoch, at most 4 at "
      "once");
  EXPECT_EQ(
      message({.split = Split::kVal, .first = 4, .count = 2}, batch.views),
      "data.mnist: samples 4 to 6 of the val split were asked for; there are 5 per pass, at most 4 at once");
  EXPECT_EQ(
      message({.first = -1, .count = 1}, batch.views),
      "data.mnist: samples -1 to 0 of the train split were asked for; there are 15 per epoch, at most 4 "
      "at once");
  std::vector<TensorView> wrong = batch.views;
  wrong[1].dtype = DType::kI64;
  const std::string expected =
      "data.mnist: expected image f32 [4, 1, 2, 3], label i32 [4] in host memory, found ";
  EXPECT_EQ(message({.first = 0, .count = 1}, wrong), expected + "f32 [4, 1, 2, 3], i64 [4]");
  wrong = batch.views;
  wrong[0].shape = Shape{3, 1, 2, 3};
  EXPECT_EQ(message({.first = 0, .count = 1}, wrong), expected + "f32 [3, 1, 2, 3], i32 [4]");
  EXPECT_EQ(message({.first = 0, .count = 1}, {}), expected + "no fields");
}

TEST_F(MnistTest, ReadingAllocatesNothing) {
  for (const char* order : {"shuffled", "random", "sequential"}) {
    const Made made = open(counting_set(100) + "batch = 4\norder = '" + order + "'");
    Batch batch(*made.data);
    const std::int64_t before = testing::allocation_count();
    for (std::int64_t first = 0; first < 400; first += 4)
      made->read({.first = first, .count = 4}, batch.views);
    made->read({.split = Split::kVal, .first = 14, .count = 1}, batch.views);
    EXPECT_EQ(testing::allocation_count(), before) << order;
  }
}

}  // namespace
}  // namespace tenon::mnist
