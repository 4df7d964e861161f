// Slices are made once. An elementwise rule gets runs of neighbouring parameters with the same decay, padding
// included (it is zero and its gradient is zero); any other rule gets one parameter at a time in its own
// shape.
#include "loop/update.hpp"

#include "graph/parameter_set.hpp"
#include "graph/row_table.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::train {
namespace {

using graph::as_reals;

}  // namespace

Updater::Updater(const Part<Optimizer>& optimizer, ParameterSet& live, Device& device, RowPlaces* places)
    : optimizer_(optimizer),
      row_optimizer_(optimizer.offered<RowOptimizer>()),
      live_(live),
      device_(device),
      reduce_(device.family<ReduceOps>()) {
  const auto parameters = live.parameters();
  const std::vector<ParameterInfo> infos(parameters.begin(), parameters.end());
  for (const StateSlot& slot : optimizer->slots()) {
    if (slot.dimensions != StateSlot::kWeight && optimizer->elementwise()) {
      fail_plugin(
          fmt::format("{} is elementwise, and its state '{}' has not the shape of the weights; return false "
                      "from elementwise(): each tensor then comes in its own shape",
                      optimizer.id(), slot.name));
    }
    state_.push_back(make_parameter_set(std::string("optimizer.") + slot.name, graph::reduced(infos, slot),
                                        device, SetContents::kGradients));
  }
  state_of_.resize(infos.size());
  for (const ParameterInfo& info : infos) {
    const RowTable* table = live.table(info.index);
    if (table == nullptr || !info.spec.trainable) continue;
    if (row_optimizer_ == nullptr) {
      fail_config(fmt::format(
          "parameter '{}' is a row table, and the chosen optimizer has no row-sparse form; choose "
          "one that offers {}",
          info.spec.name, RowOptimizer::kId));
    }
    for (const RowStateSlot& slot : optimizer_.guarded(*row_optimizer_)->row_slots()) {
      std::string name = std::string("optimizer.") + slot.name;
      const RowMemorySpec spec{.table = info.spec.name,
                               .state = name,
                               .first = table->owned_first(),
                               .last = table->owned_last(),
                               .width = slot.width == 0 ? table->width() : slot.width,
                               .dtype = table->dtype()};
      std::unique_ptr<RowTable> state = graph::make_row_table(spec, table->rows(), places);
      tables_.push_back({info.index, std::move(name), std::move(state)});
      state_of_[info.index].push_back(tables_.back().table.get());
    }
  }
  cut();
}

void Updater::bind(const MeshSpec& mesh, std::int64_t steps) {
  auto* const binding = optimizer_.offered<OptimizerBinding>();
  if (binding == nullptr) return;
  for (const ParameterInfo& info : live_.parameters())
    first_holder_.push_back(is_first_holder(info.spec, mesh.coordinates) ? 1 : 0);
  optimizer_.guarded(*binding)->bind({live_.parameters(), first_holder_, mesh.all, &device_, steps});
}

void Updater::cut() {
  const bool merge = optimizer_->elementwise();
  for (const ParameterInfo& info : live_.parameters()) {
    if (info.arena < 0 || !info.spec.trainable || info.spec.role != Role::kParameter) continue;
    // No loss reaches it: there is no gradient, and so no update, not even decay. Such parameters come last.
    if (info.users == 0) continue;
    const std::int64_t end = info.begin + info.local.elements();
    if (merge && !slices_.empty() && slices_.back().arena == info.arena &&
        slices_.back().decay == info.spec.decay) {
      slices_.back().elements = end - slices_.back().begin;
      slices_.back().parameter = -1;
      continue;
    }
    slices_.push_back(
        {info.arena, info.begin, info.local.elements(), info.spec.decay, info.index, info.local, {}});
  }
  for (Slice& slice : slices_) {
    if (slice.parameter < 0 || merge) slice.shape = Shape{slice.elements};
    for (const auto& set : state_)
      slice.state.push_back(merge ? view(set->arena(slice.arena), slice) : set->tensor(slice.parameter));
  }
}

TensorView Updater::view(const TensorView& arena, const Slice& slice) const {
  TensorView result = arena;
  result.data = static_cast<std::byte*>(arena.data) + dtype_bytes(arena.dtype, slice.begin);
  result.shape = slice.shape;
  return optimizer_->elementwise() ? as_reals(result) : result;
}

