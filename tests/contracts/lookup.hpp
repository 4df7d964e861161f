// A model of one table: each sample reads the row that its first element names.
#pragma once

#include "support.hpp"

#include <tenon/error.hpp>

#include <numeric>
#include <vector>

namespace rehearsal {

inline constexpr std::int64_t kRows = 512, kWidth = 16;

/// The row that a sample reads.
inline std::int64_t row_of(float first_element) {
  return static_cast<std::int64_t>((first_element + 8) * 32);
}

/// The loss |row - x|^2 / 2. Ends the run with an error in slot `crash_at`.
class Lookup final : public Loss {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {tenon::option::integer("crash_at", "-1")};
  static constexpr tenon::ComponentInfo kInfo{
      .id = "lookup", .summary = "rows near samples", .options = kOptions};
  explicit Lookup(const tenon::Options& options) : crash_at_(options.integer("crash_at")) {}
  void infer(tenon::InferContext& context) override {
    tenon::ParameterSpec rows;
    rows.name = "rows";
    rows.shape = tenon::Shape{kRows, kWidth};
    rows.role = tenon::Role::kRowTable;
    table_ = context.parameter(rows);
    context.keep_input(0);
    context.output({tenon::Shape{2}, tenon::DType::kF64});
    ids_.resize(context.input(0).shape[0]);
    rows_.resize(ids_.size() * kWidth);
  }
  void forward(tenon::ForwardContext& context) override {
    const auto x = context.input(0).span<float>();
    if (context.training() && context.step() == crash_at_) tenon::fail_run("the crash of the rehearsal");
    for (std::size_t b = 0; b < ids_.size(); ++b) ids_[b] = row_of(x[b * kWidth]);
    context.table(table_)->read(ids_, view());
    for (std::size_t i = 0; i < x.size(); ++i) rows_[i] -= x[i];
    context.output(0).as<double>()[0] =
        std::inner_product(rows_.begin(), rows_.end(), rows_.begin(), 0.0) / 2;
    context.output(0).as<double>()[1] = static_cast<double>(ids_.size());
  }
  void backward(tenon::BackwardContext& context) override {
    for (float& value : rows_) value *= static_cast<float>(seed_);
    context.row_gradient(table_, ids_, view());
  }

 private:
  tenon::TensorView view() {
    return {rows_.data(), tenon::Shape{static_cast<std::int64_t>(ids_.size()), kWidth}};
  }
  std::int64_t crash_at_;
  tenon::ParameterRef table_;
  std::vector<std::int64_t> ids_;
  std::vector<float> rows_;
};

}  // namespace rehearsal
