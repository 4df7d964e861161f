// Reading and checking of scaling_file.hpp.
#include "reproduce/scaling_file.hpp"

#include "config/suggest.hpp"
#include "reproduce/study_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kScalingOptions[] = {
    option::integers("points", nullptr).mandatory().doc_text("numbers of trainers, ascending"),
    option::text("alone", "\"\"").doc_text("arm that runs at one trainer only, for all others"),
    option::texts("measured", "[]").doc_text("arms under the wall clock, in a table of their own"),
    option::integers("measured_points", "[1, 2]").doc_text("numbers of trainers of those"),
};

using Say = std::function<void(const std::string&, const std::string&)>;

void check_points(const std::vector<std::int64_t>& points, const std::string& key, const Say& say) {
  if (points.empty()) say(key, "name at least one number of trainers, e.g. points = [1, 2, 5]");
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i] < 1) say(key, fmt::format("{} is no number of trainers; expected 1 or more", points[i]));
    if (i > 0 && points[i] <= points[i - 1])
      say(key, fmt::format("{} follows {}; values must ascend", points[i], points[i - 1]));
  }
}

void check_size(const StudyFile& study, const Size& size, const Say& say) {
  const auto key = [&](const char* name) { return fmt::format("size.{}.{}", size.name, name); };
  if (study.map || study.slabs) return;  // their own: map_file.cpp, slabs_file.cpp
  if (!study.scaling) {
    if (size.samples > 0 || size.measured_samples > 0 || !size.points.empty()) {
      const char* what = size.samples > 0            ? "samples"
                         : size.measured_samples > 0 ? "measured_samples"
                                                     : "points";
      say(key(what), "only a study with a table [scaling] has this; others say steps");
    }
    return;
  }
  if (size.steps != 0)
    say(key("steps"),
        "a study of scaling fixes samples: the steps of a point are samples / (trainers x batch)");
  if (size.samples < 1) say(key("samples"), "how many samples does every run use? e.g. samples = 1000000");
  if (!study.scaling->measured.empty() && size.measured_samples < 1)
    say(key("measured_samples"), "how many samples does a run under the wall clock use?");
  if (!size.points.empty()) check_points(size.points, key("points"), say);
}

}  // namespace

bool Scaling::is_measured(const std::string& arm) const {
  return std::find(measured.begin(), measured.end(), arm) != measured.end();
}

Scaling read_scaling(const Value& table) {
  const OptionRequest request{.table = table, .owner = "scaling", .specs = option_list(kScalingOptions)};
  const Resolution found = resolve_options(request);
  Scaling out;
  out.points = integers_of(*found.options, "points");
  out.measured_points = integers_of(*found.options, "measured_points");
  out.alone = std::string(found.options->text("alone"));
  out.measured = texts_of(*found.options, "measured");
  return out;
}

void check_scaling(const StudyFile& study, const Say& say) {
  for (const Size& size : study.sizes) check_size(study, size, say);
  if (!study.scaling) return;
  const Scaling& scaling = *study.scaling;
  check_points(scaling.points, "scaling.points", say);
  check_points(scaling.measured_points, "scaling.measured_points", say);
  const auto arm_named = [&](const std::string& key, const std::string& name) {
    if (study.arm(name) != nullptr) return;
    std::vector<std::string> names;
    for (const StudyArm& arm : study.arms) names.push_back(arm.arm.name);
    say(key, fmt::format("no arm is called '{}'{}", name, config::suggestion(name, names)));
  };
  if (!scaling.alone.empty()) arm_named("scaling.alone", scaling.alone);
  for (std::size_t i = 0; i < scaling.measured.size(); ++i)
    arm_named(fmt::format("scaling.measured[{}]", i), scaling.measured[i]);
  for (std::size_t i = 0; i < study.arms.size(); ++i) {
    if (study.arms[i].steps_over > 1)
      say(fmt::format("arm[{}].steps_over", i),
          "a study of scaling counts samples, and has no steps to divide");
  }
  if (scaling.is_measured(scaling.alone))
    say("scaling.alone", "the run that speedups refer to cannot be under another clock than they are");
}

}  // namespace tenon::reproduce
