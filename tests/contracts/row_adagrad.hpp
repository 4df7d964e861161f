// The row-wise optimizer of row_increments_test.cpp.
#pragma once

#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace rehearsal {

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
    const auto width = static_cast<std::size_t>(weights.width());
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

}  // namespace rehearsal
