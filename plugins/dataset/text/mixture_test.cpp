// The mixture through the contract: shares, phases, orders of the sources, validation, and errors. Names
// begin with the property that they test: S1 one stream at any world size, S2 shares, S3 epochs, S4
// independence of the sources, S5 errors in place of silent renormalisation.
#include "mixture.hpp"
#include "test_support.hpp"

#include "base/testing/allocation_count.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tenon::text {
namespace {

using ::testing::ElementsAre;

class MixtureTest : public FileTest {
 protected:
  using Made = Opened<Mixture>;

  Made open(const std::string& toml, std::uint64_t seed = 1) const {
    Made made = make_text<Mixture>(toml);
    made->open(seed);
    return made;
  }

  /// A source whose token at position i is base + i, so that a token identifies source and position.
  std::string source(const std::string& name, std::uint16_t base, std::uint16_t count) const {
    std::vector<std::uint16_t> tokens;
    for (std::uint16_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::uint16_t>(base + i));
    return "'" + name + "=" + write(name + ".bin", bytes_of(tokens)) + "'";
  }
  /// Three sources of 12, 25 and 50 training windows of 4 tokens.
  std::string three(const std::string& weights, const std::string& more = "") const {
    return "sources = [" + source("a", 0, 49) + ", " + source("b", 1000, 101) + ", " +
           source("c", 2000, 201) + "]\nweights = " + weights +
           "\ncontext = 4\nvocabulary = 65536\nval_fraction = 0.0\n" + more;
  }

