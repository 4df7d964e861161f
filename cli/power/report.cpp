// Tables and JSON; see report.hpp.
#include "power/report.hpp"

#include "base/json_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tenon::power {
namespace {

/// Four significant digits with a prefix: "44.8 kW".
std::string amount(double value, const char* unit) {
  if (!std::isfinite(value)) return "not measured";
  static constexpr struct {
    double scale;
    const char* prefix;
  } kPrefixes[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  for (const auto& [scale, prefix] : kPrefixes) {
    if (std::abs(value) < scale && scale > 1) continue;
    return fmt::format("{:.4g} {}{}", value / scale, prefix, unit);
  }
  return "";
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.4g} %", 100 * share) : "not measured";
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + " |";
  return out + "\n";
}

std::string rule(std::size_t columns) {
  std::string out = "|---|";
  for (std::size_t i = 1; i < columns; ++i) out += "---:|";
  return out + "\n";
}

std::string verdict_cell(const VerdictPart& part) {
  if (!std::isfinite(part.value)) return "not measured";
  return fmt::format("{:.4g} {}", part.value, part.passes ? "passes" : "**fails**");
}

void verdict_json(JsonWriter& json, const Reading& reading) {
  json.objects("verdict", reading.verdict, [&](const VerdictPart& part) {
    json.member("part", part.name);
    json.member("unit", part.unit);
    json.member("value", part.value);
    json.member("limit", part.limit);
    json.member("passes", part.passes);
  });
  json.member("passes", reading.passes());
}

/// `unit` ends the names of figures that have one.
void members(JsonWriter& json, const Reading& reading, std::string_view unit = "w") {
  const auto member = [&](std::string_view name, double value) {
    json.member(fmt::format("{}_{}", name, unit), value);
  };
  json.member("seconds", reading.seconds);
  json.member("rate_hz", reading.rate_hz);
  json.member("update_hz", reading.update_hz);
  member("mean", reading.mean);
  member("lowest", reading.lowest);
  member("highest", reading.highest);
  json.objects("ramps", reading.ramps, [&](const Ramp& ramp) {
    json.member("window_s", ramp.window_s);
    json.member(fmt::format("up_{}_per_s", unit), ramp.up);
    json.member(fmt::format("down_{}_per_s", unit), ramp.down);
  });
  json.member("range_window_s", reading.range_window_s);
  member("range", reading.range);
  json.member("band_low_hz", reading.band_low_hz);
  json.member("band_high_hz", reading.band_high_hz);
  json.member("band_share", reading.band_share);
  member("band_rms", reading.band_rms);
  json.member("band_rms_of_mean", reading.band_rms_share);
  json.member("peak_hz", reading.peak_hz);
  member("peak_amplitude", reading.peak_amplitude);
  json.objects("notes", reading.notes, [&](const std::string& note) { json.member("text", note); });
  verdict_json(json, reading);
}

void spec_json(JsonWriter& json, const GridSpec& spec, double rated_watts) {
  json.begin_object("spec");
  json.member("name", spec.name);
  json.member("note", spec.note);
  json.member("file", spec.path);
  json.member("rated_watts", rated_watts);
  json.end_object();
}

std::string policies_markdown(const SimulationResult& result) {
  if (result.policies.empty()) return "";
  std::string out = "\n## Policies (modelled)\n\n";
  out += row({"policy", "place", "added and burnt", "withheld", "into storage", "out of storage",
              "violations", "further"});
  out += rule(8);
  for (const PolicyResult& policy : result.policies) {
    const Played& p = policy.played;
    std::string further;
    for (const auto& [name, value] : p.account)
      further += fmt::format("{}{} {:.4g}", further.empty() ? "" : ", ", name, value);
    out += row(
        {p.policy, policy.at_site ? "site" : "worker 0", amount(p.burnt_j, "J"), amount(p.withheld_j, "J"),
         amount(p.charged_j, "J"), amount(p.discharged_j, "J"),
         percent(p.out.empty() ? 0 : static_cast<double>(p.violations) / static_cast<double>(p.out.size())),
         further});
  }
  return out;
}

std::vector<std::string> all_notes(const Plan& plan, const SimulationResult& result) {
  std::vector<std::string> notes = plan.notes;
  for (const Stage& stage : result.stages) {
    for (const std::string& note : stage.reading.notes) {
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
    }
  }
  return notes;
}

double more(const SimulationResult& result, const Stage& stage) {
  const double before = result.stages.front().energy_j;
  return before > 0 ? stage.energy_j / before - 1 : 0;
}

}  // namespace

