// tenon conformance: tests every promise of a plugin's contracts, each in a child process with a time limit.
// The checks themselves are in the program tenon_conformance (sdk/conformance). First the output: a table
// that grows while the checks run, a list, or JSON.
#include "command_line.hpp"

#include "base/child_process.hpp"
#include "base/elapsed.hpp"
#include "base/json_writer.hpp"
#include "plugin/elf_section.hpp"
#include "plugin/probe.hpp"

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace tenon::cli {

// Beside the anonymous namespace, in which `tenon quantize` has an Outcome as well.
enum class Outcome : std::uint8_t { kNotRun, kPassed, kFailed, kNotApplicable, kSuppressed, kUnknown };

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// A check of one case of one component ("" = of the file).
struct ConformanceCheck {
  std::string name, component;
  int number = 0;         ///< of the case
  std::string case_name;  ///< "" = the component's defaults
  int seconds = 20;
  bool counts_allocations = false;
  std::string needs;  ///< the check without which this one cannot tell; "" = none
  std::string summary;
  std::string suppression;  ///< why it is suppressed; "" = it is not
  Outcome outcome = Outcome::kNotRun;
  std::string text;       ///< of a failure, or why it does not apply or cannot tell
  bool answered = false;  ///< the child ended well and said what is wrong
  double took_s = 0;
};

struct ConformancePlan {
  std::string file, cases;  ///< as on the command line
  std::string plugin, version;
  std::uint64_t seed = 1;
  std::string device;  ///< as on the command line; "" = the processor
  std::vector<ConformanceCheck> checks;
};

/// Prints each check as it ends and a summary after the last one. `out` null: prints nothing.
class ConformanceTable {
 public:
  ConformanceTable(const ConformancePlan& plan, std::ostream* out);
  void add(const ConformanceCheck& check);
  void end();

 private:
  const ConformancePlan& plan_;
  std::ostream* out_;
  std::string heading_;
};

constexpr std::array kOutcomes{"not run", "ok", "FAIL", "n/a", "left out", "unknown"};
constexpr std::array kJsonOutcomes{"not run",        "passed",     "failed",
                                   "not applicable", "suppressed", "cannot tell"};

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
  return std::count_if(plan.checks.begin(), plan.checks.end(),
                       [&](const ConformanceCheck& check) { return check.outcome == outcome; });
}

/// Names with their promises, under the components that they are run for.
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
  const std::size_t unknown = count(plan_, Outcome::kUnknown);
  *out_ << fmt::format("{}: {} ok, {} failed, {} not applicable, {} left out{}; {:.1f} s\n",
                       checks_text(plan_), count(plan_, Outcome::kPassed), count(plan_, Outcome::kFailed),
                       count(plan_, Outcome::kNotApplicable), count(plan_, Outcome::kSuppressed),
                       unknown == 0 ? "" : fmt::format(", {} that cannot tell", unknown), seconds);
}

std::string text_of(const Parsed& parsed, const char* name) {
  return parsed.values.count(name) > 0 ? parsed.values[name].as<std::string>() : "";
}
std::vector<std::string> texts_of(const Parsed& parsed, const char* name) {
  return parsed.values.count(name) > 0 ? parsed.values[name].as<std::vector<std::string>>()
                                       : std::vector<std::string>{};
}

bool matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

/// Rethrows "error 3 TEXT", with which the child reports that it could not begin.
[[noreturn]] void rethrow(const std::string& answer) {
  const int kind = answer.size() > 6 ? answer[6] - '0' : 1;
  throw Error(kind == 2   ? ErrorKind::kConfig
              : kind == 3 ? ErrorKind::kPlugin
                          : ErrorKind::kRun,
              answer.substr(8));
}

std::vector<std::string> fields(std::string_view line) {
  std::vector<std::string> result;
  while (true) {
    const std::size_t tab = line.find('\t');
    result.emplace_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return result;
    line.remove_prefix(tab + 1);
  }
}

