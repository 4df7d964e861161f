// tenon_conformance: what `tenon conformance` starts, one process per check. Answers go to descriptor 3.
//
//   plan FILE CASES                    the checks of a file, without loading it
//   run FILE CASES CHECK COMPONENT CASE SEED SCRATCH DEVICE
//                                      one of them: "pass", "fail TEXT" or "skip TEXT"
//   train FILE CONFIG FOLDER new|resume PLUGIN...  a run that a check needs in a process of its own
#include "subject.hpp"

#include "base/child_process.hpp"
#include "base/signals.hpp"
#include "plugin/abi_tag.hpp"
#include "plugin/descriptor.hpp"
#include "plugin/process_end.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tenon::conformance {
namespace {

void send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::write(base::kAnswerFd, text.data(), text.size());
    if (sent <= 0) return;  // the parent no longer listens
    text.remove_prefix(sent);
  }
}

/// Tabs and newlines separate the parts of a plan.
std::string plain(std::string text) {
  for (char& c : text) {
    if (c == '\t' || c == '\n') c = ' ';
  }
  return text;
}

void add_line(std::string& plan, const Check& check, const Case& given, std::size_t number,
              const CaseFile& file) {
  const std::string* const reason = suppressed(file, check.name, given.component);
  plan += fmt::format("check\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", check.name, given.component, number,
                      plain(given.name), check.seconds, check.counts_allocations ? 1 : 0, check.needs,
                      plain(check.summary), reason == nullptr ? "" : plain(*reason));
}

void plan(const std::string& file, const std::string& case_path) {
  const plugin::AbiTag tag = plugin::read_abi_tag(file);
  if (std::string problem = plugin::abi_problem(tag, plugin::host_abi_tag(), file); !problem.empty())
    fail_plugin(problem);
  const CaseFile cases = read_case_file(case_path);
  const std::vector<Check> checks = all_checks();
  std::string text = fmt::format("plugin\t{}\t{}\n", tag.plugin_id, tag.plugin_version);
  for (const Check& check : checks) {
    if (check.kind == nullptr) add_line(text, check, {}, 0, cases);
  }
  std::vector<std::string> components;
  for (const plugin::Offer& offer : tag.offers) {
    components.push_back(plugin::component_name(offer.kind, offer.id));
    const std::vector<Case> given = cases_of(cases, components.back());
    for (std::size_t i = 0; i < given.size(); ++i) {
      for (const Check& check : checks) {
        if (check.kind != nullptr && (*check.kind == '\0' || check.kind == offer.kind))
          add_line(text, check, given[i], i, cases);
      }
    }
  }
  for (const Case& given : cases.cases) {
    if (std::find(components.begin(), components.end(), given.component) == components.end()) {
      fail_config(fmt::format("{}: a case is for {}, which plugin {} does not offer", case_path,
                              given.component, tag.plugin_id));
    }
  }
  for (const Suppression& entry : cases.suppressions) {
    if (text.find("\t" + entry.reason + "\n") == std::string::npos) {
      fail_config(fmt::format(
          "{}: no check is left out by check = \"{}\"{}; remove it, or see `tenon conformance FILE --list`",
          case_path, entry.check,
          entry.component.empty() ? "" : fmt::format(", component = \"{}\"", entry.component)));
    }
  }
  send(text);
}

int run(char** words) {
  const std::string file = words[0], case_path = words[1], component = words[3];
  const std::vector<Check> checks = all_checks();
  const Check* const check = find_check(checks, words[2]);
  if (check == nullptr) return 2;
  Subject::Spec spec;
  spec.file = file;
  spec.component = component;
  spec.given.component = component;
  const CaseFile cases = read_case_file(case_path);
  if (!component.empty()) spec.given = cases_of(cases, component).at(std::atoi(words[4]));
  spec.plugins = cases.plugins;
  spec.seed = std::strtoull(words[5], nullptr, 10);
  spec.scratch = words[6];
  spec.device = words[7];
  put_scratch(spec.given.options, spec.scratch.string());
  // Paths in options are relative to the case file.
  if (!case_path.empty()) std::filesystem::current_path(std::filesystem::path(case_path).parent_path());
  send(run_check(*check, std::move(spec)));
  return 0;
}

int train(char** words, int count) {
  Runtime runtime;
  runtime.add_plugin(world_plugin());
  Subject::Spec spec;
  spec.file = words[0];
  spec.plugins.assign(words + 4, words + count);
  const Subject subject(std::move(spec));
  runtime.registry().discover_only(subject.plugin_files());
  TrainRequest request;
  request.run_dir = words[2];
  request.resume = std::string_view(words[3]) == "resume";
  request.quiet = true;
  request.command_line = "tenon conformance";
  const RunResult result = runtime.train(Config::load(words[1], {}), request);
  send(result.status + " " + result.error);
  return result.exit_status;
}

}  // namespace
}  // namespace tenon::conformance

int main(int argc, char** argv) {
  using namespace tenon;
  base::prepare();
  const base::Signals signals;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (::fcntl(base::kAnswerFd, F_GETFD) < 0 || mode.empty()) {
    std::fputs("tenon_conformance is started by 'tenon conformance', not by hand.\n", stderr);
    return 2;
  }
  const rlimit no_core{0, 0};  // a crash of the plugin is a finding; no core file is wanted
  ::setrlimit(RLIMIT_CORE, &no_core);
  plugin::install_fatal_signal_handler();
  plugin::install_exit_handler();
  int status = 2;
  try {
    if (mode == "plan" && argc == 4) status = (conformance::plan(argv[2], argv[3]), 0);
    if (mode == "run" && argc == 10) status = conformance::run(argv + 2);
    if (mode == "train" && argc >= 6) status = conformance::train(argv + 2, argc - 2);
  } catch (const Error& error) {
    conformance::send(fmt::format("error {} {}", error.exit_status(), error.what()));
    status = error.exit_status();
  } catch (const std::exception& error) {
    conformance::send(std::string("error 1 ") + error.what());
    status = 1;
  }
  // Static destructors of the plugin are run: a crash in them is a finding.
  return status;
}
