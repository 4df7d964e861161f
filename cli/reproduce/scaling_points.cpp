// Points of scaling_points.hpp.
#include "reproduce/scaling_points.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::reproduce {
namespace {

/// The value of one key in a configuration, or `absent`.
std::int64_t integer_at(const Config& config, const char* key, std::int64_t absent) {
  const Value* found = config.find(key);
  return found == nullptr || found->type() != Value::Type::kInteger ? absent : found->integer();
}

bool simulated(const Config& config) {
  const Value* found = config.find("transport.clock.type");
  return found != nullptr && found->is_text() && found->text() == "simulated";
}

std::vector<std::int64_t> points_of(const Scaling& scaling, const Size& size, const std::string& arm) {
  if (scaling.is_measured(arm)) return scaling.measured_points;
  if (arm == scaling.alone) return {1};
  std::vector<std::int64_t> out = size.points.empty() ? scaling.points : size.points;
  if (!scaling.alone.empty()) std::erase(out, 1);
  return out;
}

/// Steps of each trainer. A trainer's slots are divided among its workers, so their number does not matter.
std::int64_t steps_of(const Config& config, const std::string& arm, std::int64_t samples,
                      std::int64_t trainers) {
  const std::int64_t batch = integer_at(config, "data.batch", 0) * integer_at(config, "run.accumulate", 1);
  if (batch < 1) {
    fail_config(
        fmt::format("tenon reproduce: arm '{}' has no data.batch; a study of scaling needs it in the "
                    "configuration, to count steps by samples",
                    arm));
  }
  const std::int64_t slot = batch * trainers;
  if (samples % slot != 0) {
    fail_config(fmt::format(
        "tenon reproduce: arm '{}' at {} trainers: {} samples are not whole slots of {} x {} "
        "samples; the nearest that are: {}",
        arm, trainers, samples, trainers, batch, std::max(samples / slot, std::int64_t{1}) * slot));
  }
  return samples / slot;
}

void check_clock(const Config& config, const StudyArm& arm, bool measured) {
  if (simulated(config) != measured) return;
  fail_config(fmt::format(
      "tenon reproduce: arm '{}' runs under the {} clock, {}", arm.arm.name, measured ? "simulated" : "wall",
      measured ? "but stands in scaling.measured; set transport.clock.type=wall, or take it out"
               : "which belongs into another table; name the arm in scaling.measured, or set "
                 "transport.clock.type=simulated"));
}

}  // namespace

std::string point_name(const std::string& name, std::int64_t trainers) {
  return fmt::format("{}.{}", name, trainers);
}

std::size_t point_count(const StudyFile& study, const Size& size) {
  std::size_t count = 0;
  for (const StudyArm& arm : study.arms)
    count += study.scaling ? points_of(*study.scaling, size, arm.arm.name).size() : 1;
  return count;
}

StudyFile at_points(const StudyFile& study, const Size& size) {
  if (!study.scaling) return study;
  StudyFile out = study;
  out.arms.clear();
  for (const StudyArm& arm : study.arms) {
    const bool measured = study.scaling->is_measured(arm.arm.name);
    std::vector<std::string> words = size.set;
    words.insert(words.end(), arm.arm.set.begin(), arm.arm.set.end());
    const Config config = Config::load(study.base, words, arm.arm.extends);
    check_clock(config, arm, measured);
    for (const std::int64_t trainers : points_of(*study.scaling, size, arm.arm.name)) {
      StudyArm point = arm;
      point.of = arm.arm.name;
      point.trainers = trainers;
      point.arm.name = point_name(arm.arm.name, trainers);
      point.arm.set.push_back(fmt::format("parallel.ranks={}", trainers));
      point.added = 1;
      const std::int64_t samples = measured ? size.measured_samples : size.samples;
      point.arm.steps = steps_of(config, arm.arm.name, samples, trainers);
      point.baseline = point_name(arm.baseline, trainers);
      out.arms.push_back(std::move(point));
    }
  }
  // An arm whose baseline lacks this point, or uses another clock, is not compared.
  for (StudyArm& arm : out.arms) {
    const StudyArm* baseline = out.arm(arm.baseline);
    if (baseline == nullptr || study.scaling->is_measured(arm.of) != study.scaling->is_measured(baseline->of))
      arm.baseline = arm.arm.name;
  }
  return out;
}

}  // namespace tenon::reproduce
