// Recovery `full`: the save schedules and the answers to failures.
#include "full.hpp"

#include <tenon/error.hpp>

#include <optional>
#include <string>

namespace tenon::recovery_basic {
namespace {

constexpr std::int64_t kDefaultEvery = 100;

std::optional<double> seconds(const Options& options, const char* name) {
  return options.has(name) ? std::optional(options.real(name)) : std::nullopt;
}

void check(const Options& options) {
  std::string given;
  int ways = 0;
  for (const char* name : {"every", "every_seconds", "mtbf_seconds"}) {
    if (!options.has(name)) continue;
    given += (ways++ == 0 ? "'" : " and '") + std::string(name) + "'";
  }
  if (ways > 1) {
    fail_config("recovery: found " + given +
                ", which exclude each other; keep one of every (slots), every_seconds and mtbf_seconds");
  }
  if (options.has("save_seconds") && !options.has("mtbf_seconds")) {
    fail_config("recovery: option 'save_seconds' means nothing without mtbf_seconds; add it or leave both");
  }
}

SaveClockSettings clock_settings(const Options& options) {
  check(options);
  return {.every = seconds(options, "every_seconds"),
          .mtbf = seconds(options, "mtbf_seconds"),
          .cost = seconds(options, "save_seconds"),
          .daly = options.text("formula") == "daly"};
}

}  // namespace

Full::Full(const Options& options)
    : every_(options.has("every") ? options.integer("every") : kDefaultEvery),
      clock_(clock_settings(options)),
      keep_(static_cast<int>(options.integer("keep"))),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")) {
  if (clock_.active()) every_ = 0;
}

SavePlan Full::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  const bool regular = every_ > 0 && moment.slot > 0 && moment.slot % every_ == 0;
  const bool last = moment.slot == moment.steps;
  plan.save = regular || moment.requested || (last && save_at_end_);
  plan.background = background_;
  if (plan.save) clock_.saving(moment);
  return plan;
}

void Full::on_save(const SaveResult& result) {
  clock_.ended(result.status == SaveStatus::kCommitted, result.status == SaveStatus::kSkipped);
}

}  // namespace tenon::recovery_basic
