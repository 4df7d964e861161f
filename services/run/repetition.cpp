#include "run/repetition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

namespace tenon::train {
namespace {

/// A run of fewer slots does not compute one of them twice: that costs at most a twentieth.
constexpr std::int64_t kRepeatFromSlots = 20;

}  // namespace

void Repetition::start() {
  if (unchecked_reason().empty()) worker_.repeat_next();
}

std::string Repetition::nondeterminism() const {
  if (rank_.world.clock->simulated() && rank_.world.settings.transport.costs.calibrate)
    return "the simulated clock counts with costs that were measured here (transport.clock.calibrate)";
  if (rank_.world.clock->simulated()) return "";
  if (shape_.workers > 1) {
    return fmt::format("{} workers update the same weights without locks (Hogwild) under the wall clock",
                       shape_.workers);
  }
  if (rank_.world.links.transport) {
    if (const auto* transport =
            static_cast<NotRepeatable*>(rank_.world.links.transport->query(NotRepeatable::kId)))
      return transport->reason();
  }
  if (shape_.on_request)
    return "row tables are read and updated on request, in the order of arrival under the wall clock";
  const auto named = [](const char* kind, const auto& part) {
    return part.declares(TENON_CAP_NONDETERMINISTIC)
               ? fmt::format("{} '{}' depends on the wall clock", kind, part.id())
               : std::string();
  };
  for (const std::string& reason : {named("sync", rank_.parts.sync), named("recovery", rank_.parts.recovery),
                                    named("optimizer", rank_.parts.optimizer)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string Repetition::unchecked_reason() const {
  if (std::string declared = nondeterminism(); !declared.empty()) return declared;
  // In the cases below, a repetition would count messages or choices of formats twice that others count once.
  if (shape_.meshed) return "not checked: a slot of a mesh cannot be repeated by itself";
  if (shape_.exchanges || shape_.on_request)
    return "not checked: a slot whose rows other replicas hold cannot be repeated by itself";
  if (rank_.parts.precision.offered<PrecisionMetrics>() != nullptr)
    return fmt::format("not checked: precision '{}' counts its choices", rank_.parts.precision.id());
  if (rank_.world.settings.run.steps - progress_.first_slot < kRepeatFromSlots) {
    return fmt::format("not checked: the run has fewer than {} slots, one of which would be computed twice",
                       kRepeatFromSlots);
  }
  return "";
}

void Repetition::after_slot(std::int64_t slot, const SlotResult&) {
  const std::optional<RepeatedSlot>& repeated = worker_.repeated();
  if (!repeated || repeated->slot != slot || repeated->differs.empty()) return;
  const std::string text = fmt::format(
      "the gradient of '{}' of slot {} has other bits when it is computed twice: this run is not repeatable. "
      "Something reads memory that it did not write, or depends on the timing of threads; compare with other "
      "kernels (device.kernels) or one thread",
      repeated->differs, slot);
  rank_.host.log(LogLevel::kWarning, text);
  if (!rank_.world.request.quiet)
    std::fprintf(stderr, "tenon: warning: rank %d: %s\n", rank_.index, text.c_str());
}

void Repetition::record() const {
  std::string mine = unchecked_reason();
  if (mine.empty()) {
    const std::optional<RepeatedSlot>& repeated = worker_.repeated();
    if (!repeated) mine = "not checked: no slot computed gradients";
    if (repeated && !repeated->differs.empty()) {
      mine = fmt::format("the gradient of '{}' differed when slot {} was computed twice on rank {}",
                         repeated->differs, repeated->slot, rank_.index);
    }
  }
  for (const std::string& found : rank_.world.links.end_hub->exchange(rank_.index, mine)) {
    // A difference says more than a part that was not checked.
    if (mine.empty() ||
        (mine.starts_with("not checked") && !found.empty() && !found.starts_with("not checked")))
      mine = found;
  }
  if (rank_.index == 0) rank_.world.record.result.nondeterminism = mine;
}

}  // namespace tenon::train
