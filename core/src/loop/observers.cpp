// Calls of observers, and copies of tensors for them.
#include "loop/observers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace tenon::train {

// Training never pays for a broken observer: whatever a call throws is reported once, and the observer gets
// no further calls.

Observers::Observers(std::vector<Part<Observer>>& parts, RankHost& host, SpanRecorder& spans)
    : host_(host), spans_(spans) {
  for (Part<Observer>& part : parts) {
    Entry entry;
    entry.part = &part;
    call(entry, [&] {
      entry.spans = part->query(kSpanObserverId) != nullptr;
      entry.tensors = part.offered<TensorObserver>();
      entry.numerics = part.offered<NumericsObserver>();
      entry.rows = part.offered<RowObserver>();
      entry.phases = part.offered<PhaseObserver>();
    });
    entries_.push_back(entry);
  }
  spans_.want(std::any_of(entries_.begin(), entries_.end(),
                          [](const Entry& entry) { return entry.spans && !entry.dropped; }));
}

template <typename Call>
void Observers::call(Entry& entry, Call&& body) {
  if (entry.dropped) return;
  try {
    try {
      body();
    } catch (...) {
      rethrow_noted_call();
    }
  } catch (const std::exception& error) {
    drop(entry, error.what());
  }
}

template <typename Call>
void Observers::call_all(Call&& body) {
  for (Entry& entry : entries_) call(entry, [&] { body(entry, *entry.part); });
}

void Observers::drop(Entry& entry, const char* reason) {
  entry.dropped = true;
  const std::string text =
      fmt::format("observer '{}' failed and is disabled; training goes on: {}", entry.part->id(), reason);
  host_.log(LogLevel::kError, text);
  if (host_.spec().log != nullptr) std::fprintf(stderr, "tenon: %s\n", text.c_str());
  if (std::none_of(entries_.begin(), entries_.end(),
                   [](const Entry& other) { return other.spans && !other.dropped; }))
    spans_.want(false);
}

bool Observers::wants_tensors() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.tensors != nullptr && !entry.dropped; });
}

bool Observers::wants_numerics() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.numerics != nullptr && !entry.dropped; });
}

bool Observers::wants_phases() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.phases != nullptr && !entry.dropped; });
}

void Observers::start(const RunInfo& info) {
  call_all([&](Entry&, Part<Observer>& observer) { observer->on_start(info); });
}

TensorRequest Observers::tensors(std::int64_t slot) {
  TensorRequest all;
  for (Entry& entry : entries_) {
    entry.request = {};
    if (entry.tensors == nullptr) continue;
    call(entry, [&] { entry.request = entry.part->guarded(*entry.tensors)->tensors(slot); });
    all.parameters |= entry.request.parameters;
    all.outputs |= entry.request.outputs;
  }
  return all;
}

bool Observers::numerics(std::int64_t slot) {
  bool any = false;
  for (Entry& entry : entries_) {
    entry.hears_operands = false;
    if (entry.numerics == nullptr) continue;
    call(entry, [&] { entry.hears_operands = entry.part->guarded(*entry.numerics)->numerics(slot); });
    any |= entry.hears_operands;
  }
  return any;
}

void Observers::operand(const OperandNumerics& operand) {
  for (Entry& entry : entries_) {
    if (entry.hears_operands) call(entry, [&] { entry.part->guarded(*entry.numerics)->on_operand(operand); });
  }
}

void Observers::output(const ObservedOutput& output) {
  for (Entry& entry : entries_) {
    if (entry.request.outputs) call(entry, [&] { entry.part->guarded(*entry.tensors)->on_output(output); });
  }
}

void Observers::parameters(std::span<const ObservedParameter> parameters) {
  for (Entry& entry : entries_) {
    if (entry.request.parameters)
      call(entry, [&] { entry.part->guarded(*entry.tensors)->on_parameters(parameters); });
  }
}

void Observers::tables(std::span<const ParameterInfo> tables) {
  if (tables.empty()) return;
  for (Entry& entry : entries_) {
    if (entry.rows != nullptr) call(entry, [&] { entry.part->guarded(*entry.rows)->on_tables(tables); });
  }
}

void Observers::accesses(const RowGradient& rows) {
  for (Entry& entry : entries_) {
    if (entry.rows == nullptr) continue;
    call(entry,
         [&] { entry.part->guarded(*entry.rows)->on_accesses(rows.parameter, rows.ids, rows.counts); });
  }
}

void Observers::metric(const Metric& metric) {
  call_all([&](Entry&, Part<Observer>& observer) { observer->on_metric(metric); });
}

void Observers::on_phase(Phase phase, double at_s) {
  for (Entry& entry : entries_) {
    if (entry.phases == nullptr) continue;
    call(entry, [&] { entry.part->guarded(*entry.phases)->on_phase(phase, at_s); });
  }
}

void Observers::deliver_spans() {
  if (!spans_.wanted()) return;
  const std::span<const Span> spans = spans_.take();
  for (Entry& entry : entries_) {
    if (!entry.spans) continue;
    call(entry, [&] {
      for (const Span& span : spans) (*entry.part)->on_span(span);
    });
  }
}

void Observers::slot(const SlotRecord& record) {
  deliver_spans();
  call_all([&](Entry&, Part<Observer>& observer) { observer->on_slot(record); });
}

void Observers::finish(std::string_view status, std::string_view message) {
  deliver_spans();
  call_all([&](Entry&, Part<Observer>& observer) { observer->on_finish(status, message); });
}

// The copy of the weights before an update is made only in slots that an observer asked for.

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
}

void TensorWatch::output(std::string_view node, std::string_view type, int output, const TensorView& value) {
  if (!value.empty()) observers_->output({node, type, output, host_view(value, 0)});
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
  memory.resize(view.bytes());
  TensorView host = view;
  host.space = MemorySpace::kHost;
  host.data = memory.data();
  replica_.device().copy(view, host);
  return host;
}

}  // namespace tenon::train
