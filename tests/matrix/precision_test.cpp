// Every precision policy with models, synchronisation and recovery: each cell trains, is stopped in the
// middle and resumed, and must end with the bits of an undisturbed run; it learns, differs from bf16 from its
// first loss on, and has counted exactly the operands that the model's products have. A pairwise covering set
// of cells; all of them with TENON_MATRIX=all (scripts/soak).
#include "cell.hpp"

#include <cmath>
#include <cstdlib>

namespace tenon::integration::precision_test {
namespace {

constexpr const char* kModelNames[] = {"gpt_neo", "lenet5", "decoder", "hybrid"};

struct Policy {
  const char* name;
  const char* toml;  ///< of [precision]
};

constexpr Policy kPolicies[] = {
    {"fp16_dynamic", "type = \"fp16\"\nloss_scale = \"dynamic\"\n"},
    {"fp16_static", "type = \"fp16\"\nloss_scale = \"static\"\n"},
    {"fp8_current", "type = \"fp8\"\nrecipe = \"current\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"fp8_delayed", "type = \"fp8\"\nrecipe = \"delayed\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"fp8_block", "type = \"fp8\"\nrecipe = \"block\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"mxfp8", "type = \"mxfp8\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"mxfp4", "type = \"mxfp4\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"nvfp4", "type = \"nvfp4\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"mor", "type = \"mor\"\nkeep_first = 0\nkeep_last = 0\n"},
};

struct Cell {
  Model model;
  Policy policy;
  bool replicas, saves;

  std::string name() const {
    return std::string(policy.name) + "_" + model.name + (replicas ? "_ddp" : "_none") +
           (saves ? "_full" : "_none");
  }
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name();
}

constexpr std::int64_t kSlots = 12, kCut = 7, kSaveEvery = 5;
/// Operands of one site on the rank that writes the summary: three products of two operands in each slot, and
/// one forward product in the single batch of the evaluation at the end.
constexpr std::uint64_t kOperands = 6 * kSlots + 2;

std::vector<Cell> cells() {
  const char* wanted = std::getenv("TENON_MATRIX");
  const bool all = wanted != nullptr && std::string_view(wanted) == "all";
  std::vector<Cell> chosen;
  for (std::size_t p = 0; p < std::size(kPolicies); ++p) {
    for (std::size_t m = 0; m < std::size(kModelNames); ++m) {
      for (const bool replicas : {false, true}) {
        for (const bool saves : {false, true}) {
          // Four cells for each policy; together every pair of choices occurs.
          const bool covering = replicas == ((p + m) % 2 == 1) && saves == ((p / 2 + m) % 2 == 1);
          if (all || covering) chosen.push_back({model_named(kModelNames[m]), kPolicies[p], replicas, saves});
        }
      }
    }
  }
  return chosen;
}

class PrecisionMatrix : public ::testing::TestWithParam<Cell> {
 protected:
  RunResult train(const std::string& folder, const std::string& precision, std::int64_t slots, bool saves,
                  bool resume = false) {
    const Cell& cell = GetParam();
    return runs_.train(folder, cell.model, {precision, cell.replicas, saves ? kSaveEvery : 0, slots}, resume);
  }

  static std::uint64_t sum(const RunResult& result) {
    std::uint64_t total = 0;
    for (const auto& [format, count] : result.quantized_operands) total += static_cast<std::uint64_t>(count);
    return total;
  }

  CellRuns runs_;
};

TEST_P(PrecisionMatrix, TrainsCountsAndResumesToEqualBits) {
  const Cell& cell = GetParam();
  const RunResult whole = train("whole", cell.policy.toml, kSlots, cell.saves);
  ASSERT_EQ(whole.error, "");
  const std::vector<double> loss = losses(whole);
  ASSERT_EQ(loss.size(), static_cast<std::size_t>(kSlots));
  for (const double value : loss) ASSERT_TRUE(std::isfinite(value));
  EXPECT_LT((loss[kSlots - 1] + loss[kSlots - 2]) / 2, loss[0]);

  const RunResult plain = train("bf16", "type = \"bf16\"\n", kSlots, false);
  ASSERT_EQ(plain.error, "");
  EXPECT_NE(losses(plain).at(0), loss[0]) << "the formats change nothing, so nothing was emulated";

  // The same products for all formats; those of the head stay unquantized.
  if (std::string_view(cell.policy.name).starts_with("fp16")) {
    EXPECT_GE(sum(whole), cell.model.linear_sites * kOperands);
  } else {
    EXPECT_EQ(sum(whole), sum(plain));
    const auto kept = whole.quantized_operands.find("bf16");
    ASSERT_NE(kept, whole.quantized_operands.end());
    EXPECT_EQ(static_cast<std::uint64_t>(kept->second), kOperands) << "the head's";
  }
  if (std::string_view(cell.model.name) != "lenet5") {
    EXPECT_EQ(sum(plain), (cell.model.linear_sites + 1) * kOperands);
  }

  if (cell.saves) {
    ASSERT_EQ(train("parts", cell.policy.toml, kCut, true).error, "");
    const RunResult resumed = train("parts", cell.policy.toml, kSlots, true, true);
    ASSERT_EQ(resumed.error, "");
    EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
    EXPECT_EQ(resumed.state_hash, whole.state_hash);
  } else {
    const RunResult again = train("again", cell.policy.toml, kSlots, false);
    EXPECT_EQ(again.weights_hash, whole.weights_hash);
    EXPECT_EQ(again.quantized_operands, whole.quantized_operands);
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, PrecisionMatrix, ::testing::ValuesIn(cells()),
                         [](const ::testing::TestParamInfo<Cell>& info) { return info.param.name(); });

}  // namespace
}  // namespace tenon::integration::precision_test
