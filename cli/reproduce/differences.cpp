// Reading, computing and printing of differences.hpp.
#include "reproduce/differences.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "reproduce/render.hpp"
#include "reproduce/results.hpp"
#include "reproduce/study_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::reproduce {
namespace {

constexpr auto kQuantities =
    option::choice<Quantity>({{"metric", Quantity::kMetric}, {"parameters", Quantity::kParameters}});

constexpr OptionSpec kCompareOptions[] = {
    option::text("title", "\"\"").doc_text("for the table; the names if absent"),
    option::text("arm", nullptr).mandatory().doc_text("value: ARM, ARM:begin, ARM:STAGE or ARM:STAGE:begin"),
    option::text("minus", nullptr).mandatory().doc_text("the value that is subtracted, seed by seed"),
    option::text("over", "\"\"").doc_text("makes it a share: (arm - minus) / (arm - over)"),
    option::text("of", "\"metric\"")
        .one_of(kQuantities)
        .doc_text("what is compared; of parameters arm / minus - 1"),
    option::real("at_most", nullptr).doc_text("required"),
    option::real("at_least", nullptr).doc_text("required"),
    option::boolean("every_seed", "false").doc_text("required of each seed in place of the mean"),
};

std::optional<double> real_if(const Options& options, std::string_view name) {
  return options.has(name) ? std::optional(options.real(name)) : std::nullopt;
}

std::string title_of(const Difference& d) {
  if (d.over) return fmt::format("({0} − {1}) / ({0} − {2})", d.arm.text(), d.minus.text(), d.over->text());
  if (d.of == Quantity::kParameters)
    return fmt::format("parameters, {} / {} − 1", d.arm.text(), d.minus.text());
  return fmt::format("{} − {}", d.arm.text(), d.minus.text());
}

std::size_t arm_index(const StudyResult& result, const std::string& name) {
  const auto found = std::find_if(result.study.arms.begin(), result.study.arms.end(),
                                  [&](const StudyArm& arm) { return arm.arm.name == name; });
  return found - result.study.arms.begin();
}

/// The value of a name in a run; empty where the run does not have it.
std::optional<double> value_of(const StudyResult& result, const ValueName& name, std::size_t seed,
                               Quantity of) {
  const ArmResult& arm = result.arms.at(arm_index(result, name.arm));
  const RunResult& run = arm.runs.at(seed);
  if (name.stage.empty() && run.stages.empty()) {
    if (of == Quantity::kParameters)
      return arm.parameters.empty() ? std::nullopt : std::optional(std::stod(arm.parameters));
    if (!name.begin) return run.value;
    if (!run.record) return std::nullopt;
    for (const std::string& metric :
         {result.study.arms[arm_index(result, name.arm)].metric, result.study.metric}) {
      const auto series = run.record->series.find(metric);
      if (series == run.record->series.end() || series->second.empty()) continue;
      const ab::MetricPoint& first = series->second.front();
      return first.step == 0 ? std::optional(first.value) : std::nullopt;
    }
    return std::nullopt;
  }
  const auto stage = name.stage.empty()
                         ? std::prev(run.stages.end())
                         : std::find_if(run.stages.begin(), run.stages.end(),
                                        [&](const StageResult& s) { return s.name == name.stage; });
  if (stage == run.stages.end()) return std::nullopt;
  if (of == Quantity::kParameters)
    return stage->parameters > 0 ? std::optional(static_cast<double>(stage->parameters)) : std::nullopt;
  return name.begin ? stage->begin : stage->end;
}

std::optional<double> value_of(const StudyResult& result, const Difference& d, std::size_t seed) {
  const auto arm = value_of(result, d.arm, seed, d.of), minus = value_of(result, d.minus, seed, d.of);
  if (!arm || !minus) return std::nullopt;
  if (d.of == Quantity::kParameters) return *arm / *minus - 1;
  if (!d.over) return *arm - *minus;
  const auto over = value_of(result, *d.over, seed, d.of);
  if (!over || *arm == *over) return std::nullopt;
  return (*arm - *minus) / (*arm - *over);
}

bool holds(const Difference& d, double value) {
  return (!d.at_most || value <= *d.at_most) && (!d.at_least || value >= *d.at_least);
}

std::optional<bool> judged(const DifferenceResult& result) {
  const bool all = std::all_of(result.values.begin(), result.values.end(),
                               [](const std::optional<double>& value) { return value.has_value(); });
  if (!result.what.required() || !all || !result.mean) return std::nullopt;
  if (!result.what.every_seed) return holds(result.what, result.mean->mean);
  return std::all_of(result.values.begin(), result.values.end(),
                     [&](const std::optional<double>& value) { return holds(result.what, *value); });
}

std::string signed_text(double value) {
  return ab::fixed_signed(value, 4);
}

std::string mean_text(const DifferenceResult& d) {
  if (!d.mean) return kNoValue;
  if (d.mean->n < 2) return signed_text(d.mean->mean) + " (one seed)";
  return fmt::format("{} ({} to {})", signed_text(d.mean->mean), signed_text(d.mean->interval.low),
                     signed_text(d.mean->interval.high));
}

std::string required_text(const Difference& d) {
  std::vector<std::string> parts;
  if (d.at_least) parts.push_back("at least " + ab::compact(*d.at_least));
  if (d.at_most) parts.push_back("at most " + ab::compact(*d.at_most));
  return fmt::format("{}, {}", fmt::join(parts, " and "), d.every_seed ? "every seed" : "mean");
}

const char* met_text(const DifferenceResult& d) {
  if (!d.met) return "not measured";
  return *d.met ? "yes" : "**no**";
}

std::string section(const StudyResult& r, bool required) {
  std::vector<std::string> names{required ? "requirement" : "difference"};
  for (const std::int64_t seed : r.size.seeds) names.push_back(fmt::format("seed {}", seed));
  names.push_back(fmt::format("mean ({:g} % interval)", 100 * (1 - r.study.alpha)));
  if (required) names.insert(names.end(), {"required", "met"});
  std::string rows;
  for (const DifferenceResult& d : r.differences) {
    if (d.what.required() != required) continue;
    std::vector<std::string> cells{d.what.title};
    for (const std::optional<double>& value : d.values)
      cells.push_back(value ? signed_text(*value) : std::string(kNoValue));
    cells.push_back(mean_text(d));
    if (required) cells.insert(cells.end(), {required_text(d.what), met_text(d)});
    rows += row(cells);
  }
  if (rows.empty()) return "";
  return fmt::format("\n## {}\n\n{}{}", required ? "Requirements" : "Differences", head(names), rows);
}

}  // namespace

