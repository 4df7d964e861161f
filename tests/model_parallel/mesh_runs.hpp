// Losses of base configurations with a few settings changed, step by step.
#pragma once

#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace tenon::integration {

/// Trains a base configuration as the run "tiny"; further words go to the program. Returns the training
/// losses, in the order of steps.
inline std::vector<double> losses_in(const Scratch& scratch, const std::string& base,
                                     const std::vector<std::string>& sets,
                                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"train", std::string(TENON_SOURCE_DIR) + "/configs/base/" + base, "--quiet"};
  words.insert(words.end(), more.begin(), more.end());
  for (const char* set : {"run.log_every=1", "run.name=\"tiny\"", "run.eval_every=0", "data.batch=16"})
    words.insert(words.end(), {"--set", set});
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  const Ended ended = scratch.run(words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  std::vector<double> values;
  std::ifstream lines(scratch / "runs/tiny/latest/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto metric = nlohmann::json::parse(line);
    if (metric.at("split") == "train" && metric.at("name") == "loss") values.push_back(metric.at("value"));
  }
  return values;
}

inline std::vector<double> losses(const std::string& base, const std::vector<std::string>& sets) {
  return losses_in(Scratch(), base, sets);
}

/// Largest relative difference; 1 for runs of unequal length.
inline double worst(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return most;
}

/// A checkpoint of 2 x 2 ranks has the same weights on other meshes, and every step after it has the same
/// loss.
inline void expect_to_go_on_on_other_grids(const std::string& base,
                                           const std::vector<std::string>& changes = {}) {
  const auto sets = [&](int steps, const std::string& mesh) {
    std::vector<std::string> all{"precision.type=\"fp64\"", "recovery={type = \"full\", every = 2}",
                                 "run.steps=" + std::to_string(steps), "parallel.grid=" + mesh};
    all.insert(all.end(), changes.begin(), changes.end());
    return all;
  };
  const Scratch four;
  ASSERT_EQ(losses_in(four, base, sets(2, "[2, 2]")).size(), 2u);
  const std::string weights = four.summary("weights_hash");
  std::vector<double> expected;
  for (const char* mesh : {"[2, 2]", "[1, 1]", "[1, 2]", "[3, 1]"}) {
    const Scratch other;
    fs::copy(four / "runs", other / "runs", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    losses_in(other, base, sets(2, mesh), {"--resume"});
    EXPECT_EQ(other.summary("weights_hash"), weights) << mesh;
    const auto found = losses_in(other, base, sets(4, mesh), {"--resume", "--extend"});
    if (expected.empty()) expected = found;
    ASSERT_EQ(found.size(), 4u) << mesh;
    EXPECT_LE(worst(found, expected), 1e-12) << mesh;
  }
}

}  // namespace tenon::integration