std::string table_markdown(const Plan& plan, const SimulationResult& result) {
  const Reading& first = result.stages.front().reading;
  std::string out = fmt::format("# Power of {}: modelled\n\n", plan.name);
  out += fmt::format(
      "Every number on this page is modelled: phases of {} become power by the levels of *{}*; no sensor was "
      "read.\n\n",
      plan.logs.size() == 1 ? plan.logs[0].source == "script" ? "a script" : "one timeline"
                            : fmt::format("{} timelines", plan.logs.size()),
      plan.levels.name);
  out += fmt::format("- Levels: {} ({}){}{}\n", plan.levels.name, plan.levels.path,
                     plan.levels.note.empty() ? "" : ": ", plan.levels.note);
  out += fmt::format("- Specification: {} ({}){}{}\n", plan.spec.name, plan.spec.path,
                     plan.spec.note.empty() ? "" : ": ", plan.spec.note);
  out += fmt::format(
      "- Site: {} worker{} of {}, offsets {} with a drawn deviation of {:g} s, {} constant; rated power {}\n",
      plan.workers.count, plan.workers.count == 1 ? "" : "s", amount(plan.levels.rated_watts, "W"),
      plan.offsets == Offsets::kMeasured ? "as in the phases" : "aligned", plan.workers.jitter_s,
      percent(plan.constant_share), amount(plan.site_rated_watts(), "W"));
  out += fmt::format(
      "- Time: {:.6g} s at {:g} Hz, idle for {:g} s before and after the job; metrics are those of {}",
      result.stages.front().trace.seconds(), plan.rate_hz, plan.lead_s,
      plan.measured == Measured::kAll ? "all of it"
      : plan.settle_s > 0             ? fmt::format("the job after its first {:g} s", plan.settle_s)
                                      : "the job");
  if (result.delay_s > 0) out += fmt::format("; throttling makes the job {:.4g} s longer", result.delay_s);
  out += "\n\n## Site (modelled)\n\n";
  out += row({"after", "mean", "lowest", "highest", "ramp up, 0.1 s", "ramp down, 0.1 s", "ramp up, 1 s",
              "ramp down, 1 s", fmt::format("range, {:g} s", first.range_window_s),
              fmt::format("band {:g} to {:g} Hz", first.band_low_hz, first.band_high_hz), "band rms",
              "rms of mean", "peak line", "its amplitude", "energy"});
  out += rule(15);
  for (const Stage& stage : result.stages) {
    const Reading& r = stage.reading;
    out += row({stage.name, amount(r.mean, "W"), amount(r.lowest, "W"), amount(r.highest, "W"),
                amount(r.ramps[0].up, "W/s"), amount(r.ramps[0].down, "W/s"), amount(r.ramps[1].up, "W/s"),
                amount(r.ramps[1].down, "W/s"), amount(r.range, "W"), percent(r.band_share),
                amount(r.band_rms, "W"), percent(r.band_rms_share), fmt::format("{:.4g} Hz", r.peak_hz),
                amount(r.peak_amplitude, "W"),
                &stage == &result.stages.front() ? amount(stage.energy_j, "J")
                                                 : fmt::format("{:+.4g} %", 100 * more(result, stage))});
  }
  out += "\nThe band's share is of the energy of the unmitigated trace.\n";
  out += fmt::format("\n## Against {} (modelled)\n\n", plan.spec.name);
  out += row({"after",
              fmt::format("ramp up <= {:g} rated/s over {:g} s", plan.spec.ramp_up, plan.spec.ramp_window_s),
              fmt::format("ramp down <= {:g} rated/s", plan.spec.ramp_down),
              fmt::format("range <= {:g} rated in {:g} s", plan.spec.range, plan.spec.range_window_s),
              fmt::format("band share <= {:g}", plan.spec.band_share), "all"});
  out += rule(6);
  for (const Stage& stage : result.stages) {
    std::vector<std::string> cells{stage.name};
    for (const VerdictPart& part : stage.reading.verdict) cells.push_back(verdict_cell(part));
    cells.push_back(stage.reading.passes() ? "passes" : "**fails**");
    out += row(cells);
  }
  out += policies_markdown(result);
  const std::vector<std::string> notes = all_notes(plan, result);
  if (!notes.empty()) out += "\n## Notes\n\n";
  for (const std::string& note : notes) out += "- " + note + "\n";
  return out;
}

