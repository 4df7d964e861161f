// The copy of the weights before an update is made only in slots that an observer asked for.
#include "loop/tensor_watch.hpp"

namespace tenon::train {

TensorWatch::TensorWatch(Observers* observers, RankReplica& replica, Executor& executor)
    : replica_(replica), executor_(executor) {
  if (observers == nullptr || (!observers->wants_tensors() && !observers->wants_numerics())) return;
  observers_ = observers;
  if (!observers->wants_tensors()) return;
  before_ = make_parameter_set("before", executor.parameters(), replica.device(), SetContents::kGradients);
  shown_.reserve(executor.parameters().size());
  staging_.resize(3 * executor.parameters().size() + 1);
}

void TensorWatch::begin_slot(std::int64_t slot) {
  request_ = observers_ == nullptr ? TensorRequest() : observers_->tensors(slot);
  numerics_ = observers_ != nullptr && observers_->numerics(slot);
}

void TensorWatch::begin_forward() {
  if (numerics_) executor_.probe_operands(this);
  if (!request_.outputs) return;
  executor_.probe_outputs(
      [this](std::string_view node, std::string_view type, int output, const TensorView& value) {
        if (!value.empty()) observers_->output({node, type, output, host_view(value, 0)});
      });
}

void TensorWatch::end_forward() {
  if (request_.outputs) executor_.probe_outputs({});
}

void TensorWatch::end_backward() {
  if (numerics_) executor_.probe_operands(nullptr);
}

void TensorWatch::before_update() {
  if (!request_.parameters) return;
  for (const ParameterInfo& info : before_->parameters()) {
    const TensorView before = before_->tensor(info.index);
    if (!before.empty()) replica_.device().copy(replica_.live().tensor(info.index), before);
  }
}

void TensorWatch::after_update(double gradient_scale) {
  if (!request_.parameters) return;
  shown_.clear();
  std::size_t buffer = 1;
  for (const ParameterInfo& info : before_->parameters()) {
    const TensorView gradient = replica_.gradients().tensor(info.index);
    if (before_->tensor(info.index).empty() || gradient.empty()) continue;
    ObservedParameter& parameter = shown_.emplace_back();
    parameter.info = &info;
    parameter.before = host_view(before_->tensor(info.index), buffer++);
    parameter.after = host_view(replica_.live().tensor(info.index), buffer++);
    parameter.gradient = host_view(gradient, buffer++);
    parameter.gradient_scale = gradient_scale;
  }
  observers_->parameters(shown_);
}

TensorView TensorWatch::host_view(const TensorView& view, std::size_t buffer) {
  if (view.space == MemorySpace::kHost) return view;
  std::vector<std::byte>& memory = staging_[buffer];
  memory.resize(static_cast<std::size_t>(view.bytes()));
  TensorView host = view;
  host.space = MemorySpace::kHost;
  host.data = memory.data();
  replica_.device().copy(view, host);
  return host;
}

}  // namespace tenon::train