  /// Returns the first token of each train window; checks that the window is consecutive.
  static std::vector<int> begins(const Made& made, std::int64_t first, std::int64_t count) {
    std::vector<int> found;
    const std::size_t batch = made->batch();
    std::vector<std::int32_t> tokens(batch * 4), targets(batch * 4);
    const std::vector<TensorView> views{{tokens.data(), Shape{made->batch(), 4}, DType::kI32},
                                        {targets.data(), Shape{made->batch(), 4}, DType::kI32}};
    for (std::int64_t done = 0; done < count; done += made->batch()) {
      const std::int64_t now = std::min(made->batch(), count - done);
      made->read({.split = Split::kTrain, .first = first + done, .count = now}, views);
      for (std::size_t row = 0; row < static_cast<std::size_t>(now); ++row) {
        for (std::size_t k = 0; k < 4; ++k) {
          EXPECT_EQ(tokens[4 * row + k], tokens[4 * row] + static_cast<int>(k));
          EXPECT_EQ(targets[4 * row + k], tokens[4 * row + k] + 1);
        }
        found.push_back(tokens[4 * row]);
      }
    }
    return found;
  }
  static std::vector<int> of_source(const std::vector<int>& begins, int source) {
    std::vector<int> found;
    for (const int begin : begins) {
      if (begin / 1000 == source) found.push_back(begin);
    }
    return found;
  }
};

TEST_F(MixtureTest, S1OneStreamAtAnyWorldSizeAndAfterAnyKill) {
  for (const char* order : {"shuffled", "random", "sequential"}) {
    const std::string toml = three("['0.5', '0.3', '0.2', '0', '1/4', '3/4']",
                                   std::string("phase_until = [100]\norder = '") + order + "'\n");
    const std::vector<int> all = begins(open(toml + "batch = 1"), 0, 256);
    const Made made = open(toml + "batch = 8");
    for (const int world : {1, 2, 4, 8}) {
      std::vector<int> seen;
      for (std::int64_t step = 0; step < 32 / world; ++step) {
        for (int rank = 0; rank < world; ++rank) {
          const std::vector<int> mine = begins(made, (step * world + rank) * 8, 8);
          seen.insert(seen.end(), mine.begin(), mine.end());
        }
      }
      EXPECT_EQ(seen, all) << order << ", world of " << world;
    }
    // A fresh object that begins at any sample, as after a kill.
    for (const std::int64_t first : {0, 1, 99, 100, 101, 200}) {
      EXPECT_EQ(begins(open(toml + "batch = 1"), first, 50),
                std::vector<int>(all.begin() + first, all.begin() + first + 50));
    }
  }
}

TEST_F(MixtureTest, S2SharesHoldAtEveryPrefixAndFromTheFirstDrawOfAPhase) {
  const double shares[2][3] = {{0.5, 0.3, 0.2}, {0.1, 0.2, 0.7}};
  const Made made =
      open(three("['0.5', '0.3', '0.2', '0.1', '0.2', '0.7']", "batch = 1\nphase_until = [77]\n"));
  const std::vector<int> all = begins(made, 0, 500);
  int counts[3] = {};
  for (int g = 0; g < 500; ++g) {
    if (g == 77) std::fill(std::begin(counts), std::end(counts), 0);
    ++counts[all[g] / 1000];
    const int phase = g < 77 ? 0 : 1, s = phase == 0 ? g + 1 : g - 76;
    for (int k = 0; k < 3; ++k) EXPECT_LT(std::abs(counts[k] - shares[phase][k] * s), 1) << g << ": " << k;
  }
}

TEST_F(MixtureTest, S3EachWindowOncePerEpochOfItsSourceAcrossPhases) {
  const Made made =
      open(three("['0.5', '0.3', '0.2', '0.1', '0.2', '0.7']", "batch = 1\nphase_until = [77]\n"));
  const std::vector<int> all = begins(made, 0, 600);
  const int windows[] = {12, 25, 50};
  // Epochs = share * total / unique windows; the shares are those of 77 and of 523 draws.
  const int epochs[] = {7, 5, 7};
  for (int k = 0; k < 3; ++k) {
    const std::vector<int> mine = of_source(all, k);
    const std::size_t n = windows[k];
    EXPECT_EQ(mine.size() / n, static_cast<std::size_t>(epochs[k]));
    for (std::size_t epoch = 0; epoch + 1 <= mine.size() / n; ++epoch) {
      const std::set<int> seen(mine.begin() + static_cast<std::ptrdiff_t>(epoch * n),
                               mine.begin() + static_cast<std::ptrdiff_t>((epoch + 1) * n));
      EXPECT_EQ(seen.size(), n) << "source " << k << ", epoch " << epoch;
    }
  }
}

TEST_F(MixtureTest, S4TheSizeOfOneSourceChangesNoOtherOrder) {
  const std::string weights =
      "weights = ['0.5', '0.5']\ncontext = 4\nvocabulary = 65536\nval_fraction = 0.0\nbatch = 1";
  const Made small =
      open("sources = [" + source("a", 0, 49) + ", " + source("b", 1000, 101) + "]\n" + weights);
  const std::vector<int> before = begins(small, 0, 200);
  const Made large =
      open("sources = [" + source("a", 0, 481) + ", " + source("b", 1000, 101) + "]\n" + weights);
  const std::vector<int> after = begins(large, 0, 200);
  EXPECT_EQ(of_source(after, 1), of_source(before, 1));
  EXPECT_NE(of_source(after, 0), of_source(before, 0));
  // The same files under swapped names: orders follow names.
  const Made renamed =
      open("sources = [" + source("c", 0, 49) + ", " + source("b", 1000, 101) + "]\n" + weights);
  EXPECT_EQ(of_source(begins(renamed, 0, 200), 1), of_source(before, 1));
  EXPECT_NE(of_source(begins(renamed, 0, 200), 0), of_source(before, 0));
}

TEST_F(MixtureTest, S5AnExhaustedSourceIsAnError) {
  const Made made = open(three("['0.5', '0.3', '0.2']", "batch = 1\nmax_epochs = [2, 0, 0]\n"));
  // Draw 24 of source a is the first of its third epoch: 12 windows, a share of a half.
  const std::vector<int> all = begins(made, 0, 47);
  EXPECT_EQ(of_source(all, 0).size(), 24u);
  std::int64_t refused = 47;
  std::string message;
  try {
    for (; refused < 60; ++refused) begins(made, refused, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    message = error.what();
  }
  EXPECT_EQ(
      message,
      "data.mixture: sample " + std::to_string(refused) +
          " would begin epoch 3 of source 'a', whose max_epochs is 2; train on fewer samples, lower its "
          "weight, or raise max_epochs");
}

TEST_F(MixtureTest, ValidationGoesThroughTheSourcesInTurn) {
  const Made made =
      open("sources = [" + source("a", 0, 50) + ", " + source("b", 1000, 100) +
           "]\nweights = ['0.9', '0.1']\ncontext = 4\nvocabulary = 65536\nval_fraction = 0.2\nbatch = 1");
  const DataInfo& info = made->info();
  EXPECT_EQ(info.train_samples, (40 - 1) / 4 + (80 - 1) / 4);
  EXPECT_EQ(info.val_samples, 3 + 5);  // 9 and 19 predictions in windows of 4
  ASSERT_EQ(info.attributes.size(), 3u);
  EXPECT_EQ(info.attributes[0].name, "vocabulary");
  EXPECT_EQ(info.attributes[1].name, "val_samples.a");
  EXPECT_EQ(info.attributes[1].value, 3);
  EXPECT_EQ(info.attributes[2].name, "val_samples.b");
  EXPECT_EQ(info.attributes[2].value, 5);
  EXPECT_EQ(info.sources.size(), 2u);
  std::vector<int> predicted;
  std::vector<std::int32_t> tokens(4), targets(4);
  const std::vector<TensorView> views{{tokens.data(), Shape{1, 4}, DType::kI32},
                                      {targets.data(), Shape{1, 4}, DType::kI32}};
  for (std::int64_t i = 0; i < 8; ++i) {
    made->read({.split = Split::kVal, .first = i, .count = 1}, views);
    for (const std::int32_t target : targets) {
      if (target >= 0) predicted.push_back(target);
    }
  }
  std::vector<int> expected;
  for (int i = 41; i < 50; ++i) expected.push_back(i);
  for (int i = 1081; i < 1100; ++i) expected.push_back(i);
  EXPECT_EQ(predicted, expected);
}

TEST_F(MixtureTest, RefusalsAreWholeMessages) {
  const std::string a = source("a", 0, 49), text = write("t.txt", "to be or not to be, that is the question");
  const std::string tail = "\ncontext = 4\nbatch = 1\nvocabulary = 65536\nval_fraction = 0.0\n";
  struct Case {
    std::string toml, message;
  } const cases[] = {
      {"sources = [" + a + ", 'b=" + text + "']\nweights = ['0.5', '0.5']" + tail,
       "data.mixture: sources 'a' and 'b': expected one format, found nanogpt and bytes"},
      {"sources = [" + a + "]\nweights = ['0.9']" + tail,
       "data.mixture: weights of phase 1: the weights sum to 9/10; expected exactly 1 (weights that were "
       "rounded can be "
       "given as fractions of their sum, e.g. \"457/1001\")"},
      {"sources = [" + a + "]\nweights = ['1', '1']" + tail,
       "data.mixture: weights: expected 1 of them, for 1 sources in 1 phases, found 2"},
      {"sources = [" + a + "]\nweights = ['1', '1', '1']\nphase_until = [5, 5]" + tail,
       "data.mixture: phase_until: expected ascending numbers above 0, found 5 after 5"},
      {"sources = [" + a + "]\nweights = ['1', '0.5']\nphase_until = [5]" + tail,
       "data.mixture: weights of phase 2: the weights sum to 1/2; expected exactly 1 (weights that were "
       "rounded can be "
       "given as fractions of their sum, e.g. \"457/1001\")"},
      {"sources = [" + a + ", " + a + "]\nweights = ['1', '0']" + tail,
       "data.mixture: sources: 'a' stands there twice"},
      {"sources = ['a.bin']\nweights = ['1']" + tail,
       "data.mixture: sources: expected \"name=file\", found \"a.bin\""},
      {"sources = []\nweights = []" + tail,
       "data.mixture: sources: expected at least one \"name=file\", found none"},
      {"sources = [" + a + "]\nweights = ['1']\nmax_epochs = [1, 2]" + tail,
       "data.mixture: max_epochs: expected 1 numbers of at least 0, one per source, found 2"},
      {"sources = [" + a + "]\nweights = ['1']\nmax_epochs = [-1]" + tail,
       "data.mixture: max_epochs: expected 1 numbers of at least 0, one per source, found 1 with a negative "
       "one"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of([&] { open(c.toml); }), c.message);
}

TEST_F(MixtureTest, ReadingAllocatesNothing) {
  const Made made =
      open(three("['0.5', '0.3', '0.2', '0', '1/4', '3/4']", "phase_until = [100]\nbatch = 4\n"));
  std::vector<std::int32_t> tokens(16), targets(16);
  const std::vector<TensorView> views{{tokens.data(), Shape{4, 4}, DType::kI32},
                                      {targets.data(), Shape{4, 4}, DType::kI32}};
  const std::int64_t before = testing::allocation_count();
  for (std::int64_t first = 0; first < 400; first += 4) made->read({.first = first, .count = 4}, views);
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::text
