// The plugin `tenon.schedule_basic`: learning rates that begin with a linear warm-up. `segments` is in a file
// of its own.
#include "segments.hpp"
#include "warmup.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

#include <cmath>
#include <numbers>

namespace tenon::schedule {

namespace {

constexpr OptionSpec kMinLr =
    option::real("min_lr", "0").at_least(0).doc_text("absolute learning rate at which the decay ends");

}  // namespace

/// Schedule `constant`: the full rate after warm-up.
class Constant final : public Schedule {
 public:
  static constexpr OptionSpec kOptions[] = {kWarmup};
  static constexpr ComponentInfo kInfo{
      .id = "constant", .summary = "constant rate after linear warm-up", .options = kOptions};

  explicit Constant(const Options& options) : warmup_(options.integer("warmup")) {}
  double rate(const SchedulePoint& at) const override {
    return warming(at.slot, warmup_) ? warmup_rate(at.base_lr, at.slot, warmup_) : at.base_lr;
  }

 private:
  std::int64_t warmup_;
};

/// Schedule `cosine` (Loshchilov and Hutter, ICLR 2017, one cycle): after warm-up
///   min_lr + (lr - min_lr) (1 + cos(pi (t - warmup) / (steps - warmup))) / 2
class Cosine final : public Schedule {
 public:
  static constexpr OptionSpec kOptions[] = {
      kWarmup, kMinLr,
      option::integer("steps", nullptr)
          .at_least(1)
          .in_unit("slots")
          .doc_text("slot at which min_lr is reached and kept; absent: the planned end of the run")};
  static constexpr ComponentInfo kInfo{
      .id = "cosine", .summary = "half a cosine down to min_lr after linear warm-up", .options = kOptions};

  explicit Cosine(const Options& options)
      : warmup_(options.integer("warmup")),
        min_lr_(options.real("min_lr")),
        steps_(options.has("steps") ? options.integer("steps") : 0) {}
  double rate(const SchedulePoint& at) const override {
    if (warming(at.slot, warmup_)) return warmup_rate(at.base_lr, at.slot, warmup_);
    const double u = progress(at.slot, warmup_, steps_ > 0 ? steps_ : at.steps);
    return min_lr_ + 0.5 * (at.base_lr - min_lr_) * (1.0 + std::cos(std::numbers::pi * u));
  }

 private:
  std::int64_t warmup_;
  double min_lr_;
  std::int64_t steps_;  // 0: the run's
};

/// Schedule `wsd` (warm-up, stable, decay; Hu et al. 2024, Hägele et al. 2024): the full rate until the last
/// share of the run, then down to min_lr by u (linear) or sqrt(u), where u is the progress of the decay.
class Wsd final : public Schedule {
 public:
  static constexpr const char* kShapes[] = {"linear", "sqrt", nullptr};
  static constexpr OptionSpec kOptions[] = {
      kWarmup, kMinLr,
      option::real("decay", "0.2")
          .between(0, 1)
          .doc_text("fraction of the run, at its end, over which the rate decays")
          .in_unit("of steps"),
      option::text("shape", "\"linear\"").one_of(kShapes).doc_text("linear: 1 - u; sqrt: 1 - sqrt(u)")};
  static constexpr ComponentInfo kInfo{.id = "wsd", .summary = "warm-up, stable, decay", .options = kOptions};

  explicit Wsd(const Options& options)
      : warmup_(options.integer("warmup")),
        min_lr_(options.real("min_lr")),
        decay_(options.real("decay")),
        linear_(options.text("shape") == "linear") {}
  double rate(const SchedulePoint& at) const override {
    if (warming(at.slot, warmup_)) return warmup_rate(at.base_lr, at.slot, warmup_);
    // Near 2^63 slots rounding may raise the product above the number of slots.
    const double share = decay_ * static_cast<double>(at.steps);
    const std::int64_t begin = share < static_cast<double>(at.steps) ? at.steps - std::llround(share) : 0;
    if (at.slot < begin) return at.base_lr;
    const double u = progress(at.slot, begin, at.steps);
    return min_lr_ + (at.base_lr - min_lr_) * (1.0 - (linear_ ? u : std::sqrt(u)));
  }

 private:
  std::int64_t warmup_;
  double min_lr_, decay_;
  bool linear_;
};

}  // namespace tenon::schedule

TENON_PLUGIN(
    tenon::PluginInfo{.id = "tenon.schedule_basic",
                      .version = "0.1.0",
                      .summary = "constant, cosine, warm-up-stable-decay and piecewise learning rates"},
    tenon::schedule::Constant, tenon::schedule::Cosine, tenon::schedule::Segments, tenon::schedule::Wsd)
