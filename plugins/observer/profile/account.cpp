// Spans are held until the end of their slot, because only then is it known whether the slot counts.
#include "account.hpp"

#include <algorithm>

namespace tenon::profile {
namespace {

constexpr std::string_view kBackward = " backward";

}  // namespace

void Account::add(const Span& span) {
  waiting_.push_back(span);
}

void Account::end_slot(double seconds) {
  for (const Span& span : waiting_) {
    const double s = span.end_s - span.begin_s;
    if (span.track == "layer") {
      const bool backward = span.name.ends_with(kBackward);
      LayerTime& time =
          layer(backward ? span.name.substr(0, span.name.size() - kBackward.size()) : span.name);
      (backward ? time.backward_s : time.forward_s) += s;
      (backward ? sums_.backward_s : sums_.forward_s) += s;
      time.flops += span.flops;
      time.bytes += span.bytes;
    } else if (span.track == "compute" && span.name == "optimizer") {
      sums_.optimizer_s += s;
    } else if (span.track == "declared") {
      sums_.declared_s += s;
    } else if (span.track == "data") {
      sums_.data_s += s;
    } else if (span.track == "communication") {
      sums_.communication_s += s;
    } else if (span.track == "wait") {
      sums_.late_s += s;
    } else if (span.track == "evaluate") {
      sums_.evaluate_s += s;
    } else if (span.track == "save" && span.name == "copy") {
      sums_.save_s += s;
    }
  }
  waiting_.clear();
  sums_.slots_s += seconds;
  ++slots_;
}

void Account::drop_slot() {
  waiting_.clear();
}

PhaseTimes Account::phases() const {
  PhaseTimes phases = sums_;
  phases.outside_s =
      std::max(0.0, sums_.slots_s - sums_.forward_s - sums_.backward_s - sums_.optimizer_s - sums_.data_s -
                        sums_.communication_s - sums_.late_s - sums_.declared_s);
  return phases;
}

LayerTime& Account::layer(std::string_view name) {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [name](const LayerTime& time) { return time.name == name; });
  if (found != layers_.end()) return *found;
  return layers_.emplace_back(LayerTime{name, 0, 0, 0, 0});
}

}  // namespace tenon::profile