ConformancePlan make_plan(const fs::path& file, const std::string& cases) {
  const fs::path kit = plugin::helper_program("tenon_conformance");
  if (!fs::exists(kit)) {
    fail_config(
        fmt::format("this build of tenon has no conformance kit ({} is missing); build with "
                    "-DTENON_BUILD_CONFORMANCE=ON, which the preset 'package' does",
                    kit.string()));
  }
  const base::ChildResult child =
      base::run_child({.program = kit, .arguments = {"plan", file.string(), cases}, .environment = {}},
                      std::chrono::seconds(10));
  if (child.answer.starts_with("error ")) rethrow(child.answer);
  ConformancePlan plan;
  std::string_view rest = child.answer;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::vector<std::string> words = fields(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (words[0] == "plugin" && words.size() == 3) {
      plan.plugin = words[1];
      plan.version = words[2];
    } else if (words[0] == "check" && words.size() == 10) {
      ConformanceCheck check;
      check.name = words[1];
      check.component = words[2];
      check.number = std::atoi(words[3].c_str());
      check.case_name = words[4];
      check.seconds = std::atoi(words[5].c_str());
      check.counts_allocations = words[6] == "1";
      check.needs = words[7];
      check.summary = words[8];
      check.suppression = words[9];
      plan.checks.push_back(std::move(check));
    }
  }
  if (plan.checks.empty()) {
    fail_run(fmt::format("tenon_conformance {}.{}", base::describe_exit(child, std::chrono::seconds(10)),
                         base::last_words(child.words)));
  }
  return plan;
}

/// The runtime library of the sanitizer that a plugin was built with, which must be loaded before all others;
/// "" = none.
std::string sanitizer_of(const fs::path& file) {
  const plugin::FileSource source(file);
  const plugin::SectionResult names = plugin::read_elf_section(source, ".dynstr");
  for (const std::string_view library : {"libasan.so.", "libtsan.so."}) {
    const std::size_t at = names.text.find(library);
    if (at != std::string::npos) return names.text.substr(at, names.text.find('\0', at) - at);
  }
  return "";
}

/// A sanitizer's report: its last line, which names the place, then its beginning; "" = none.
std::string sanitizer_report(const std::string& words) {
  constexpr std::size_t kLongest = 1600;
  const std::size_t summary = words.find("SUMMARY: ");
  if (summary == std::string::npos) return "";
  std::string text = " " + words.substr(summary, words.find('\n', summary) - summary);
  const std::size_t begin =
      std::min(words.find("WARNING: ThreadSanitizer"), words.find("ERROR: AddressSanitizer"));
  if (begin < summary) text += "\n" + words.substr(begin, std::min(kLongest, summary - begin));
  return text;
}

