// Schedule `segments`: a rate that is put together from pieces, each of which goes on from where the one
// before it ended. It knows nothing of data or phases of a run but their shares of its slots.
#pragma once

#include "warmup.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <vector>

namespace tenon::schedule {

/// The rate of slot t in a segment is
///   lr * lr_scale * (a + (b - a) f(u)),   f(u) = 0, u, (1 - cos(pi u)) / 2 or sqrt(u)
/// with the progress u of the segment, its level b at the end (`to`), and a = b of the segment before it,
/// 1 for the first one, which begins after the warm-up.
class Segments final : public Schedule {
 public:
  enum class Curve : std::uint8_t { kConstant, kLinear, kCosine, kSqrt };
  static constexpr const char* kShapes[] = {"constant", "linear", "cosine", "sqrt", nullptr};
  /// [[schedule.segment]]
  static constexpr OptionSpec kSegmentOptions[] = {
      option::real("until", nullptr)
          .between(0, 1)
          .in_unit("of steps")
          .doc_text("share of the run at which the segment ends; 1 for the last one, and only for it"),
      option::integer("until_slot", nullptr)
          .at_least(1)
          .in_unit("slots")
          .doc_text("slot before which it ends, in place of `until`"),
      option::text("shape", "\"constant\"")
          .one_of(kShapes)
          .doc_text("way to `to`: linear u, cosine (1 - cos(pi u)) / 2, sqrt(u), or constant, without `to`"),
      option::real("to", nullptr)
          .at_least(0)
          .in_unit("of the full rate")
          .doc_text("level at the end of the segment, where the next one begins"),
      option::real("lr_scale", "1")
          .at_least(0)
          .doc_text("multiplies the rate within the segment alone; 1: the rate does not jump")};
  static constexpr OptionSpec kOptions[] = {
      kWarmup, option::tables<kSegmentOptions>("segment").doc_text("the pieces of the run, in order")};
  static constexpr ComponentInfo kInfo{.id = "segments",
                                       .summary = "piecewise rate, with a shape and a scale per segment",
                                       .options = kOptions};

  /// Throws Error(kConfig) for segments whose ends do not ascend or do not reach the end of the run.
  explicit Segments(const Options& options);
  double rate(const SchedulePoint& at) const override;

 private:
  struct Segment {
    double until = 0;             ///< share, if until_slot is 0
    std::int64_t until_slot = 0;  ///< 0 = by share
    Curve curve = Curve::kConstant;
    double from = 1, to = 1, scale = 1;
    std::int64_t end(std::int64_t steps) const;
  };

  std::int64_t warmup_;
  std::vector<Segment> segments_;
};

}  // namespace tenon::schedule
