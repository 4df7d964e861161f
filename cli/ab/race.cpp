// The course of race.hpp.
#include "ab/race.hpp"

#include "ab/analysis.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace tenon::ab {
namespace {

class Runners {
 public:
  Runners(const Experiment& experiment, const RaceOptions& options)
      : experiment_(experiment),
        options_(options),
        jobs_(plan_jobs(experiment, options.runner)),
        pairs_(experiment.arms.size(), 0),
        racing_(experiment.arms.size(), true) {}

  bool any() const { return std::find(racing_.begin() + 1, racing_.end(), true) != racing_.end(); }

  /// Gives those that race `pairs` pairs. Returns the runs that are missing for that.
  std::vector<Job> advance(std::size_t pairs) {
    std::vector<Job> missing;
    for (const Job& job : jobs_) {
      const auto seed = std::find(experiment_.seeds.begin(), experiment_.seeds.end(), job.seed);
      const auto s = static_cast<std::size_t>(seed - experiment_.seeds.begin());
      if (racing_[job.arm] && s >= pairs_[job.arm] && s < pairs && !run_completed(job.parent))
        missing.push_back(job);
    }
    for (std::size_t a = 0; a < pairs_.size(); ++a) {
      if (racing_[a]) pairs_[a] = pairs;
    }
    return missing;
  }

  void read(Study& study) const { extend_study(study, experiment_, pairs_); }

  /// Judges the arms that race.
  void look(const Study& study) {
    for (std::size_t a = 1; a < racing_.size(); ++a) {
      if (!racing_[a]) continue;
      const SequentialCourse course = course_of(study, a);
      racing_[a] = !left_the_race(study, a, course);
      if (!options_.looked) continue;
      const Evidence& now = course.looks.back();
      options_.looked(fmt::format("look at {} pairs: {}, e-value of a difference {}{}", now.pairs,
                                  experiment_.arms[a].name, e_value(now.log_e),
                                  racing_[a] ? "" : "; the arm has left the race"));
    }
  }

 private:
  const Experiment& experiment_;
  const RaceOptions& options_;
  std::vector<Job> jobs_;
  std::vector<std::size_t> pairs_;
  std::vector<bool> racing_;
};

}  // namespace

Race run_race(const Experiment& experiment, LookRecord& record, const RaceOptions& options) {
  Runners runners(experiment, options);
  Race race;
  race.study.folder = options.runner.folder;
  race.study.jobs = options.jobs;
  race.study.self_check = options.self_check;
  for (std::size_t pairs = 0; !race.over;) {
    record.check_runs();
    pairs = next_look(*experiment.sequential, pairs);
    std::vector<Job> missing = runners.advance(pairs);
    const bool made = missing.empty() || options.make(std::move(missing));
    // Without the runs of a further look the last one stands.
    if (!made && !race.study.arms.empty() && options.runner.program.empty()) return race;
    runners.read(race.study);
    record.check_values(race.study);
    race.over = !race.study.refusals.empty();
    if (!made || race.over) return race;
    record.add(race.study);
    runners.look(race.study);
    race.over = !runners.any();
  }
  return race;
}

}  // namespace tenon::ab
