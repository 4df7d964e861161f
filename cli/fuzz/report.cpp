#include "fuzz/report.hpp"

#include "ab/format.hpp"
#include "ab/html.hpp"
#include "ab/svg.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace tenon::fuzz {
namespace {

using Json = nlohmann::ordered_json;

std::string kind_of(const std::string& component) {
  return component.substr(0, component.find('.'));
}

struct IdentityCount {
  std::string name, about;
  int held = 0, left_out = 0, failed = 0;
};

std::vector<IdentityCount> count_identities(const FuzzRun& run) {
  std::vector<IdentityCount> counts;
  for (const IdentityText& identity : all_identities()) {
    IdentityCount count{identity.name, identity.about};
    for (const Judged& judged : run.judged) {
      const Verdict& verdict = judged.verdict;
      count.held += static_cast<int>(std::count(verdict.held.begin(), verdict.held.end(), identity.name));
      for (const auto& [name, why] : verdict.left_out) count.left_out += name == identity.name ? 1 : 0;
      count.failed += verdict.finding && verdict.finding->identity == identity.name ? 1 : 0;
    }
    counts.push_back(count);
  }
  return counts;
}

std::size_t accepted(const FuzzRun& run) {
  return std::count_if(run.judged.begin(), run.judged.end(),
                       [](const Judged& judged) { return judged.verdict.accepted; });
}

std::vector<const Judged*> failures(const FuzzRun& run) {
  std::vector<const Judged*> failed;
  for (const Judged& judged : run.judged)
    if (judged.verdict.finding) failed.push_back(&judged);
  return failed;
}

double median_seconds(const FuzzRun& run) {
  std::vector<double> all;
  for (const Judged& judged : run.judged)
    if (judged.verdict.accepted) all.push_back(judged.seconds);
  if (all.empty()) return 0;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

std::string summary(const FuzzRun& run, const Coverage& coverage) {
  const std::size_t covered =
      std::count_if(run.components.begin(), run.components.end(),
                    [&](const std::string& name) { return coverage.components.count(name) > 0; });
  return fmt::format(
      "seed {}: {} compositions, {} trained, {} were refused alike by check and train, {} failed; {:.0f} s, "
      "median {:.1f} s each; {} of {} components",
      run.seed, run.judged.size(), accepted(run),
      run.judged.size() - accepted(run) -
          [&] {
            std::size_t refused_and_failed = 0;
            for (const Judged* const judged : failures(run))
              refused_and_failed += judged->verdict.accepted ? 0 : 1;
            return refused_and_failed;
          }(),
      failures(run).size(), run.seconds, median_seconds(run), covered, run.components.size());
}

/// Components by how often they trained, those of `run.components` that never did among them.
std::vector<std::pair<std::string, int>> component_rows(const FuzzRun& run, const Coverage& coverage) {
  std::map<std::string, int> rows = coverage.components;
  for (const std::string& name : run.components) rows.emplace(name, 0);
  return {rows.begin(), rows.end()};
}

/// A sentence for each judgement that was made again.
std::vector<std::string> slow_ones(const FuzzRun& run) {
  std::vector<std::string> all;
  for (const Judged& judged : run.judged)
    if (!judged.slow.empty())
      all.push_back(fmt::format(
          "composition {} did not end in its time and was judged again; what it had written is in {}",
          judged.index, judged.slow));
  return all;
}

}  // namespace

Coverage coverage_of(const FuzzRun& run) {
  Coverage coverage;
  for (const Judged& judged : run.judged) {
    if (!judged.verdict.accepted) continue;
    for (const std::string& a : judged.components) {
      ++coverage.components[a];
      for (const std::string& b : judged.components)
        if (kind_of(a) < kind_of(b)) ++coverage.pairs[{a, b}];
    }
  }
  return coverage;
}

std::vector<std::pair<std::string, std::string>> uncovered_pairs(const FuzzRun& run,
                                                                 const Coverage& coverage) {
  std::vector<std::pair<std::string, std::string>> missing;
  // A component that never trains here (a device that the machine lacks) is listed by itself.
  for (const std::string& a : run.components) {
    if (coverage.components.count(a) == 0) continue;
    for (const std::string& b : run.components) {
      if (coverage.components.count(b) == 0 || kind_of(a) >= kind_of(b)) continue;
      if (coverage.pairs.count({a, b}) == 0) missing.emplace_back(a, b);
    }
  }
  return missing;
}

std::string text_report(const FuzzRun& run) {
  const Coverage coverage = coverage_of(run);
  std::string out;
  std::vector<std::vector<std::string>> rows{
      {"identity", "held", "not applicable", "failed", "a composition ..."}};
  for (const IdentityCount& count : count_identities(run))
    rows.push_back({count.name, std::to_string(count.held), std::to_string(count.left_out),
                    std::to_string(count.failed), count.about});
  out += ab::text_table(rows) + "\n";
  rows = {{"component", "trained"}};
  for (const auto& [name, times] : component_rows(run, coverage))
    rows.push_back({name, std::to_string(times)});
  out += ab::text_table(rows) + "\n";
  const auto missing = uncovered_pairs(run, coverage);
  out += fmt::format("pairs of components of two kinds: {} trained together, {} not yet\n",
                     coverage.pairs.size(), missing.size());
  for (const Judged* const judged : failures(run)) {
    const Finding& finding = *judged->verdict.finding;
    out += fmt::format("\ncomposition {} ({}) fails {}: {}\n", judged->index, judged->base, finding.identity,
                       finding.text);
    if (!judged->folder.empty())
      out += fmt::format("  {}/case.toml, {} lines\n", judged->folder, judged->lines);
    for (const std::string& command : finding.commands) out += "  " + command + "\n";
  }
  for (const std::string& text : slow_ones(run)) out += "\n" + text + "\n";
  return out + "\n" + summary(run, coverage) + "\n";
}

std::string html_report(const FuzzRun& run) {
  const Coverage coverage = coverage_of(run);
  std::string body = fmt::format("<h1>Compositions</h1>\n{}", ab::paragraph(summary(run, coverage)));
  std::vector<ab::TableRow> rows;
  for (const Judged* const judged : failures(run)) {
    const Finding& finding = *judged->verdict.finding;
    std::string commands;
    for (const std::string& command : finding.commands)
      commands += "<code>" + ab::escape_html(command) + "</code><br>";
    rows.push_back({{std::to_string(judged->index), ab::escape_html(finding.identity),
                     ab::escape_html(finding.text), ab::escape_html(judged->folder), commands}});
  }
  body += ab::section(
      "Failures",
      rows.empty()
          ? ab::paragraph("None.")
          : ab::table({{"composition", true}, {"identity"}, {"expected and found"}, {"case"}, {"commands"}},
                      rows));
  for (const std::string& text : slow_ones(run)) body += ab::paragraph(ab::escape_html(text));
  rows.clear();
  for (const IdentityCount& count : count_identities(run))
    rows.push_back({{count.name, std::to_string(count.held), std::to_string(count.left_out),
                     std::to_string(count.failed), ab::escape_html(count.about)}});
  body += ab::section(
      "Identities",
      ab::table(
          {{"identity"}, {"held", true}, {"not applicable", true}, {"failed", true}, {"a composition ..."}},
          rows));
  rows.clear();
  for (const auto& [name, times] : component_rows(run, coverage))
    rows.push_back({{ab::escape_html(name), std::to_string(times)}, times == 0});
  body += ab::section("Components in compositions that trained",
                      ab::table({{"component"}, {"trained", true}}, rows, "list"));
  rows.clear();
  for (const auto& [a, b] : uncovered_pairs(run, coverage))
    rows.push_back({{ab::escape_html(a), ab::escape_html(b)}});
  body +=
      ab::section(fmt::format("Pairs that did not train together ({} did)", coverage.pairs.size()),
                  rows.empty() ? ab::paragraph("None.") : ab::table({{"component"}, {"component"}}, rows));
  return ab::page("tenon fuzz", body);
}

std::string json_report(const FuzzRun& run) {
  const Coverage coverage = coverage_of(run);
  Json json{{"seed", run.seed},
            {"compositions", run.judged.size()},
            {"trained", accepted(run)},
            {"failed", failures(run).size()},
            {"seconds", run.seconds},
            {"median_seconds", median_seconds(run)},
            {"identities", Json::array()},
            {"components", Json::object()},
            {"pairs", coverage.pairs.size()},
            {"uncovered_pairs", Json::array()},
            {"refused", Json::array()},
            {"failures", Json::array()},
            {"judged_again", Json::array()}};
  for (const Judged& judged : run.judged) {
    if (!judged.slow.empty())
      json["judged_again"].push_back({{"composition", judged.index}, {"records", judged.slow}});
    if (judged.verdict.accepted || judged.verdict.finding) continue;
    json["refused"].push_back(
        {{"composition", judged.index}, {"base", judged.base}, {"text", judged.verdict.refusal}});
  }
  for (const IdentityCount& count : count_identities(run))
    json["identities"].push_back({{"name", count.name},
                                  {"held", count.held},
                                  {"not_applicable", count.left_out},
                                  {"failed", count.failed}});
  for (const auto& [name, times] : component_rows(run, coverage)) json["components"][name] = times;
  for (const auto& [a, b] : uncovered_pairs(run, coverage)) json["uncovered_pairs"].push_back({a, b});
  for (const Judged* const judged : failures(run)) {
    json["failures"].push_back({{"composition", judged->index},
                                {"base", judged->base},
                                {"identity", judged->verdict.finding->identity},
                                {"text", judged->verdict.finding->text},
                                {"case", judged->folder},
                                {"lines", judged->lines}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string verdict_line(const Judged& judged) {
  const Verdict& verdict = judged.verdict;
  Json json{{"index", judged.index},        {"base", judged.base},        {"components", judged.components},
            {"accepted", verdict.accepted}, {"refusal", verdict.refusal}, {"held", verdict.held},
            {"left_out", verdict.left_out}};
  if (verdict.finding) {
    json["finding"] = {{"identity", verdict.finding->identity},
                       {"text", verdict.finding->text},
                       {"commands", verdict.finding->commands},
                       {"other", verdict.finding->other},
                       {"own", verdict.finding->own}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Judged read_verdict(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    Judged judged;
    judged.index = json.at("index");
    judged.base = json.at("base");
    judged.components = json.at("components").get<std::set<std::string>>();
    judged.verdict.accepted = json.at("accepted");
    judged.verdict.refusal = json.at("refusal");
    judged.verdict.held = json.at("held").get<std::vector<std::string>>();
    judged.verdict.left_out = json.at("left_out").get<std::vector<std::pair<std::string, std::string>>>();
    if (json.contains("finding")) {
      const Json& finding = json.at("finding");
      judged.verdict.finding =
          Finding{finding.at("identity").get<std::string>(), finding.at("text").get<std::string>(),
                  finding.at("commands").get<std::vector<std::string>>(),
                  finding.at("other").get<std::string>(), finding.at("own").get<std::string>()};
    }
    return judged;
  } catch (const nlohmann::json::exception& error) {
    fail_run(fmt::format("tenon fuzz: the process that judged wrote no verdict: {}", error.what()));
  }
}

}  // namespace tenon::fuzz