/// A temporary folder, removed with the object.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "tenon-conformance-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      fail_run("cannot make a folder in " + fs::temp_directory_path().string());
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class Runner {
 public:
  Runner(fs::path file, std::string cases, std::string seed, std::string device)
      : file_(std::move(file)),
        cases_(std::move(cases)),
        seed_(std::move(seed)),
        device_(std::move(device)),
        sanitizer_(sanitizer_of(file_)) {}

  void run(ConformanceCheck& check) const {
    const auto begin = Clock::now();
    const Scratch scratch;
    const std::chrono::milliseconds limit(1000 * check.seconds);
    const base::ChildRequest request{
        .program = plugin::helper_program("tenon_conformance"),
        .arguments = {"run", file_.string(), cases_, check.name, check.component,
                      std::to_string(check.number), seed_, scratch.path().string(), device_},
        .environment = environment(check)};
    const base::ChildResult child = base::run_child(request, limit);
    judge(check, child, limit);
    check.took_s = base::seconds_since(begin);
  }

 private:
  std::vector<std::string> environment(const ConformanceCheck& check) const {
    // Spinning OpenMP threads would take the processor from the threads that they wait for.
    std::vector<std::string> settings{"OMP_WAIT_POLICY=passive"};
    // A thread's own list of freed blocks gives them back as they were: run.repeats fills what is allocated.
    settings.emplace_back("GLIBC_TUNABLES=glibc.malloc.tcache_count=0");
    if (!sanitizer_.empty()) {
      settings.push_back("LD_PRELOAD=" + sanitizer_);
      // Its threads meet at barriers that the sanitizer cannot see.
      settings.emplace_back("OMP_NUM_THREADS=1");
      settings.emplace_back("TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:exitcode=66");
      settings.emplace_back("ASAN_OPTIONS=detect_leaks=0:exitcode=66");
    } else if (check.counts_allocations) {
      settings.push_back("LD_PRELOAD=" + plugin::helper_program("libtenon_watch_malloc.so").string());
    }
    return settings;
  }

  static void judge(ConformanceCheck& check, const base::ChildResult& child,
                    std::chrono::milliseconds limit) {
    const std::string& answer = child.answer;
    if (child.ended && child.status == 0 && answer == "pass") {
      check.outcome = Outcome::kPassed;
    } else if (child.ended && child.status == 0 && answer.starts_with("skip ")) {
      check.outcome = Outcome::kNotApplicable;
      check.text = answer.substr(5);
    } else {
      check.outcome = Outcome::kFailed;
      check.answered = child.ended && child.status == 0;
      check.text = answer.starts_with("fail ")    ? answer.substr(5)
                   : answer.starts_with("error ") ? answer.substr(8)
                                                  : "";
      if (!child.ended || child.status != 0 || check.text.empty()) {
        const std::string report = sanitizer_report(child.words);
        check.text +=
            fmt::format("{}it {}.{}", check.text.empty() ? "" : "; then ", base::describe_exit(child, limit),
                        report.empty() ? base::last_words(child.words) : report);
      }
    }
  }

  fs::path file_;
  std::string cases_, seed_, device_;
  std::string sanitizer_;
};

bool cannot_pass(const ConformanceCheck& check) {
  return check.outcome == Outcome::kFailed || check.outcome == Outcome::kUnknown;
}

/// Runs a check, unless one that it needs has failed for the same case. A cause is reported once: a later
/// check of the case that answers with the same text cannot tell more.
void run_in_turn(const Runner& runner, std::span<const ConformanceCheck> before, ConformanceCheck& check) {
  const auto same_case = [&](const ConformanceCheck& other) {
    return other.component == check.component && other.number == check.number;
  };
  const auto missing = std::find_if(before.begin(), before.end(), [&](const ConformanceCheck& other) {
    return same_case(other) && other.name == check.needs && cannot_pass(other);
  });
  if (missing != before.end()) {
    check.outcome = Outcome::kUnknown;
    check.text = fmt::format("cannot tell: it needs {}, which {}", missing->name,
                             missing->outcome == Outcome::kFailed ? "failed" : "cannot tell");
    return;
  }
  runner.run(check);
  if (check.outcome != Outcome::kFailed || !check.answered) return;
  const auto first = std::find_if(before.begin(), before.end(), [&](const ConformanceCheck& other) {
    return same_case(other) && other.outcome == Outcome::kFailed && other.text == check.text;
  });
  if (first == before.end()) return;
  check.outcome = Outcome::kUnknown;
  check.text = fmt::format("cannot tell: it ended as {} did", first->name);
}

