// Windows: predictions, order, and errors.
#include "test_paths.hpp"
#include "test_support.hpp"

#include "base/testing/allocation_count.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace tenon::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextTest : public FileTest {
 protected:
  /// Tokens 0, 1, 2, ... so that a token is its own position.
  std::string counting_file(std::int32_t count) const {
    std::vector<std::uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
    return write("counting.bin", bytes_of(tokens));
  }

  Made open(const std::string& toml, std::uint64_t seed = 1) const {
    Made made = make_text(toml);
    made->open(seed);
    return made;
  }

  /// Begins of `count` train windows, checked to be consecutive tokens with targets shifted by one.
  static std::vector<std::int32_t> begins(const Made& made, std::int64_t first, std::int64_t count) {
    std::vector<std::int32_t> found;
    Batch batch(*made.text);
    for (std::int64_t done = 0; done < count; done += made->batch()) {
      const std::int64_t now = std::min(made->batch(), count - done);
      made->read({.split = Split::kTrain, .first = first + done, .count = now}, batch.views);
      for (std::int64_t i = 0; i < now; ++i) {
        const std::vector<std::int32_t> tokens = batch.row(batch.tokens, i),
                                        targets = batch.row(batch.targets, i);
        for (std::size_t k = 0; k < tokens.size(); ++k) {
          EXPECT_EQ(tokens[k], tokens[0] + static_cast<std::int32_t>(k));
          EXPECT_EQ(targets[k], tokens[k] + 1);
        }
        found.push_back(tokens[0]);
      }
    }
    return found;
  }

  std::string common(std::int32_t tokens, const std::string& more) const {
    return "path = '" + counting_file(tokens) + "'\n" + more;
  }
};

TEST_F(TextTest, Facts) {
  const Made made = open(common(1000, "context = 8\nbatch = 4\nval_fraction = 0.1"));
  const DataInfo& info = made->info();
  ASSERT_EQ(info.fields.size(), 2u);
  EXPECT_EQ(info.fields[0].name, "tokens");
  EXPECT_EQ(info.fields[1].name, "targets");
  EXPECT_EQ(info.fields[1].shape, Shape{8});
  EXPECT_EQ(info.fields[0].dtype, DType::kI32);
  ASSERT_EQ(info.attributes.size(), 1u);
  EXPECT_EQ(info.attributes[0].name, "vocabulary");
  EXPECT_EQ(info.attributes[0].value, 50257);
  EXPECT_EQ(info.train_samples, 112);  // (900 - 1) / 8
  EXPECT_EQ(info.val_samples, 13);     // 99 predictions in windows of 8
  EXPECT_EQ(info.tokens_per_sample, 8);
  ASSERT_EQ(info.sources.size(), 1u);
  EXPECT_EQ(info.sources[0].sha256.size(), 64u);
}

TEST_F(TextTest, APartOfTheTextIsTrainedOnAndTheSameTailHeldOut) {
  const Made made = open(common(1000, "context = 8\nbatch = 4\nval_fraction = 0.1\ntrain_fraction = 0.5"));
  EXPECT_EQ(made->info().train_samples, 56);  // (450 - 1) / 8
  EXPECT_EQ(made->info().val_samples, 13);
  Batch batch(*made.text);
  std::int32_t last = 0;
  for (std::int64_t first = 0; first < 400; first += 4) {
    made->read({.split = Split::kTrain, .first = first, .count = 4}, batch.views);
    last = std::max(last, *std::max_element(batch.targets.begin(), batch.targets.end()));
  }
  EXPECT_LT(last, 450);
  EXPECT_GT(last, 400);
  made->read({.split = Split::kVal, .first = 0, .count = 1}, batch.views);
  EXPECT_EQ(batch.tokens[0], 900);
}

