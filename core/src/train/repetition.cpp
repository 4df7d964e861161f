#include "train/repetition.hpp"

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
  if (why_not().empty()) from_.worker->repeat_next();
}

std::string Repetition::nondeterminism() const {
  if (world_.clock->simulated() && world_.settings.transport.costs.calibrate)
    return "the simulated clock counts with costs that were measured here (transport.clock.calibrate)";
  if (world_.clock->simulated()) return "";
  if (from_.workers > 1) {
    return fmt::format("{} workers update the same weights without locks (Hogwild) under the wall clock",
                       from_.workers);
  }
  if (world_.transport) {
    if (const auto* transport = static_cast<NotRepeatable*>(world_.transport->query(NotRepeatable::kId)))
      return transport->reason();
  }
  if (from_.on_request)
    return "rows of tables are read and updated on request, as requests come under the wall clock";
  const auto named = [](const char* kind, const auto& part) {
    return part.declares(TENON_CAP_NONDETERMINISTIC)
               ? fmt::format("{} '{}' depends on the wall clock", kind, part.id())
               : std::string();
  };
  for (const std::string& reason :
       {named("sync", from_.parts->sync), named("recovery", from_.parts->recovery),
        named("optimizer", from_.parts->optimizer)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string Repetition::why_not() const {
  if (std::string declared = nondeterminism(); !declared.empty()) return declared;
  // What follows would count twice what others count once: messages, choices of formats.
  if (from_.meshed) return "not checked: a slot of a model grid cannot be repeated by itself";
  if (from_.rows->active() || from_.on_request)
    return "not checked: a slot whose rows other replicas hold cannot be repeated by itself";
  if (from_.parts->precision->query(PrecisionMetrics::kId) != nullptr)
    return fmt::format("not checked: precision '{}' counts its choices", from_.parts->precision.id());
  if (world_.settings.run.steps - from_.progress->first_slot < kRepeatFromSlots) {
    return fmt::format("not checked: the run has fewer than {} slots, one of which would be computed twice",
                       kRepeatFromSlots);
  }
  return "";
}

void Repetition::after_slot(std::int64_t slot, const SlotResult&) {
  const std::optional<RepeatedSlot>& repeated = from_.worker->repeated();
  if (!repeated || repeated->slot != slot || repeated->differs.empty()) return;
  const std::string text = fmt::format(
      "the gradient of '{}' of slot {} has other bits when it is computed twice: this run is not repeatable. "
      "Something reads memory that it did not write, or depends on how threads meet; compare with other "
      "kernels (device.kernels) or one thread",
      repeated->differs, slot);
  from_.host->log(LogLevel::kWarning, text);
  if (!world_.request.quiet) std::fprintf(stderr, "tenon: warning: rank %d: %s\n", from_.rank, text.c_str());
}

void Repetition::record() const {
  std::string mine = why_not();
  if (mine.empty()) {
    const std::optional<RepeatedSlot>& repeated = from_.worker->repeated();
    if (!repeated) mine = "not checked: no slot computed gradients";
    if (repeated && !repeated->differs.empty()) {
      mine = fmt::format("the gradient of '{}' differed when slot {} was computed twice on rank {}",
                         repeated->differs, repeated->slot, from_.rank);
    }
  }
  for (const std::string& found : world_.end_hub->exchange(from_.rank, mine)) {
    // What differed says more than what was not looked at.
    if (mine.empty() ||
        (mine.starts_with("not checked") && !found.empty() && !found.starts_with("not checked")))
      mine = found;
  }
  if (from_.rank == 0) world_.result.nondeterminism = mine;
}

}  // namespace tenon::train