std::string result_json(const Plan& plan, const SimulationResult& result) {
  JsonWriter json;
  json.begin_object();
  json.member("format", "tenon.power");
  json.member("version", 1);
  json.member("label", "modelled");
  json.member("name", plan.name);
  json.member("rate_hz", plan.rate_hz);
  json.member("workers", plan.workers.count);
  json.member("jitter_s", plan.workers.jitter_s);
  json.member("constant_share", plan.constant_share);
  json.begin_object("levels");
  json.member("name", plan.levels.name);
  json.member("note", plan.levels.note);
  json.member("file", plan.levels.path);
  json.member("rated_watts", plan.levels.rated_watts);
  json.end_object();
  spec_json(json, plan.spec, plan.site_rated_watts());
  json.objects("phases", plan.logs, [&](const PhaseLog& log) { json.member("source", log.source); });
  json.member("measured", plan.measured == Measured::kAll ? "all" : "job");
  json.member("settle_s", plan.settle_s);
  json.member("delay_s", result.delay_s);
  json.objects("stages", result.stages, [&](const Stage& stage) {
    json.member("after", stage.name);
    json.member("label", "modelled");
    json.member("energy_j", stage.energy_j);
    json.member("more_energy", more(result, stage));
    members(json, stage.reading);
  });
  json.objects("policies", result.policies, [&](const PolicyResult& policy) {
    const Played& p = policy.played;
    json.member("type", p.policy);
    json.member("at", policy.at_site ? "site" : "worker");
    json.member("label", "modelled");
    json.member("rated_watts", policy.rated_watts);
    json.member("burnt_j", p.burnt_j);
    json.member("withheld_j", p.withheld_j);
    json.member("charged_j", p.charged_j);
    json.member("discharged_j", p.discharged_j);
    json.member("violation_share",
                p.out.empty() ? 0 : static_cast<double>(p.violations) / static_cast<double>(p.out.size()));
    json.begin_object("account");
    for (const auto& [name, value] : p.account) json.member(name, value);
    json.end_object();
  });
  json.objects("notes", all_notes(plan, result), [&](const std::string& note) { json.member("text", note); });
  json.end_object();
  return json.take();
}

std::string traces_csv(const SimulationResult& result) {
  std::string out = "seconds";
  std::size_t longest = 0;
  for (const Stage& stage : result.stages) {
    out += ",modelled_w:" + stage.name;
    longest = std::max(longest, stage.trace.watts.size());
  }
  for (const PolicyResult& policy : result.policies)
    if (!policy.played.charge_j.empty()) out += fmt::format(",modelled_charge_j:{}", policy.played.policy);
  out += "\n";
  const double rate = result.stages.front().trace.rate_hz;
  const auto column = [&](const std::vector<double>& values, std::size_t i) {
    out += ',';
    if (i < values.size()) fmt::format_to(std::back_inserter(out), "{:.7g}", values[i]);
  };
  for (std::size_t i = 0; i < longest; ++i) {
    fmt::format_to(std::back_inserter(out), "{:.9g}", static_cast<double>(i) / rate);
    for (const Stage& stage : result.stages) column(stage.trace.watts, i);
    for (const PolicyResult& policy : result.policies)
      if (!policy.played.charge_j.empty()) column(policy.played.charge_j, i);
    out += '\n';
  }
  return out;
}

