// Digests are of bytes in host memory: other memory is copied first.
#include "loop/witness.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::train {

std::string output_name(std::string_view node, int output) {
  return output == 0 ? std::string(node) : fmt::format("{}:{}", node, output);
}

void SlotWitness::add(WitnessPhase phase, std::string_view layer, std::string_view name,
                      const TensorView& value, std::span<const std::int64_t> ids) {
  TensorView host = value;
  if (value.space != MemorySpace::kHost && !value.empty()) {
    host_.resize(value.bytes());
    host.space = MemorySpace::kHost;
    host.data = host_.data();
    parts_.device->copy(value, host);
    parts_.device->synchronize();
  }
  stream_.reset();
  stream_.update(std::as_bytes(ids));
  if (!value.empty()) stream_.update(host.raw());
  sink_->add({phase, layer, name, micro_}, stream_.hex());
}

void SlotWitness::inputs(std::int64_t micro) {
  if (!active_) return;
  micro_ = micro;
  const std::span<const TensorView> fields = executor_.inputs();
  // A separate statement, so that an error is not attributed to the data set.
  const std::vector<DataField>& declared = parts_.dataset->info().fields;
  for (std::size_t i = 0; i < fields.size() && i < declared.size(); ++i)
    add(WitnessPhase::kInput, "data", declared[i].name, fields[i]);
}

void SlotWitness::output(std::string_view node, int output, const TensorView& value) {
  if (!active_ || !sink_->wants_outputs_of(node)) return;
  add(WitnessPhase::kOutput, node, output_name(node, output), value);
}

void SlotWitness::gradients(const ParameterSet& gradients, std::span<const RowGradient> rows) {
  if (!active_) return;
  micro_ = 0;
  for (const ParameterInfo& info : gradients.parameters()) {
    const TensorView gradient = gradients.tensor(info.index);
    if (!gradient.empty())
      add(WitnessPhase::kGradient, executor_.layer_of(info.index), info.spec.name, gradient);
  }
  const auto parameters = replica_.live().parameters();
  for (const RowGradient& of : rows)
    add(WitnessPhase::kGradient, executor_.layer_of(of.parameter), parameters[of.parameter].spec.name,
        of.values, of.ids);
}

/// Frozen weights are left out: nothing writes them, and a model that is mostly frozen would pay for all of
/// it.
void SlotWitness::weights(WitnessPhase phase) {
  const ParameterSet& live = replica_.live();
  for (const ParameterInfo& info : live.parameters()) {
    if (info.spec.role == Role::kRowTable) continue;
    if (info.spec.role == Role::kParameter && !info.spec.trainable) continue;
    add(phase, executor_.layer_of(info.index), info.spec.name, live.tensor(info.index));
  }
}

void SlotWitness::updated(std::span<const RowGradient> rows) {
  if (!active_) return;
  weights(WitnessPhase::kWeight);
  const auto parameters = replica_.live().parameters();
  for (const RowGradient& of : rows) {
    const RowTable* table = replica_.live().table(of.parameter);
    if (table != nullptr)
      add(WitnessPhase::kWeight, executor_.layer_of(of.parameter), parameters[of.parameter].spec.name,
          rows_of(*table, of.ids), of.ids);
  }
  for (const auto& set : updater_.state()) {
    for (const ParameterInfo& info : set->parameters()) {
      const TensorView state = set->tensor(info.index);
      if (!state.empty())
        add(WitnessPhase::kState, executor_.layer_of(info.index),
            fmt::format("{}/{}", set->name(), info.spec.name), state);
    }
  }
  for (const Updater::TableState& state : updater_.table_state()) {
    const auto of = std::ranges::find(rows, state.parameter, &RowGradient::parameter);
    if (of == rows.end()) continue;
    add(WitnessPhase::kState, executor_.layer_of(state.parameter),
        fmt::format("{}/{}", state.name, parameters[state.parameter].spec.name),
        rows_of(*state.table, of->ids), of->ids);
  }
}

void SlotWitness::round() {
  if (!active_) return;
  micro_ = 0;
  weights(WitnessPhase::kRound);
}

TensorView SlotWitness::rows_of(const RowTable& table, std::span<const std::int64_t> ids) {
  TensorView rows;
  rows.dtype = table.dtype();
  rows.shape = Shape{static_cast<std::int64_t>(ids.size()), table.width()};
  rows_.resize(rows.bytes());
  rows.data = rows_.data();
  if (!ids.empty()) table.scan(ids, rows);
  return rows;
}

}  // namespace tenon::train
