// Ends are shares or slots, so their order is complete only for a run of known length. A segment that is
// empty there, as in a very short run, is passed over, and the level that it ends at holds for the next one.
#include "segments.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace tenon::schedule {
namespace {

[[noreturn]] void refuse_segment(std::size_t index, const std::string& what) {
  fail_config(fmt::format("schedule.segments: segment {} {}", index, what));
}

double risen(Segments::Curve curve, double u) {
  switch (curve) {
    case Segments::Curve::kConstant:
      return 0;
    case Segments::Curve::kLinear:
      return u;
    case Segments::Curve::kCosine:
      return 0.5 * (1.0 - std::cos(std::numbers::pi * u));
    case Segments::Curve::kSqrt:
      return std::sqrt(u);
  }
  return 0;
}

}  // namespace

Segments::Segments(const Options& options) : warmup_(options.integer("warmup")) {
  double level = 1, share = 0;
  std::int64_t slot = 0;
  for (const Options* table : options.tables("segment")) {
    const std::size_t index = segments_.size();
    Segment segment;
    if (table->has("until") == table->has("until_slot"))
      refuse_segment(index, "must have 'until', a share of the run, or 'until_slot', and not both");
    if (table->has("until")) {
      segment.until = table->real("until");
      if (!(segment.until > share))
        refuse_segment(index, fmt::format("ends at the share {} of the run; expected more than {}, where an "
                                          "earlier one ends",
                                          segment.until, share));
      share = segment.until;
    } else {
      segment.until_slot = table->integer("until_slot");
      if (segment.until_slot <= slot)
        refuse_segment(index, fmt::format("ends at slot {}; expected more than {}, where an earlier one ends",
                                          segment.until_slot, slot));
      slot = segment.until_slot;
      if (share == 1) refuse_segment(index, "begins at the end of the run, where an earlier one ends");
    }
    const std::string_view shape = table->text("shape");
    for (std::size_t i = 0; kShapes[i] != nullptr; ++i)
      if (shape == kShapes[i]) segment.curve = static_cast<Curve>(i);
    const bool constant = segment.curve == Curve::kConstant;
    if (constant == table->has("to"))
      refuse_segment(index,
                     constant ? "has 'to' and the shape \"constant\"; give another shape, such as "
                                "\"linear\", or leave 'to' out"
                              : fmt::format("has the shape \"{}\" and no 'to'; give the level at its end, a "
                                            "share of the full rate",
                                            shape));
    segment.from = level;
    segment.to = level = constant ? level : table->real("to");
    segment.scale = table->real("lr_scale");
    segments_.push_back(segment);
  }
  if (segments_.empty())
    fail_config("schedule.segments: no [[schedule.segment]] is given; expected at least one");
  if (segments_.back().until != 1)
    refuse_segment(segments_.size() - 1,
                   "is the last one and ends before the run does; expected 'until = 1'");
}

std::int64_t Segments::Segment::end(std::int64_t steps) const {
  if (until_slot > 0) return until_slot;
  // Near 2^63 slots rounding may raise the product above the number of slots.
  const double slots = until * static_cast<double>(steps);
  return slots < static_cast<double>(steps) ? std::llround(slots) : steps;
}

double Segments::rate(const SchedulePoint& at) const {
  if (warming(at.slot, warmup_)) return warmup_rate(at.base_lr * segments_.front().scale, at.slot, warmup_);
  std::int64_t begin = warmup_;
  for (const Segment& segment : segments_) {
    const std::int64_t end = segment.end(at.steps);
    if (at.slot >= end && &segment != &segments_.back()) {
      begin = end;
      continue;
    }
    const double u = progress(at.slot, begin, end);
    return at.base_lr * segment.scale *
           (segment.from + (segment.to - segment.from) * risen(segment.curve, u));
  }
  return 0;
}

}  // namespace tenon::schedule
