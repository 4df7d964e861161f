// Schedule `mean_of`: the mean of other schedules, which are a list of components.
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

#include <vector>

namespace {

using namespace tenon;

class MeanOf final : public Schedule {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::components("part", Schedule::kKind).mandatory().doc_text("schedules whose mean it is")};
  static constexpr ComponentInfo kInfo{
      .id = "mean_of", .summary = "the mean of other schedules", .options = kOptions};

  explicit MeanOf(const Options& options) : parts_(options.components<Schedule>("part")) {}

  double rate(const SchedulePoint& at) const override {
    double sum = 0;
    for (const Schedule* part : parts_) sum += part->rate(at);
    return sum / static_cast<double>(parts_.size());
  }

 private:
  std::vector<Schedule*> parts_;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "acme.listed", .version = "1.0.0", .summary = "a list of components"}, MeanOf)
