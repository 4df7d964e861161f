// Rehearses sparse training with increments: a table of rows with gradients for the rows that were read, a
// row-wise optimizer, and saves of the rows that were accessed since the last one. A run that crashes and
// resumes from a chain of increments ends with the bits of a run that did not, whatever state the optimizer
// keeps per row.
#include "lookup.hpp"
#include "partial_policy.hpp"
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace rehearsal::row_increments_test {
namespace {

using namespace tenon;

/// Row-wise AdaGrad: one sum of squares per row.
class RowAdagrad final : public tenon::Optimizer, public tenon::RowOptimizer {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "row_adagrad", .summary = "a rate per row"};
  explicit RowAdagrad(const tenon::Options&) {}
  double base_lr() const override { return 0.5; }
  std::span<const tenon::StateSlot> slots() const override { return {}; }
  bool elementwise() const override { return true; }
  void step(const tenon::UpdateContext&, const tenon::ParameterSlice&) override {
    FAIL() << "there are no dense parameters";
  }
  void state(tenon::StateVisitor&) override {}
  void* query(std::string_view id) override {
    return id == tenon::RowOptimizer::kId ? static_cast<tenon::RowOptimizer*>(this) : nullptr;
  }
  std::span<const tenon::RowStateSlot> row_slots() const override { return kSlots; }
  void step_rows(const tenon::UpdateContext& context, tenon::RowTable& weights,
                 std::span<tenon::RowTable* const> state, const tenon::RowGradient& gradient) override {
    const std::size_t width = weights.width();
    std::vector<float> rows(gradient.ids.size() * width), sums(gradient.ids.size());
    const tenon::TensorView row_view{rows.data(), gradient.values.shape},
        sum_view{sums.data(), tenon::Shape{gradient.values.shape[0], 1}};
    weights.read(gradient.ids, row_view);
    state[0]->read(gradient.ids, sum_view);
    const float* g = gradient.values.as<float>();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      float& sum = sums[i / width];
      if (i % width == 0)
        sum += std::inner_product(g + i, g + i + width, g + i, 0.0F) / static_cast<float>(width);
      rows[i] -= static_cast<float>(context.lr) * g[i] / (std::sqrt(sum) + 1e-8F);
    }
    weights.write(gradient.ids, row_view);
    state[0]->write(gradient.ids, sum_view);
  }

 private:
  static constexpr tenon::RowStateSlot kSlots[] = {{"sum", 1}};
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.rows", .version = "1.0.0", .summary = "rows"}, Lookup,
                    RowAdagrad, Partial)

class RowIncrements : public ::testing::TestWithParam<const char*> {};

TEST_P(RowIncrements, ResumeToTheBitsOfAWholeRun) {
  const Folder folder;
  std::vector<std::string> sets = {"model.layer=[{name='loss', type='lookup', inputs=['x']}]",
                                   std::string("optimizer={type='") + GetParam() + "'}",
                                   "recovery={type='partial'}"};
  const RunResult whole = train(plugin, "", sets, folder, "whole");
  sets[0] = "model.layer=[{name='loss', type='lookup', inputs=['x'], crash_at=9}]";
  EXPECT_EQ(try_train(plugin, "", sets, folder, "broken", false).status, "failed");

  const auto files = make_posix_files();
  const std::string checkpoints = folder.path + "/broken/1/checkpoints";
  const CheckpointReader reader = CheckpointStore(*files, checkpoints, {}).open(8);
  EXPECT_EQ(reader.base(), 6) << "slots 4 <- 6 <- 8";
  const auto bytes = [&](const std::string& step) {
    std::uintmax_t sum = 0;
    for (const auto& file : std::filesystem::directory_iterator(checkpoints + "/step-" + step))
      sum += file.file_size();
    return sum;
  };
  EXPECT_GT(bytes("4"), kRows * kWidth * 4U);
  EXPECT_LT(bytes("8"), bytes("4") / 10) << "at most 4 of 512 rows were accessed in two slots";

  sets[0] = "model.layer=[{name='loss', type='lookup', inputs=['x']}]";
  const RunResult resumed = train(plugin, "", sets, folder, "broken", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

INSTANTIATE_TEST_SUITE_P(Rules, RowIncrements,
                         ::testing::Values("row_adagrad", "sgd", "adagrad", "adamw", "rowwise_adagrad"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace rehearsal::row_increments_test
