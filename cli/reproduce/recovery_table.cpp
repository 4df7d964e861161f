// Tables, JSON and terminal lines of recovery_render.hpp.
#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "reproduce/recovery_render.hpp"
#include "reproduce/render.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::reproduce {
namespace {

/// "8.21 (7.90 to 8.52)"; one run has no interval.
std::string interval_text(const std::optional<ab::MeanEstimate>& value, int decimals, bool sign = false) {
  if (!value) return "–";
  const auto text = [&](double number) {
    return sign ? ab::fixed_signed(number, decimals) : ab::fixed(number, decimals);
  };
  if (value->n < 2) return text(value->mean);
  return fmt::format("{} ({} to {})", text(value->mean), text(value->interval.low),
                     text(value->interval.high));
}

std::string charged_table(const StudyResult& r) {
  std::string out =
      head({"arm", "failures", "saves", "written, complete saves", "MB a save", "ms a save", "save, h",
            "load, h", "restart, h", "repeated, h", "overhead, %", "full / arm", "PLS", "lost accesses, %"});
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.recovery->arms[a];
    if (arm.runs.empty()) continue;
    out += row({r.study.arms[a].title, ab::fixed(arm.failures, 1), ab::fixed(arm.saves, 0),
                ab::fixed(arm.written_share, 2),
                arm.saves > 0 ? ab::fixed(arm.written / arm.saves / 1e6, 2) : "–",
                arm.saves > 0 ? ab::fixed(1e3 * arm.save_s, 0) : "–", ab::fixed(arm.charged.save, 3),
                ab::fixed(arm.charged.load, 3), ab::fixed(arm.charged.restart, 3),
                ab::fixed(arm.charged.repeat, 3), interval_text(arm.overhead_percent, 2),
                interval_text(arm.ratio, 1), interval_text(arm.pls, 4), interval_text(arm.lost_accesses, 1)});
  }
  return out;
}

std::string drawn_table(const StudyResult& r) {
  std::string out = head({"arm", "schedules", "failures, mean", "overhead, %", "full / arm, mean of ratios",
                          "ratio of means", "PLS, mean", "PLS, by equation"});
  bool any = false;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const std::optional<ScheduleDraws>& drawn = r.recovery->arms[a].drawn;
    if (!drawn) continue;
    any = true;
    const bool partial = drawn->pls.n > 0;
    out += row({r.study.arms[a].title, std::to_string(drawn->draws), ab::fixed(drawn->failures, 2),
                interval_text(drawn->overhead_percent, 2), interval_text(drawn->ratio, 1),
                ab::fixed(drawn->ratio_of_means, 1), partial ? interval_text(drawn->pls, 4) : "–",
                drawn->law ? ab::fixed(*drawn->law, 4) : "–"});
  }
  return any ? out : "";
}

void members(JsonWriter& json, const char* name, const std::optional<ab::MeanEstimate>& value) {
  json.begin_object(name);
  json.member("mean", value ? value->mean : JsonWriter::kNull);
  json.member("low", value ? value->interval.low : JsonWriter::kNull);
  json.member("high", value ? value->interval.high : JsonWriter::kNull);
  json.member("n", static_cast<std::int64_t>(value ? value->n : 0));
  json.end_object();
}

}  // namespace

std::string recovery_tables(const StudyResult& r) {
  std::string out = "\n## What failures and saves cost\n\n" + charged_table(r);
  out +=
      "\nHours of the emulated job, mean over the seeds: sums of what each executed event was charged "
      "(recovery.jsonl), in brackets the interval over the seeds. Bytes of a save by those of a complete "
      "one. "
      "Milliseconds are of this machine: copy, write, sync, verification. PLS: portion of lost samples, by "
      "the "
      "policy's account; lost accesses: of all so far, those of lost rows since each was saved, summed over "
      "failures.\n";
  const std::string drawn = drawn_table(r);
  if (!drawn.empty()) {
    out += "\n## Schedules without training\n\n" + drawn;
    out +=
        "\nEach arm's saves as its runs made and paid them, under failures drawn anew; the same draws for "
        "all arms.\n";
  }
  if (!r.recovery->pairs.empty()) {
    out += fmt::format("\n## Differences in {}, per pair of equal seeds\n\n", r.study.metric);
    out += head({"arms", "difference", "pairs"});
    for (const RecoveryDifference& pair : r.recovery->pairs)
      out += row(
          {pair.title, interval_text(pair.value, 5, true), std::to_string(pair.value ? pair.value->n : 0)});
  }
  if (!r.recovery->fits.empty()) {
    out += fmt::format("\n## Lost samples against {}\n\n", r.study.metric);
    out += head(
        {"failures", "arms", "slope per unit of PLS", "at PLS 0", "correlation of means", "of single runs"});
    for (const RecoveryFit& fit : r.recovery->fits)
      out += row({fit.title, std::to_string(fit.points.size()), ab::fixed_signed(fit.slope, 4),
                  ab::fixed_signed(fit.intercept, 5), ab::fixed(fit.correlation, 3),
                  ab::fixed(fit.correlation_of_runs, 3)});
    out +=
        "\nLeast squares through one point per arm: its portion of lost samples, and its metric minus the "
        "baseline's over pairs of equal seeds.\n";
  }
  if (!r.recovery->access_shares.empty()) {
    out += "\nShare of all row accesses that each failure domain has:";
    for (const double share : r.recovery->access_shares) out += " " + ab::fixed(100 * share, 1);
    out += " %.";
  }
  for (const RecoveryArm& arm : r.recovery->arms) {
    if (!arm.always_whole) continue;
    out += fmt::format(" Tables that every priority save writes whole hold {} % of the tables' bytes.",
                       ab::fixed(100 * *arm.always_whole, 1));
    break;
  }
  return out + "\n";
}

