// Run folders made from formulas, for the tests of the study: the files of DESIGN 8 without a training run.
#pragma once

#include "ab/experiment.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tenon::ab::testing {

struct SyntheticRun {
  std::int64_t seed = 1;
  int steps = 400;
  int eval_every = 50;
  int batch = 16;
  int context = 128;
  double step_seconds = 0.011;
  double bytes_per_step = 0;
  double final_loss = 2.0;  ///< val/loss at the last step; the curve decays towards it
  double start_loss = 4.2;
  double seed_noise = 0.02;  ///< of the training loss, step by step
  std::string status = "completed";
  std::string weights_hash = "";  ///< "" = made from seed and loss
  std::vector<std::pair<std::string, std::string>> config =
      {};  ///< further keys: {"precision.type", "\"nvfp4\""}
};

/// Writes `folder` (an attempt) with all files of a finished run.
void write_run(const std::string& folder, const SyntheticRun& run);

/// Writes DIR/runs/<arm>/<seed>/1 for every arm and seed; `make` returns the run of an arm index and seed.
void write_runs(const Experiment& experiment, const std::string& folder,
                const std::function<SyntheticRun(std::size_t arm, std::int64_t seed)>& make);

/// Two arms, bf16 and nvfp4, 400 steps.
Experiment sample_experiment(std::size_t seeds);

/// A fixed normal deviate for (seed, stream).
double normal_deviate(std::uint64_t seed, std::uint64_t stream);
/// Student t with 3 degrees of freedom, from four normal deviates.
double heavy_deviate(std::uint64_t seed, std::uint64_t stream);

/// A folder in the build tree, one per test program and name, emptied first.
std::string fresh_folder(const std::string& name);
void write_text(const std::string& path, const std::string& text);
/// `text` with the first `from` replaced by `to`. Throws std::invalid_argument if there is none.
std::string replaced(std::string text, const std::string& from, const std::string& to);
std::string read_text_file(const std::string& path);
/// A shell script in `folder` that is called like the program; `body` can use $dir (the run's parent), $seed
/// and the arguments. Returns its path.
std::string stand_in(const std::string& folder, const std::string& body);

}  // namespace tenon::ab::testing
