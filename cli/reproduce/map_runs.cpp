// Planning of map_runs.hpp.
#include "reproduce/map_runs.hpp"

#include "ab/run_record.hpp"
#include "ab/study.hpp"
#include "base/process_facts.hpp"
#include "base/read_file.hpp"
#include "record/build_info.hpp"
#include "reproduce/map_results.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> simulation_sets(const ab::Arm& arm, const Size& size, const MapRun& run) {
  std::vector<std::string> sets = arm.set;
  sets.push_back(fmt::format("simulate.samples={}", size.samples));
  sets.push_back(fmt::format("simulate.seed={}", run.seed));
  sets.push_back(fmt::format("simulate.workers={}", run.workers));
  return sets;
}

/// The request that a kept run must have. Its first line says where it was made.
std::string wanted_text(const std::string& arm_file, const std::vector<std::string>& sets) {
  return to_toml(Config::load(arm_file, sets).root(), false);
}

std::string made_by() {
  const BuildInfo build = build_info();
  return fmt::format("# {} ({}{}) on {}, {} cores, {}\n", build.version, build.git,
                     build.git_dirty ? ", changed" : "", cpu_model(), usable_cores(), utc_now());
}

/// The text after the first line.
std::string asked_for(const fs::path& attempt) {
  const std::string text = base::read_file(attempt / "wanted.toml").value_or("");
  return text.substr(std::min(text.find('\n') + 1, text.size()));
}

ab::Job job_of(const MapRun& run, std::size_t index, const std::string& arm_file,
               const std::vector<std::string>& sets, const std::string& program) {
  ab::Job job;
  job.arm = index;
  job.seed = run.seed;
  job.parent = run.folder;
  job.log = (fs::path(run.folder) / "output.log").string();
  job.command = {program, "simulate", arm_file, "--quiet", "--json"};
  for (const std::string& set : sets) job.command.insert(job.command.end(), {"--set", set});
  job.command.insert(job.command.end(),
                     {"--set", fmt::format("simulate.folder=\"{}/simulation\"", run.folder)});
  return job;
}

ab::Experiment by_workers(const StudyFile& study, const Size& size) {
  const ab::Experiment given = experiment_of(study, size);
  ab::Experiment out = given;
  out.arms.clear();
  for (const ab::Arm& arm : given.arms) {
    for (const std::int64_t workers : study.map->workers_at(size)) {
      out.arms.push_back(arm);
      out.arms.back().name = fmt::format("{}.{}", arm.name, workers);
    }
  }
  return out;
}

}  // namespace

MapPlan plan_map(const StudyFile& study, const Size& size, const ab::RunnerOptions& options,
                 const SimulationCheck& check) {
  MapPlan plan;
  plan.experiment = by_workers(study, size);
  ab::write_arm_files(plan.experiment, options.folder);
  const auto files = make_posix_files();
  const std::vector<std::int64_t>& workers = study.map->workers_at(size);
  const std::size_t points = plan.experiment.arms.size();
  for (std::size_t s = 0; s < size.seeds.size(); ++s) {
    for (std::size_t i = 0; i < points; ++i) {
      // Alternating order, so that drift of the machine affects all alike.
      const std::size_t at = s % 2 == 0 ? i : points - 1 - i;
      const ab::Arm& arm = plan.experiment.arms[at];
      MapRun run;
      run.arm = at / workers.size();
      run.workers = workers[at % workers.size()];
      run.seed = size.seeds[s];
      const std::string arm_file = ab::arm_file_path(options.folder, arm);
      const std::vector<std::string> sets = simulation_sets(arm, size, run);
      if (s == 0) {
        try {
          check(arm_file, sets);
        } catch (const Error& error) {
          throw Error(error.kind(),
                      fmt::format("tenon reproduce: {} at size {} cannot run here, and nothing was started. "
                                  "Arm '{}': {}",
                                  study.name, size.name, study.arms[run.arm].arm.name, error.what()));
        }
      }
      const std::string parent = ab::run_parent(options.folder, arm.name, run.seed);
      const std::string wanted = wanted_text(arm_file, sets);
      const int newest = ab::newest_attempt(parent);
      run.folder = (fs::path(parent) / std::to_string(newest)).string();
      const bool same = newest > 0 && asked_for(run.folder) == wanted;
      run.kept = same && read_map_record(run.folder).status == "completed";
      if (!run.kept) {
        if (newest > 0)
          run.reason = same ? fmt::format("attempt {} did not end", newest)
                            : fmt::format("attempt {} is of another configuration", newest);
        run.folder = (fs::path(parent) / std::to_string(newest + 1)).string();
        fs::create_directories(run.folder);
        write_text_atomically(*files, run.folder + "/wanted.toml", made_by() + wanted);
        plan.jobs.push_back(job_of(run, at, arm_file, sets, options.program));
      }
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

}  // namespace tenon::reproduce
