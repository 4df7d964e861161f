// Every synchronisation strategy with precision policies, recovery and models: each cell trains 20 slots,
// ends below its first loss, sends the same bytes and ends with the same bits when it is repeated, and, where
// it saves, when it is stopped in the middle of an interval and resumed. A pairwise covering set of cells;
// all of them with TENON_MATRIX=all (scripts/soak).
#include "cell.hpp"

#include <cmath>
#include <cstdlib>

namespace tenon::integration::sync_test {
namespace {

constexpr const char* kPrecisions[] = {"fp32", "bf16", "fp16", "fp8", "nvfp4", "mor"};
/// The last one, with running statistics, is slow and only among all cells.
constexpr const char* kModelNames[] = {"gpt_neo", "lenet5", "dlrm", "decoder", "hybrid", "resnet"};
constexpr std::size_t kCoveringModels = 5;
constexpr std::int64_t kSlots = 20, kCut = 10, kSaveEvery = 5;

struct Cell {
  Strategy strategy;
  const char* precision;
  Model model;
  bool saves;

  std::string name() const {
    return std::string(strategy.name) + "_" + precision + "_" + model.name + (saves ? "_full" : "_none");
  }
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name();
}

/// Each strategy with each policy; the model and recovery of a cell are chosen so that every pair of choices
/// occurs.
std::vector<Cell> cells() {
  const char* wanted = std::getenv("TENON_MATRIX");
  const bool all = wanted != nullptr && std::string_view(wanted) == "all";
  std::vector<Cell> chosen;
  for (std::size_t s = 0; s < std::size(kStrategies); ++s) {
    for (std::size_t p = 0; p < std::size(kPrecisions); ++p) {
      for (std::size_t m = 0; m < std::size(kModelNames); ++m) {
        for (const bool saves : {false, true}) {
          const bool covering = m == (s + p) % kCoveringModels && saves == ((p + s / 4) % 3 != 0);
          if (all || covering)
            chosen.push_back({kStrategies[s], kPrecisions[p], model_named(kModelNames[m]), saves});
        }
      }
    }
  }
  return chosen;
}

class SyncMatrix : public ::testing::TestWithParam<Cell> {
 protected:
  RunResult train(const std::string& folder, std::int64_t slots, bool resume = false) {
    const Cell& cell = GetParam();
    Choices choices;
    choices.precision = "type = \"" + std::string(cell.precision) + "\"\n";
    choices.replicas = true;
    choices.save_every = cell.saves ? kSaveEvery : 0;
    choices.slots = slots;
    choices.sync = cell.strategy.toml;
    choices.servers = cell.strategy.servers;
    if (cell.model.width > 0) {
      // Replicas read and update shared rows together: one copy of them, and the same kind of slot for all.
      choices.sets.emplace_back("model.placement=rows");
      if (std::string_view(cell.strategy.name) == "palsgd")
        choices.sets.emplace_back("sync.decision_scope=shared");
    }
    return runs_.train(folder, cell.model, choices, resume);
  }

  CellRuns runs_;
};

TEST_P(SyncMatrix, LearnsRepeatsAndResumes) {
  const RunResult whole = train("whole", kSlots);
  ASSERT_EQ(whole.error, "");
  const std::vector<double> loss = losses(whole);
  ASSERT_GE(loss.size(), static_cast<std::size_t>(kSlots) / 2) << "mixing slots have none";
  for (const double value : loss) ASSERT_TRUE(std::isfinite(value));
  EXPECT_LT(*std::min_element(loss.end() - 5, loss.end()), (loss[0] + loss[1] + loss[2]) / 3);

  const RunResult again = train("again", kSlots);
  EXPECT_EQ(again.weights_hash, whole.weights_hash);
  EXPECT_EQ(again.state_hash, whole.state_hash);
  EXPECT_EQ(again.bytes_by_purpose, whole.bytes_by_purpose);
  EXPECT_EQ(again.quantized_operands, whole.quantized_operands);
  EXPECT_EQ(whole.quantized_operands.empty(), std::string_view(GetParam().precision) == "fp32");

  if (!GetParam().saves) return;
  ASSERT_EQ(train("parts", kCut).error, "");
  const RunResult resumed = train("parts", kSlots, true);
  ASSERT_EQ(resumed.error, "");
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

INSTANTIATE_TEST_SUITE_P(Cells, SyncMatrix, ::testing::ValuesIn(cells()),
                         [](const ::testing::TestParamInfo<Cell>& info) { return info.param.name(); });

}  // namespace
}  // namespace tenon::integration::sync_test