std::string ValueName::text() const {
  return arm + (stage.empty() ? "" : ":" + stage) + (begin ? ":begin" : "");
}

ValueName value_name(const std::string& text) {
  ValueName out;
  std::string rest = text;
  if (rest.ends_with(":begin")) {
    out.begin = true;
    rest.resize(rest.size() - 6);
  }
  const std::size_t colon = rest.find(':');
  out.arm = rest.substr(0, colon);
  if (colon != std::string::npos) out.stage = rest.substr(colon + 1);
  return out;
}

std::vector<config::TableSpecs> difference_tables() {
  return {{"compare", kCompareOptions, true}};
}

std::vector<Difference> read_differences(const Value& root) {
  std::vector<Difference> out;
  const Value* list = root.find("compare");
  for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i) {
    const Resolution found = resolve_options({.table = list->array()[i],
                                              .owner = fmt::format("compare[{}]", i),
                                              .specs = option_list(kCompareOptions)});
    const tenon::Options& options = *found.options;
    const auto name = [&](const char* key) { return value_name(std::string(options.text(key))); };
    Difference d;
    d.title = std::string(options.text("title"));
    d.arm = name("arm");
    d.minus = name("minus");
    if (!options.text("over").empty()) d.over = name("over");
    d.of = options.choice("of", kQuantities);
    d.at_most = real_if(options, "at_most");
    d.at_least = real_if(options, "at_least");
    d.every_seed = options.boolean("every_seed");
    if (d.title.empty()) d.title = title_of(d);
    out.push_back(std::move(d));
  }
  return out;
}

void check_differences(const StudyFile& study, Problems& problems) {
  for (std::size_t i = 0; i < study.differences.size(); ++i) {
    const Difference& d = study.differences[i];
    const auto key = [&](const char* name) { return fmt::format("compare[{}].{}", i, name); };
    problems.arm_named(key("arm"), d.arm.arm);
    problems.arm_named(key("minus"), d.minus.arm);
    if (d.over) problems.arm_named(key("over"), d.over->arm);
    if (d.arm.text() == d.minus.text()) problems.say(key("minus"), "a value minus itself is 0; name another");
    if (d.over && d.of == Quantity::kParameters)
      problems.say(key("over"), "a share is one of the metric; leave out `of` or `over`");
  }
}

void compute_differences(StudyResult& result) {
  for (const Difference& what : result.study.differences) {
    DifferenceResult out{what, {}, {}, {}};
    std::vector<double> known;
    for (std::size_t s = 0; s < result.size.seeds.size(); ++s) {
      out.values.push_back(value_of(result, what, s));
      if (out.values.back()) known.push_back(*out.values.back());
    }
    out.mean = estimate(known, result.study.alpha);
    out.met = judged(out);
    result.differences.push_back(std::move(out));
  }
}

std::string differences_markdown(const StudyResult& r) {
  std::string out = section(r, true) + section(r, false);
  if (out.empty()) return out;
  return out + fmt::format(
                   "\nOf {}, seed by seed; `ARM:begin` is the value before the first update of the last "
                   "stage, `ARM:STAGE` that after a stage.\n",
                   r.study.metric);
}

std::string differences_text(const StudyResult& r) {
  std::string out;
  for (const DifferenceResult& d : r.differences) {
    out += fmt::format("  {}: {}", d.what.title, mean_text(d));
    if (d.what.required())
      out += fmt::format("; required {}: {}", required_text(d.what),
                         !d.met ? "not measured" : (*d.met ? "met" : "NOT MET"));
    out += "\n";
  }
  return out;
}

void differences_json(JsonWriter& json, const StudyResult& r) {
  json.objects("differences", r.differences, [&](const DifferenceResult& d) {
    json.member("title", d.what.title);
    json.member("arm", d.what.arm.text());
    json.member("minus", d.what.minus.text());
    json.member("over", d.what.over ? d.what.over->text() : "");
    json.member("of", d.what.of == Quantity::kMetric ? r.study.metric : "parameters");
    json.objects("seeds", d.values, [&](const std::optional<double>& value) {
      json.member("value", value.value_or(JsonWriter::kNull));
    });
    json.member("mean", d.mean ? d.mean->mean : JsonWriter::kNull);
    json.member("low", d.mean && d.mean->n > 1 ? d.mean->interval.low : JsonWriter::kNull);
    json.member("high", d.mean && d.mean->n > 1 ? d.mean->interval.high : JsonWriter::kNull);
    json.member("at_most", d.what.at_most.value_or(JsonWriter::kNull));
    json.member("at_least", d.what.at_least.value_or(JsonWriter::kNull));
    json.member("every_seed", d.what.every_seed);
    json.member("required", d.what.required());
    json.member("met", d.met.value_or(false));
    json.member("measured", d.met.has_value());
  });
}

}  // namespace tenon::reproduce