std::int64_t Updater::table_bytes() const {
  const auto bytes = [](const RowTable& table) {
    return dtype_bytes(table.dtype(), (table.owned_last() - table.owned_first()) * table.width());
  };
  std::int64_t sum = 0;
  for (const ParameterInfo& info : live_.parameters()) {
    if (const RowTable* table = live_.table(info.index)) sum += bytes(*table);
  }
  for (const TableState& state : tables_) sum += bytes(*state.table);
  return sum;
}

// Gradients of rows are on the host, where a device with memory of its own has no operators.
double Updater::squares_of(const TensorView& rows) {
  if (rows.space == device_.space()) return reduce_.sum_of_squares(rows);
  double sum = 0;
  for_each_real(rows, [&](double value) { sum += value * value; });
  return sum;
}

double Updater::gradient_norm(const ParameterSet& gradients, std::span<const RowGradient> rows,
                              const MeshSpec& mesh, Communicator* replicas) {
  const auto sum_over = [](Communicator& ranks, double& value) {
    TensorView view;
    view.data = &value;
    view.dtype = DType::kF64;
    view.shape = Shape{1};
    ranks.all_reduce(view, ReduceOp::kSum);
  };
  double sum = 0, sharded = 0;
  if (mesh.all == nullptr) {
    for (int arena = 0; arena < gradients.arenas(); ++arena) {
      const TensorView view = gradients.arena(arena);
      if (!view.empty()) sum += reduce_.sum_of_squares(as_reals(view));
    }
  } else {
    for (const ParameterInfo& info : gradients.parameters()) {
      const TensorView view = gradients.tensor(info.index);
      if (!view.empty() && is_first_holder(info.spec, mesh.coordinates))
        sum += reduce_.sum_of_squares(as_reals(view));
    }
  }
  for (const RowGradient& row : rows) {
    const ParameterSpec& spec = live_.parameters()[row.parameter].spec;
    if (row.ids.empty() || !is_first_holder(spec, mesh.coordinates)) continue;
    (is_sharded(spec, kReplicaAxis) ? sharded : sum) += squares_of(row.values);
  }
  if (replicas != nullptr) sum_over(*replicas, sharded);
  sum += sharded;
  if (mesh.all != nullptr) sum_over(*mesh.all, sum);
  return std::sqrt(sum);
}

void Updater::apply(const UpdateContext& context, const ParameterSet& gradients,
                    std::span<const RowGradient> rows) {
  for (const Slice& slice : slices_) {
    ParameterSlice piece;
    piece.weights = view(live_.arena(slice.arena), slice);
    piece.gradients = view(gradients.arena(slice.arena), slice);
    piece.state = slice.state;
    piece.decay = slice.decay;
    piece.parameter = slice.parameter;
    optimizer_->step(context, piece);
  }
  for (const RowGradient& row : rows) {
    if (!row.ids.empty()) step_rows(context, row);
  }
  live_.touch(-1);
}

void Updater::apply_rows(const UpdateContext& context, const RowGradient& rows) {
  UpdateContext here = context;
  here.device = &device_;
  step_rows(here, rows);
  live_.touch(rows.parameter);
}

void Updater::step_rows(const UpdateContext& context, const RowGradient& rows) {
  optimizer_.guarded(*row_optimizer_)
      ->step_rows(context, *live_.table(rows.parameter), state_of_[rows.parameter], rows);
}

// The largest rate of a schedule.

namespace {

constexpr std::int64_t kAllAsked = std::int64_t{1} << 20;
constexpr std::int64_t kPoints = std::int64_t{1} << 16;

}  // namespace

double peak_rate(const Schedule& schedule, std::int64_t steps, double base_lr) {
  double peak = 0;
  std::int64_t first = 0, last = steps - 1;
  while (last - first >= kAllAsked) {
    const std::int64_t distance = (last - first) / kPoints;
    const auto slot_of = [&](std::int64_t point) {
      return point == kPoints ? last : first + point * distance;
    };
    std::int64_t best = 0;
    double largest = schedule.rate({first, steps, base_lr});
    for (std::int64_t point = 1; point <= kPoints; ++point) {
      const double rate = schedule.rate({slot_of(point), steps, base_lr});
      if (!(rate > largest)) continue;
      largest = rate;
      best = point;
    }
    peak = std::max(peak, largest);
    const std::int64_t before = slot_of(std::max<std::int64_t>(best - 1, 0));
    last = slot_of(std::min(best + 1, kPoints));
    first = before;
  }
  for (std::int64_t slot = first; slot <= last; ++slot)
    peak = std::max(peak, schedule.rate({slot, steps, base_lr}));
  return peak;
}

}  // namespace tenon::train