void keep_wanted(ConformancePlan& plan, const Parsed& parsed) {
  const std::vector<std::string> filters = texts_of(parsed, "filter"), excludes = texts_of(parsed, "exclude");
  const std::string component = text_of(parsed, "component");
  std::string known;
  bool found = component.empty();
  for (const ConformanceCheck& check : plan.checks) {
    found = found || check.component == component;
    if (!check.component.empty() && known.find("\n  " + check.component) == std::string::npos)
      known += "\n  " + check.component;
  }
  if (!found) fail_config(fmt::format("the plugin offers no {}. It offers:{}", component, known));
  std::erase_if(plan.checks, [&](const ConformanceCheck& check) {
    return (!component.empty() && check.component != component) ||
           (!filters.empty() && !matches(filters, check.name)) || matches(excludes, check.name);
  });
  if (plan.checks.empty()) fail_config("no check is left by --component, --filter and --exclude; see --list");
}

double number_of(const Parsed& parsed, const char* name, double otherwise) {
  const std::string text = text_of(parsed, name);
  if (text.empty()) return otherwise;
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !(value > 0))
    fail_config(fmt::format("--{}: expected a number above 0, found '{}'", name, text));
  return value;
}

void declare_conformance(po::options_description& options) {
  options.add_options()("component", po::value<std::string>(), "KIND.ID  only this component");
  options.add_options()("filter", po::value<std::vector<std::string>>(),
                        "GLOB  only checks whose name matches; repeatable");
  options.add_options()("exclude", po::value<std::vector<std::string>>(),
                        "GLOB  not these checks; repeatable");
  options.add_options()("list", "name the checks, run none");
  options.add_options()("cases", po::value<std::string>(),
                        "FILE.toml  what components are given, and what is left out");
  options.add_options()("seed", po::value<std::string>(), "N  of the data drawn (default 1)");
  options.add_options()("device", po::value<std::string>(),
                        "TYPE  of the device that other kinds are tested on (default cpu)");
  options.add_options()("time-limit", po::value<std::string>(),
                        "S  seconds of each check, in place of its own limit");
  options.add_options()("json", "print the results as JSON");
}

int run_conformance(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kConformance, {"file"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("file") == 0)
    fail_config("tenon conformance: which FILE.so? usage: tenon conformance FILE.so");
  const auto files = parsed.values["file"].as<std::vector<std::string>>();
  if (files.size() != 1) fail_config("tenon conformance: one FILE.so at a time");
  const fs::path file = fs::absolute(files[0]);
  const std::string cases =
      text_of(parsed, "cases").empty() ? "" : fs::absolute(text_of(parsed, "cases")).string();
  const auto seed = static_cast<std::uint64_t>(number_of(parsed, "seed", 1));

  ConformancePlan plan = make_plan(file, cases);
  plan.file = files[0];
  plan.cases = text_of(parsed, "cases");
  plan.seed = seed;
  plan.device = text_of(parsed, "device");
  keep_wanted(plan, parsed);
  const bool json = parsed.values.count("json") > 0;
  if (parsed.values.count("list") > 0) {
    std::cout << (json ? conformance_json(plan) : conformance_list(plan));
    return 0;
  }
  const double limit = number_of(parsed, "time-limit", 0);
  const Runner runner(file, cases, std::to_string(seed), plan.device.empty() ? "cpu" : plan.device);
  ConformanceTable table(plan, json ? nullptr : &std::cout);
  for (ConformanceCheck& check : plan.checks) {
    if (limit > 0) check.seconds = std::max(1, static_cast<int>(limit));
    check.outcome = Outcome::kSuppressed;
    if (check.suppression.empty())
      run_in_turn(runner, std::span(plan.checks).first(&check - plan.checks.data()), check);
    table.add(check);
  }
  if (json) {
    std::cout << conformance_json(plan);
  } else {
    table.end();
  }
  const bool failed = std::any_of(plan.checks.begin(), plan.checks.end(), [](const ConformanceCheck& check) {
    return check.outcome == Outcome::kFailed;
  });
  return failed ? static_cast<int>(ErrorKind::kPlugin) : 0;
}

}  // namespace

const Command kConformance{
    "conformance", "FILE.so [options]",
    "Test a plugin against the contracts of its kinds, each check in a process of its own.", run_conformance,
    declare_conformance};

}  // namespace tenon::cli