TEST_F(TextTest, ValidationPredictsEveryHeldOutTokenOnce) {
  for (const int context : {1, 3, 7, 8, 9, 33, 99, 100, 150}) {
    const Made made = open(common(1000, "batch = 2\ncontext = " + std::to_string(context)));
    Batch batch(*made.text);
    std::map<std::int32_t, int> predicted;
    for (std::int64_t first = 0; first < made->info().val_samples; first += 2) {
      const std::int64_t count = std::min<std::int64_t>(2, made->info().val_samples - first);
      made->read({.split = Split::kVal, .first = first, .count = count}, batch.views);
      for (std::size_t i = 0; i < batch.targets.size(); ++i) {
        if (batch.targets[i] < 0) continue;
        EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
        ++predicted[batch.targets[i]];
      }
    }
    ASSERT_EQ(predicted.size(), 99u) << context;  // 901 .. 999; 900 is the first held-out token
    EXPECT_EQ(predicted.begin()->first, 901);
    for (const auto& [token, times] : predicted) EXPECT_EQ(times, 1) << token;
  }
}

TEST_F(TextTest, PaddingCountsForNoLoss) {
  const Made made = open(common(1000, "batch = 4\ncontext = 8"));
  Batch batch(*made.text);
  made->read({.split = Split::kTrain, .first = 0, .count = 1}, batch.views);
  EXPECT_TRUE(
      std::all_of(batch.targets.begin() + 8, batch.targets.end(), [](auto target) { return target == -1; }));
  EXPECT_TRUE(
      std::all_of(batch.tokens.begin() + 8, batch.tokens.end(), [](auto token) { return token == 0; }));
  EXPECT_GE(*std::min_element(batch.targets.begin(), batch.targets.begin() + 8), 1);
}

TEST_F(TextTest, SequentialWindowsLieSideBySide) {
  const Made made = open(common(50, "batch = 2\ncontext = 8\nval_fraction = 0.0\norder = 'sequential'"));
  EXPECT_EQ(made->info().train_samples, 6);
  EXPECT_EQ(made->info().val_samples, 0);
  EXPECT_THAT(begins(made, 0, 8), ElementsAre(0, 8, 16, 24, 32, 40, 0, 8));  // a new epoch begins again
}

TEST_F(TextTest, ShuffledEpochsHoldEveryWindowOnceInAnotherOrder) {
  const Made made = open(common(2001, "batch = 4\ncontext = 8\nval_fraction = 0.0\norder = 'shuffled'"));
  const std::int64_t windows = made->info().train_samples;
  ASSERT_EQ(windows, 250);
  std::set<std::vector<std::int32_t>> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int32_t> order = begins(made, epoch * windows, windows);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<std::int32_t>(8 * i));
  }
  EXPECT_EQ(orders.size(), 3u);
  orders.insert(begins(
      open(common(2001, "batch = 4\ncontext = 8\nval_fraction = 0.0\norder = 'shuffled'"), 2), 0, windows));
  EXPECT_EQ(orders.size(), 4u) << "another seed, another order";
}

TEST_F(TextTest, RandomWindowsCoverAllBeginsEvenly) {
  const Made made = open(common(100, "batch = 5\ncontext = 8\nval_fraction = 0.0"));
  std::map<std::int32_t, int> times;
  constexpr int kSamples = 46000;
  for (const std::int32_t begin : begins(made, 0, kSamples)) ++times[begin];
  ASSERT_EQ(times.size(), 92u);  // 0 .. 91: the last window ends with the last token as its last target
  EXPECT_EQ(times.rbegin()->first, 91);
  double chi_squared = 0;
  for (const auto& [begin, count] : times) chi_squared += std::pow(count - 500.0, 2) / 500.0;
  EXPECT_LT(chi_squared,
            91 + 5 * std::sqrt(2 * 91.0));  // five standard deviations of chi-squared with 91 degrees
}

TEST_F(TextTest, OrderDependsOnSeedAndPlaceAlone) {
  for (const char* order : {"random", "shuffled"}) {
    const std::string options =
        std::string("context = 8\nval_fraction = 0.0\norder = '") + order + "'\nbatch = ";
    const Made by_one = open(common(2001, options + "1"), 42),
               by_seven = open(common(2001, options + "7"), 42);
    const std::vector<std::int32_t> all = begins(by_one, 0, 600);
    EXPECT_EQ(begins(by_seven, 0, 600), all);
    EXPECT_EQ(begins(by_seven, 333, 50),
              std::vector<std::int32_t>(all.begin() + 333, all.begin() + 383));  // resume
    EXPECT_NE(begins(open(common(2001, options + "1"), 43), 0, 600), all);
  }
}