std::string closing_text(const Plan& plan, const SimulationResult& result) {
  std::string out = fmt::format("modelled: {} workers, levels {}, {:.4g} s at {:g} Hz\n", plan.workers.count,
                                plan.levels.name, result.stages.front().trace.seconds(), plan.rate_hz);
  for (const Stage& stage : result.stages) {
    const Reading& r = stage.reading;
    out += fmt::format("  {:<28} mean {}, range {}, band {}, energy {:+.3g} %: {}\n", stage.name,
                       amount(r.mean, "W"), amount(r.range, "W"), percent(r.band_share),
                       100 * more(result, stage), r.passes() ? "passes" : "fails");
    for (const VerdictPart& part : r.verdict)
      if (!part.passes)
        out += fmt::format("      {} {:.4g} {}, limit {:g}\n", part.name, part.value, part.unit, part.limit);
  }
  for (const std::string& note : all_notes(plan, result)) out += "  note: " + note + "\n";
  return out + fmt::format("  ->  {}\n", plan.folder);
}

std::string reading_text(const Reading& r, const Trace& trace, const GridSpec& spec, double rated,
                         bool rated_given, const std::string& path) {
  std::string out =
      fmt::format("{}: {:.6g} s, {:.6g} samples a second, {:.4g} new values a second; {}\n", path, r.seconds,
                  r.rate_hz, r.update_hz,
                  trace.sensor.empty() ? "where the numbers come from is for the file's author to say"
                                       : "by the file's own word: " + trace.sensor);
  if (trace.is_share) out += "  shares of a resource, a proxy of power: no figure below is in watts\n";
  const std::string unit = trace.is_share ? "shares" : "W";
  const auto amount_of = [&](double value, const char* per = "") {
    return amount(value, (unit + per).c_str());
  };
  const auto line = [&](const std::string& name, const std::string& value) {
    out += fmt::format("  {:<22}{}\n", name, value);
  };
  line("mean", amount_of(r.mean));
  line("lowest, highest", amount_of(r.lowest) + ", " + amount_of(r.highest));
  for (const Ramp& ramp : r.ramps)
    line(fmt::format("ramp over {:g} s", ramp.window_s),
         amount_of(ramp.up, "/s") + " up, " + amount_of(ramp.down, "/s") + " down");
  line(fmt::format("range in {:g} s", r.range_window_s), amount_of(r.range));
  line("band",
       fmt::format("{:g} to {:g} Hz: {} of the energy of changes, {} rms, {} of the mean", r.band_low_hz,
                   r.band_high_hz, percent(r.band_share), amount_of(r.band_rms), percent(r.band_rms_share)));
  line("peak line", fmt::format("{:.4g} Hz, amplitude {}", r.peak_hz, amount_of(r.peak_amplitude)));
  for (const std::string& note : r.notes) line("note", note);
  out += fmt::format("against {}, {} {}{}:\n", spec.name, trace.is_share ? "rated share" : "rated power",
                     amount_of(rated),
                     rated_given || trace.is_share ? "" : " (the highest sample; --rated says otherwise)");
  for (const VerdictPart& part : r.verdict)
    line(part.name, std::isfinite(part.value)
                        ? fmt::format("{:.4g} {}, limit {:g}: {}", part.value, part.unit, part.limit,
                                      part.passes ? "passes" : "fails")
                        : "not measured: fails");
  return out + fmt::format("  {}\n", r.passes() ? "passes" : "fails");
}

std::string reading_json(const Reading& reading, const Trace& trace, const GridSpec& spec, double rated,
                         const std::string& path) {
  JsonWriter json;
  json.begin_object();
  json.member("file", path);
  json.member("sensor", trace.sensor);
  json.member("unit", trace.is_share ? "share" : "watts");
  spec_json(json, spec, rated);
  members(json, reading, trace.is_share ? "share" : "w");
  json.end_object();
  return json.take();
}

}  // namespace tenon::power
