// Synthetic run folders; see synthetic_runs.hpp.
#include "ab/testing/synthetic_runs.hpp"

#include "ab/study.hpp"

#include <fmt/format.h>

#include <Random123/philox.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <sstream>
#include <stdexcept>

#include <errno.h>  // program_invocation_short_name

namespace tenon::ab::testing {
namespace {

namespace fs = std::filesystem;

// JSON has no NaN and no infinity; the writer of real runs spells them null.
std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

double smooth_loss(const SyntheticRun& run, double step) {
  const double tau = run.steps / 5.0;
  const double left = std::exp(-run.steps / tau);
  return run.final_loss + (run.start_loss - run.final_loss) * (std::exp(-step / tau) - left) / (1 - left);
}

std::string metric_line(const SyntheticRun& run, int step, const char* split, const char* name,
                        double value) {
  const double samples = static_cast<double>(step) * run.batch;
  // The rate of a real run wanders a little from seed to seed.
  const double pace =
      run.step_seconds * (1 + 0.01 * normal_deviate(static_cast<std::uint64_t>(run.seed), 77));
  return fmt::format(
      "{{\"step\": {}, \"split\": \"{}\", \"name\": \"{}\", \"value\": {}, \"wall_s\": {}, \"samples\": "
      "{:.0f}, "
      "\"tokens\": {:.0f}, \"bytes_sent\": {:.0f}}}\n",
      step, split, name, json_number(value), step * pace, samples, samples * run.context,
      step * run.bytes_per_step);
}

std::string metrics_text(const SyntheticRun& run) {
  std::string out;
  const auto seed = static_cast<std::uint64_t>(run.seed);
  for (int step = 1; step <= run.steps; ++step) {
    const double noise = run.seed_noise * normal_deviate(seed, 1000 + static_cast<std::uint64_t>(step));
    out += metric_line(run, step, "train", "loss", smooth_loss(run, step) - 0.08 + noise);
    if (step % run.eval_every == 0) {
      out +=
          metric_line(run, step, "val", "loss", step == run.steps ? run.final_loss : smooth_loss(run, step));
      out += metric_line(run, step, "val", "accuracy", std::exp(-smooth_loss(run, step)) * 3.2);
    }
  }
  return out;
}

std::string summary_text(const SyntheticRun& run, const std::string& hash) {
  const double samples = static_cast<double>(run.steps) * run.batch;
  const double pace =
      run.step_seconds * (1 + 0.01 * normal_deviate(static_cast<std::uint64_t>(run.seed), 77));
  return fmt::format(
      "{{\"status\": \"{}\", \"steps\": {}, \"samples\": {:.0f}, \"tokens\": {:.0f}, \"wall_s\": {}, "
      "\"bytes_sent\": {:.0f},\n"
      " \"metrics\": {{\"train/loss\": {}, \"val/loss\": {}, \"val/accuracy\": {}}},\n"
      " \"weights_hash\": \"{}\", \"state_hash\": \"{}\", \"peak_rss_mb\": 212.5, \"stall_s\": 0.8, "
      "\"hidden_comm_share\": 0,\n"
      " \"communication\": [{{\"exposed_s\": 1.5, \"late_s\": 0.25}}, {{\"exposed_s\": 2.5, \"late_s\": "
      "0.75}}],\n"
      " \"quantized_operands\": {{}}, \"bytes_by_purpose\": {{\"gradients\": {:.0f}}}}}\n",
      run.status, run.steps, samples, samples * run.context, run.steps * pace, run.steps * run.bytes_per_step,
      json_number(run.final_loss - 0.08), json_number(run.final_loss),
      json_number(std::exp(-run.final_loss) * 3.2), hash, hash, run.steps * run.bytes_per_step);
}

std::string config_text(const SyntheticRun& run) {
  std::string out = fmt::format(
      "run.name = \"synthetic\"\nrun.seed = {}\nrun.steps = {}\nrun.eval_every = {}\ndata.type = \"text\"\n"
      "data.path = \"data/text/tinyshakespeare.txt\"\ndata.batch = {}\ndata.context = {}\noptimizer.type = "
      "\"adamw\"\n",
      run.seed, run.steps, run.eval_every, run.batch, run.context);
  for (const auto& [key, value] : run.config) out += key + " = " + value + "\n";
  return out;
}

std::string manifest_text(const SyntheticRun& run) {
  return fmt::format(
      "{{\"program\": {{\"version\": \"0.1.0\", \"git\": \"1f2e3d4c5b6a\", \"git_dirty\": false, "
      "\"compiler\": \"GCC 12.2.0\"}},\n"
      " \"cpu\": {{\"model\": \"Example CPU @ 2.4 GHz\", \"cores\": 2}}, \"kernels\": \"avx2\", \"ranks\": "
      "1, \"threads\": 2,\n"
      " \"seeds\": {{\"seed\": {0}}}, \"data\": [{{\"path\": \"data/text/tinyshakespeare.txt\", \"sha256\": "
      "\"86c4e6aa\"}}],\n"
      " \"command_line\": \"tenon train arm.toml --set run.seed={0}\"}}\n",
      run.seed);
}

}  // namespace

double normal_deviate(std::uint64_t seed, std::uint64_t stream) {
  r123::Philox4x32 philox;
  const auto bits = philox({{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                             static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
                           {{0x5eedu, 0x7e57u}});
  const double u = (static_cast<double>(bits[0]) + 0.5) / 4294967296.0;
  const double v = (static_cast<double>(bits[1]) + 0.5) / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

double heavy_deviate(std::uint64_t seed, std::uint64_t stream) {
  double chi_square = 0;
  for (std::uint64_t i = 1; i <= 3; ++i) chi_square += std::pow(normal_deviate(seed, 4 * stream + i), 2);
  return normal_deviate(seed, 4 * stream) / std::sqrt(chi_square / 3);
}

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::invalid_argument("not in the text: " + from);
  return text.replace(at, from.size(), to);
}

std::string read_text_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string fresh_folder(const std::string& name) {
  const fs::path folder = fs::path(TENON_AB_SCRATCH) / program_invocation_short_name / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

void write_run(const std::string& folder, const SyntheticRun& run) {
  const std::string hash = run.weights_hash.empty()
                               ? fmt::format("{:016x}{:016x}", run.seed, std::hash<double>{}(run.final_loss))
                               : run.weights_hash;
  write_text(folder + "/metrics.jsonl", metrics_text(run));
  write_text(folder + "/summary.json", summary_text(run, hash));
  write_text(folder + "/manifest.json", manifest_text(run));
  write_text(folder + "/config.resolved.toml", config_text(run));
  write_text(folder + "/plugins.lock",
             "[[plugin]]\nid = \"tenon.optimizer_adamw\"\nversion = \"0.1.0\"\nfile = \"adamw.so\"\n"
             "sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\nabi = \"0\"\n");
}

void write_runs(const Experiment& experiment, const std::string& folder,
                const std::function<SyntheticRun(std::size_t, std::int64_t)>& make) {
  for (std::size_t a = 0; a < experiment.arms.size(); ++a) {
    for (std::int64_t seed : experiment.seeds) {
      write_run(run_parent(folder, experiment.arms[a].name, seed) + "/1", make(a, seed));
    }
  }
}

Experiment sample_experiment(std::size_t seeds) {
  Experiment e;
  e.name = "nvfp4_vs_bf16";
  e.path = "configs/experiments/nvfp4_vs_bf16.toml";
  e.question = "Does NVFP4 train as well as BF16?";
  e.base = (fs::path(TENON_AB_SCRATCH) / program_invocation_short_name / "base.toml").string();
  write_text(e.base, "[run]\nsteps = 400\n");
  for (std::size_t i = 1; i <= seeds; ++i) e.seeds.push_back(static_cast<std::int64_t>(i));
  e.budget = {Axis::kSteps, 400};
  e.arms = {{"bf16"}, {"nvfp4"}};
  return e;
}

std::string stand_in(const std::string& folder, const std::string& body) {
  const std::string path = folder + "/program.sh";
  write_text(path,
             "#!/bin/sh\nfor a in \"$@\"; do\n  case \"$last\" in --run-dir) dir=\"$a\";; esac\n"
             "  case \"$a\" in run.seed=*) seed=\"${a#run.seed=}\";; esac\n  last=\"$a\"\ndone\n" +
                 body + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace tenon::ab::testing