TEST_F(TextTest, ValidationFileInPlaceOfATail) {
  const std::string val = write("val.bin", bytes_of<std::uint16_t>({5, 6, 7, 8, 9}));
  const Made made = open(common(100, "batch = 2\ncontext = 3\nval_path = '" + val + "'"));
  EXPECT_EQ(made->info().train_samples, 33);
  EXPECT_EQ(made->info().val_samples, 2);
  EXPECT_EQ(made->info().sources.size(), 2u);
  Batch batch(*made.text);
  made->read({.split = Split::kVal, .first = 0, .count = 2}, batch.views);
  EXPECT_THAT(batch.tokens, ElementsAre(5, 6, 7, 8, 9, 0));
  EXPECT_THAT(batch.targets, ElementsAre(6, 7, 8, 9, -1, -1));
}

TEST_F(TextTest, RefusalsSayWhatToChange) {
  const std::string text = write("words.txt", "to be or not to be");
  struct Case {
    std::string toml;
    const char* message;
  } const cases[] = {
      {"path = '" + text + "'\ncontext = 64", "a window of context = 64 needs 65 tokens to train on"},
      {"path = '" + text + "'\ncontext = 5\nbatch = 4",
       "batch = 4 is larger than the data, which holds 3 windows of context = 5"},
      {"path = '" + text + "'\ncontext = 2\nbatch = 1\nval_fraction = 0.01",
       "validation needs at least 2 tokens"},
      {"path = '" + text + "'\ncontext = 2\nbatch = 1\nvocabulary = 100", "outside of the vocabulary of 100"},
      {common(100, "context = 2\nbatch = 1\nval_path = '" + text + "'"),
       "expected one format, found nanogpt and bytes"},
  };
  for (const Case& c : cases) EXPECT_THAT(error_of([&] { open(c.toml); }), HasSubstr(c.message));
  for (const char* option : {"context = 0", "batch = 0", "val_fraction = 0.95", "order = 'backwards'",
                             "format = 'zip'", "path = 'no/such/file.txt'"}) {
    EXPECT_NE(error_of([&] { make_text(option); }), "no error") << option;
  }
}

TEST_F(TextTest, ReadChecksItsArguments) {
  const Made made = open(common(1000, "batch = 4\ncontext = 8"));
  Batch batch(*made.text);
  const std::vector<TensorView> one{batch.views[0]};
  std::vector<TensorView> wrong = batch.views;
  wrong[1].dtype = DType::kF32;
  std::vector<TensorView> small = batch.views;
  small[0].shape = Shape{3, 8};
  EXPECT_THROW(made->read({.first = 0, .count = 5}, batch.views), Error);
  EXPECT_THROW(made->read({.first = -1, .count = 1}, batch.views), Error);
  EXPECT_THROW(made->read({.split = Split::kVal, .first = 12, .count = 2}, batch.views), Error);
  EXPECT_THROW(made->read({.first = 0, .count = 1}, one), Error);
  EXPECT_THROW(made->read({.first = 0, .count = 1}, wrong), Error);
  EXPECT_THROW(made->read({.first = 0, .count = 1}, small), Error);
}

TEST_F(TextTest, ReadingAllocatesNothing) {
  for (const char* order : {"random", "shuffled", "sequential"}) {
    const Made made = open(common(1000, std::string("batch = 4\ncontext = 8\norder = '") + order + "'"));
    Batch batch(*made.text);
    const std::int64_t before = testing::allocation_count();
    for (std::int64_t first = 0; first < 400; first += 4)
      made->read({.first = first, .count = 4}, batch.views);
    made->read({.split = Split::kVal, .first = 12, .count = 1}, batch.views);
    EXPECT_EQ(testing::allocation_count(), before) << order;
  }
}

TEST(Shakespeare, IsWhatTheQuickStartExpects) {
  const Made made = make_text("path = '" TENON_SOURCE_DIR "/data/text/tinyshakespeare.txt'\ncontext = 64");
  made->open(1);
  EXPECT_EQ(made->info().train_samples, 15685);  // (1003854 - 1) / 64
  EXPECT_EQ(made->info().val_samples, 1743);     // 111539 predictions
  EXPECT_EQ(made->info().attributes[0].value, 256);
  EXPECT_EQ(made->info().sources[0].sha256,
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed");
}

}  // namespace
}  // namespace tenon::text
