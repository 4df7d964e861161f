// tenon reproduce: lists the studies of papers' tables, or runs one.
#include "command_line.hpp"
#include "decode_run.hpp"
#include "power.hpp"
#include "trained_graph.hpp"

#include "config/run_schema.hpp"
#include "reproduce/reproduce.hpp"
#include "run/stages.hpp"
#include "simulate/plan.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <filesystem>
#include <iostream>

namespace tenon::cli {
namespace {

void declare_reproduce(po::options_description& options) {
  options.add_options()("quick", "under two minutes: proves that it runs; its numbers mean nothing");
  options.add_options()("full", "hours: the size to quote, in pieces if need be");
  options.add_options()("cuda", "the size for a GPU");
  options.add_options()("out", po::value<std::string>(),
                        "DIR  folder of the study (default: reproductions/NAME, with -SIZE for other sizes)");
  options.add_options()("jobs", po::value<int>()->default_value(1),
                        "N  runs at a time; with more than 1 their times do not compare");
  options.add_options()("json", "print the list, or table.json, as JSON");
}

std::string size_name(const po::variables_map& values) {
  std::string name;
  for (const char* size : {"quick", "full", "cuda"}) {
    if (values.count(size) == 0) continue;
    if (!name.empty())
      fail_config(fmt::format("tenon reproduce: --{} and --{} are two sizes; give one", name, size));
    name = size;
  }
  return name.empty() ? "default" : name;
}

int list(bool as_json) {
  std::vector<reproduce::StudyFile> studies;
  for (const std::string& path : reproduce::find_studies()) studies.push_back(reproduce::read_study(path));
  std::cout << (as_json ? reproduce::list_json(studies) : reproduce::list_text(studies));
  return 0;
}

reproduce::ResolvedRun resolve(const std::string& path, const std::vector<std::string>& sets) {
  Runtime runtime;
  const Config config = load_run(runtime, path, sets);
  reproduce::ResolvedRun out;
  const std::vector<train::Stage> stages = train::read_stages(config);
  if (stages.empty()) {
    out.root = runtime.check(config, &out.facts).root();
    return out;
  }
  if (stages.back().transforms)
    fail_config(fmt::format(
        "{}: stage '{}' is the last and a transform, which has no metrics; end with a stage that trains",
        stages.back().origin.text(), stages.back().name));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    out.facts.clear();
    out.root = train::check_stage(runtime, stages, static_cast<int>(i), &out.facts).root();
  }
  out.stages = train::shared_stage_names(runtime, config);
  return out;
}

void check_simulation(const std::string& path, const std::vector<std::string>& sets) {
  const Config config = Config::load(path, sets);
  Runtime runtime;
  runtime.discover(config::plugin_paths(config));
  simulate::read_plan(config, runtime.registry(), path);
}

int run_reproduce(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kReproduce, {"name"}, arguments);
  if (parsed.helped) return 0;
  const bool as_json = parsed.values.count("json") > 0;
  const std::string wanted = size_name(parsed.values);
  if (parsed.values.count("name") == 0) return list(as_json);

  const auto names = parsed.values["name"].as<std::vector<std::string>>();
  const reproduce::StudyFile study = reproduce::read_study(reproduce::study_path(names[0]));
  const reproduce::Size* size = study.size(wanted);
  if (size == nullptr)
    fail_config(fmt::format("tenon reproduce: {} has no size '{}' (see {})", study.name, wanted, study.path));

  reproduce::Request request;
  request.program = std::filesystem::read_symlink("/proc/self/exe").string();
  request.folder = parsed.values.count("out") > 0
                       ? parsed.values["out"].as<std::string>()
                       : "reproductions/" + study.name + (wanted == "default" ? "" : "-" + wanted);
  request.jobs = parsed.values["jobs"].as<int>();
  if (request.jobs < 1) fail_config(fmt::format("--jobs is {}; expected at least 1", request.jobs));
  std::vector<std::string> line{"reproduce"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  request.command = quoted_command_line(line);
  request.resolve = resolve;
  request.resolve_config = resolved_config;
  request.evaluate = evaluate_run;
  request.decode = measure_decoding;
  request.check_simulation = check_simulation;
  request.simulate_site = simulate_site;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  request.progress = [terminal](const std::string& text, bool finished) {
    print_progress(terminal, text, finished);
  };
  const reproduce::Outcome outcome = reproduce::reproduce(study, *size, request);
  std::cout << (as_json ? reproduce::table_json(outcome.result) : reproduce::closing_text(outcome));
  return outcome.exit_status;
}

}  // namespace

const Command kReproduce{"reproduce", "[NAME] [options]",
                         "List the studies that reproduce papers' tables, or run one.", run_reproduce,
                         declare_reproduce};

}  // namespace tenon::cli
