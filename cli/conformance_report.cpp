#include "conformance_report.hpp"

#include "base/json_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tenon::cli {
namespace {

constexpr std::array kOutcomes{"not run", "ok", "FAIL", "n/a", "left out"};
constexpr std::array kJsonOutcomes{"not run", "passed", "failed", "not applicable", "suppressed"};

std::string heading_of(const ConformanceCheck& check) {
  if (check.component.empty()) return "the file";
  return check.case_name.empty() ? check.component : fmt::format("{} ({})", check.component, check.case_name);
}

/// Indents further lines of a text below its first one.
std::string indented(const std::string& text, std::size_t columns) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result.append(columns, ' ');
  }
  return result;
}

std::string repeat_command(const ConformancePlan& plan, const ConformanceCheck& check) {
  return fmt::format("tenon conformance {}{}{}{} --filter {} --seed {}", plan.file,
                     plan.cases.empty() ? "" : " --cases " + plan.cases,
                     plan.device.empty() ? "" : " --device " + plan.device,
                     check.component.empty() ? "" : " --component " + check.component, check.name, plan.seed);
}

/// "1 check", "12 checks".
std::string checks_text(const ConformancePlan& plan) {
  return fmt::format("{} check{}", plan.checks.size(), plan.checks.size() == 1 ? "" : "s");
}

std::size_t count(const ConformancePlan& plan, Outcome outcome) {
  return static_cast<std::size_t>(
      std::count_if(plan.checks.begin(), plan.checks.end(),
                    [&](const ConformanceCheck& check) { return check.outcome == outcome; }));
}

}  // namespace

std::string conformance_list(const ConformancePlan& plan) {
  std::string text, heading;
  for (const ConformanceCheck& check : plan.checks) {
    if (heading_of(check) != heading) {
      heading = heading_of(check);
      text += heading + "\n";
    }
    text += fmt::format("  {:<36} {}{}\n", check.name, check.summary,
                        check.suppression.empty() ? "" : fmt::format(" (left out: {})", check.suppression));
  }
  return text;
}

std::string conformance_json(const ConformancePlan& plan) {
  JsonWriter json;
  json.begin_object();
  json.member("file", plan.file);
  json.member("plugin", plan.plugin);
  json.member("version", plan.version);
  json.member("seed", plan.seed);
  json.member("device", plan.device.empty() ? "cpu" : plan.device);
  json.member("failed", static_cast<std::int64_t>(count(plan, Outcome::kFailed)));
  json.objects("checks", plan.checks, [&](const ConformanceCheck& check) {
    json.member("check", check.name);
    json.member("component", check.component);
    json.member("case", check.case_name);
    json.member("promise", check.summary);
    json.member("outcome", kJsonOutcomes[static_cast<std::size_t>(check.outcome)]);
    json.member("text", check.outcome == Outcome::kSuppressed ? check.suppression : check.text);
    json.member("seconds", check.took_s);
  });
  json.end_object();
  return json.take();
}

ConformanceTable::ConformanceTable(const ConformancePlan& plan, std::ostream* out) : plan_(plan), out_(out) {
  if (out_ != nullptr) {
    *out_ << fmt::format("{} ({} {}), {}, seed {}\n", plan.file, plan.plugin, plan.version, checks_text(plan),
                         plan.seed);
  }
}

void ConformanceTable::add(const ConformanceCheck& check) {
  if (out_ == nullptr) return;
  if (heading_of(check) != heading_) {
    heading_ = heading_of(check);
    *out_ << heading_ << "\n";
  }
  *out_ << fmt::format("  {:<8} {:<36} {:5.2f} s\n", kOutcomes[static_cast<std::size_t>(check.outcome)],
                       check.name, check.took_s);
  const std::string& text = check.outcome == Outcome::kSuppressed ? check.suppression : check.text;
  if (!text.empty()) *out_ << "           " << indented(text, 11) << "\n";
  if (check.outcome == Outcome::kFailed) {
    *out_ << "           promised: " << check.summary << "\n";
    *out_ << "           again:    " << repeat_command(plan_, check) << "\n";
  }
  out_->flush();
}

void ConformanceTable::end() {
  if (out_ == nullptr) return;
  double seconds = 0;
  for (const ConformanceCheck& check : plan_.checks) seconds += check.took_s;
  *out_ << fmt::format("{}: {} ok, {} failed, {} not applicable, {} left out; {:.1f} s\n", checks_text(plan_),
                       count(plan_, Outcome::kPassed), count(plan_, Outcome::kFailed),
                       count(plan_, Outcome::kNotApplicable), count(plan_, Outcome::kSuppressed), seconds);
}

}  // namespace tenon::cli
