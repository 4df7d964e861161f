// A schedule made outside the tree.
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

namespace {

class Sawtooth final : public tenon::Schedule {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {tenon::option::integer("period", "4")
                                                       .at_least(1)
                                                       .in_unit("steps")
                                                       .doc_text("steps from one peak to the next")};
  static constexpr tenon::ComponentInfo kInfo{
      .id = "sawtooth", .summary = "linear decay, again and again", .options = kOptions};

  explicit Sawtooth(const tenon::Options& options) : period_(options.integer("period")) {}

  double rate(const tenon::SchedulePoint& point) const override {
    return point.base_lr * (1.0 - static_cast<double>(point.slot % period_) / static_cast<double>(period_));
  }

 private:
  std::int64_t period_;
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "outside.sawtooth", .version = "0.1.0", .summary = "sawtooth schedule"},
             Sawtooth)