void recovery_json(JsonWriter& json, const StudyResult& r) {
  json.begin_object("recovery");
  json.begin_array("arms");
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.recovery->arms[a];
    json.begin_object();
    json.member("name", r.study.arms[a].arm.name);
    json.member("failures", arm.failures);
    json.member("saves", arm.saves);
    json.member("written_in_complete_saves", arm.written_share);
    json.member("written_bytes", arm.written);
    json.member("save_seconds", arm.save_s);
    json.member("save_hours", arm.charged.save);
    json.member("load_hours", arm.charged.load);
    json.member("restart_hours", arm.charged.restart);
    json.member("repeat_hours", arm.charged.repeat);
    members(json, "overhead_percent", arm.overhead_percent);
    members(json, "full_over_arm", arm.ratio);
    members(json, "pls", arm.pls);
    members(json, "lost_access_percent", arm.lost_accesses);
    if (arm.drawn) {
      json.begin_object("schedules");
      json.member("draws", arm.drawn->draws);
      json.member("failures", arm.drawn->failures);
      members(json, "overhead_percent", arm.drawn->overhead_percent);
      members(json, "full_over_arm", arm.drawn->ratio);
      json.member("full_over_arm_of_means", arm.drawn->ratio_of_means);
      members(json, "pls", arm.drawn->pls.n > 0 ? std::optional(arm.drawn->pls) : std::nullopt);
      json.member("pls_by_equation", arm.drawn->law ? *arm.drawn->law : JsonWriter::kNull);
      json.end_object();
    }
    json.end_object();
  }
  json.end_array();
  json.begin_array("differences");
  for (const RecoveryDifference& pair : r.recovery->pairs) {
    json.begin_object();
    json.member("title", pair.title);
    members(json, "value", pair.value);
    json.end_object();
  }
  json.end_array();
  json.objects("lines", r.recovery->fits, [&](const RecoveryFit& fit) {
    json.member("title", fit.title);
    json.member("slope", fit.slope);
    json.member("intercept", fit.intercept);
    json.member("correlation", fit.correlation);
    json.member("correlation_of_runs", fit.correlation_of_runs);
    json.objects("points", fit.points, [&](const RecoveryFit::Point& point) {
      json.member("pls", point.pls);
      members(json, "difference", point.difference);
    });
  });
  json.end_object();
}

std::string recovery_text(const StudyResult& r) {
  std::string out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.recovery->arms[a];
    if (arm.runs.empty()) continue;
    out += fmt::format("  {:<24}overhead {} %", r.study.arms[a].arm.name,
                       interval_text(arm.overhead_percent, 2));
    if (arm.drawn)
      out += fmt::format("; over {} schedules {} %, full / arm {}", arm.drawn->draws,
                         ab::fixed(arm.drawn->overhead_percent.mean, 2), ab::fixed(arm.drawn->ratio.mean, 1));
    if (r.arms[a].value) out += fmt::format("; {} {}", r.study.metric, ab::fixed(r.arms[a].value->mean, 4));
    out += "\n";
  }
  for (const RecoveryDifference& pair : r.recovery->pairs)
    out += fmt::format("  {}: {}\n", pair.title, interval_text(pair.value, 5, true));
  for (const RecoveryFit& fit : r.recovery->fits)
    out += fmt::format("  {}: slope {} per unit of PLS, correlation {}\n", fit.title,
                       ab::fixed_signed(fit.slope, 4), ab::fixed(fit.correlation, 3));
  return out;
}

}  // namespace tenon::reproduce
