// Sum and count of a loss. Counting happens on the host: targets are few beside logits.
#include "loss_sum.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::nn {

Layout expect_targets(const InferContext& context, std::string_view rows) {
  expect_activation(context, 0, 2);
  expect_ids(context, 1);
  const Layout all = context.input(0).layout, targets = context.input(1).layout;
  if (targets.shape.elements() != rows_of(all.shape)) {
    refuse(context, fmt::format("expected one target per row of {} {}, found targets {}", rows,
                                all.shape.text(), targets.shape.text()));
  }
  if (all.whole() && targets.whole()) return targets;  // of whatever shape
  const int last = all.shape.rank() - 1;
  Layout wanted{Shape(all.shape.extents().first(static_cast<std::size_t>(last))), {}, all.partial};
  for (const DimSharding& cut : all.sharding) {
    if (cut.dim != last) {
      wanted.sharding.push_back(cut);
    } else if (cut.offsets.size() > 2) {
      refuse(context, fmt::format("the last dimension of {} is cut ({}), but a row must be whole; put a "
                                  "repartition before the layer that cuts other dimensions",
                                  rows, layout_text(all)));
    }
  }
  if (!(wanted == targets) || !wanted.partial.empty()) {
    refuse(context, fmt::format("the rows of {} and the targets must lie alike on the model grid and be no "
                                "sums over ranks, found {}, and {}; put a repartition before one",
                                rows, layout_text(all), layout_text(targets)));
  }
  return targets;
}

void LossSum::infer(InferContext& context, const Layout& counted, std::int64_t rows) {
  device_ = &context.device();
  reduce_ = &device_->family<ReduceOps>();
  if (device_->space() != MemorySpace::kHost) staging_.resize(static_cast<std::size_t>(rows));
  if (const std::vector<int> axes = cut_axes(counted); !axes.empty()) {
    const Layout whole{{2}}, terms{whole.shape, {}, axes};
    all_parts_ = redistribution(context.grid(), {.from = terms, .to = whole, .dtype = DType::kF64},
                                fmt::format("layer '{}': its sums over parts", context.name()));
  }
  context.output({{2}, DType::kF64, {{2}}});
}

void LossSum::write(TensorView losses, TensorView targets, TensorView output) {
  std::span<const std::int32_t> ids = targets.span<std::int32_t>();
  if (targets.space != MemorySpace::kHost) {
    ids = {staging_.data(), ids.size()};
    device_->copy(targets, {staging_.data(), targets.shape, DType::kI32, MemorySpace::kHost});
    device_->synchronize();
  }
  const auto counted = std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; });
  write(reduce_->sum(losses), static_cast<double>(counted), output);
}

void LossSum::write(double sum, double count, TensorView output) {
  double result[2] = {sum, count};
  const TensorView pair{result, {2}, DType::kF64, MemorySpace::kHost};
  if (all_parts_ != nullptr) all_parts_->forward(pair, pair);
  device_->copy(pair, output);
  device_->synchronize();  // `result` ends with this call
}

}  // namespace tenon::nn
