// `tenon check` accepts no misspelt key: every key of every shipped configuration is renamed by one in eight
// of its single edits (by all of them with TENON_MATRIX=all), and each renaming that is no key of that table
// must be refused, nearly always with the right suggestion.
#include "run_program.hpp"
#include "test_paths.hpp"

#include "ab/experiment.hpp"
#include "config/run_schema.hpp"
#include "config/testing/key_mutations.hpp"
#include "power/plan.hpp"
#include "reproduce/study_file.hpp"
#include "simulate/plan.hpp"
#include "transform/plan.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace tenon::integration::key_mutations_test {
namespace {

const fs::path kConfigs = fs::path(TENON_SOURCE_DIR) / "configs";

std::vector<fs::path> shipped(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".toml") continue;
    if (*entry.path().lexically_relative(kConfigs).begin() == folder) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Sum of the mutations of several configurations.
struct Total {
  std::size_t every = 8;  ///< of the edits of a key, one in so many is tried
  std::size_t keys = 0, tried = 0, long_keys = 0;
  std::vector<std::string> accepted, misguided;
};

void mutate_runs(Total& total) {
  Registry registry;
  registry.discover_only({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  const Scratch scratch;
  std::vector<fs::path> runs;
  for (const char* folder : {"base", "reproduce"}) {
    for (const fs::path& file : shipped(folder)) runs.push_back(file);
  }
  // A preset is one table; over a base it is a run.
  for (const fs::path& preset : shipped("presets")) {
    runs.push_back(scratch / preset.filename());
    write_file(runs.back(), "extends = [\"" + (kConfigs / "base/gpt_tiny.toml").string() + "\", \"" +
                                preset.string() + "\"]\n");
  }
  // No shipped run has this list.
  runs.push_back(scratch / "evaluations.toml");
  write_file(runs.back(), "extends = \"" + (kConfigs / "base/gpt_tiny.toml").string() +
                              "\"\n[[evaluate]]\nname = \"same\"\nevery = 10\n[evaluate.data]\ntype = "
                              "\"text\"\ncontext = 128\nbatch = 16\n");
  ASSERT_GE(runs.size(), 10u);

  std::set<std::string> proven;
  for (const fs::path& file : runs) {
    SCOPED_TRACE(file.string());
    // Keys of runs in stages are refused stage by stage: integration_stages_test.
    if (Config::load(file.string(), {}).find("stage") != nullptr) continue;
    std::vector<std::string> sets =
        data_of_shipped(file.filename().string(), (scratch / "text.txt").string());
    // Its device exists where CUDA does; the emulated one takes the same keys.
    if (file.filename() == "device_cuda.toml") sets.push_back("device.type=cuda_emulated");
    const config::MutationReport report =
        config::mutate_keys(Config::load(file.string(), sets), registry, proven, total.every);
    total.keys += report.keys;
    total.tried += report.tried;
    total.long_keys += report.long_keys;
    total.accepted.insert(total.accepted.end(), report.accepted.begin(), report.accepted.end());
    total.misguided.insert(total.misguided.end(), report.misguided.begin(), report.misguided.end());
  }
}

/// Every key that a file of a kind may have, by table.
using KeysByTable = std::map<std::string, std::set<std::string>>;
const KeysByTable kExperimentKeys = {
    {"",
     {"question", "base", "seeds", "metric", "lower_is_better", "secondary", "margin", "target", "decide_by",
      "test", "alpha", "power", "budget", "sequential", "arm", "tune", "factor", "ladder"}},
    {"[tune]", {"trials", "seeds", "arms", "on_failure", "budget"}},
    {"[[tune.key]]", {"name", "from", "to", "scale", "whole", "hard_ends", "values", "choices", "only"}},
    {"[[factor]]", {"name", "levels"}},
    {"[ladder]", {"points", "held_out", "samples_per_parameter", "tokens_per_parameter"}},
    {"[budget]", {"steps", "samples", "tokens", "seconds", "bytes"}},
    {"[sequential]", {"max_seeds", "first_look", "block", "method", "futility"}},
    {"[[arm]]", {"name", "extends", "set"}}};

const std::set<std::string> kSizeKeys = {
    "steps", "seeds", "set", "minutes", "machine", "samples", "measured_samples", "points", "simulate"};
const KeysByTable kStudyKeys = {
    {"",
     {"title",         "paper",       "question", "base",      "metric", "baseline", "reference", "figure",
      "figure_metric", "curves",      "shares",   "decisions", "alpha",  "margin",   "notes",     "size",
      "arm",           "paper_value", "time_to",  "scaling",   "slabs",  "map",      "simulate",  "evaluate",
      "agree",         "recovery",    "sites",    "run_sites", "filler", "compare",  "decode",    "search"}},
    {"[size.quick]", kSizeKeys},
    {"[size.default]", kSizeKeys},
    {"[size.full]", kSizeKeys},
    {"[size.cuda]", kSizeKeys},
    {"[[arm]]", {"name", "title", "note", "baseline", "extends", "set", "may_fail", "steps_over", "metric"}},
    {"[[compare]]", {"title", "arm", "minus", "over", "of", "at_most", "at_least", "every_seed"}},
    {"[decode]", {"contexts", "arms", "sizes", "tokens"}},
    {"[search]", {"arm", "stage", "ranks", "then"}},
    {"[scaling]", {"points", "alone", "measured", "measured_points"}},
    {"[simulate]", {"config", "set", "sizes"}},
    {"[[evaluate]]", {"name", "metric", "set", "arms", "sizes"}},
    {"[[agree]]", {"arm", "with", "metric", "updates"}},
    {"[slabs]", {"cut", "measured", "counted", "predicted", "link", "problem"}},
    {"[[slabs.link]]", {"name", "title", "bandwidth", "latency"}},
    {"[[slabs.problem]]", {"arm", "size", "points", "modes", "of_one_rank"}},
    {"[map]", {"workers"}},
    {"[sites]", {"tolerance", "arm"}},
    {"[[sites.arm]]", {"arm", "step_jitter", "closed_form", "limits", "expected"}},
    {"[run_sites]", {"site", "set", "compute_s", "exchange_s", "first", "tolerance", "arm"}},
    {"[[run_sites.arm]]", {"arm", "slots", "closed_form"}},
    {"[filler]", {"site", "set", "policy", "period_s", "delays_s"}},
    {"[recovery]", {"draws", "full", "pair", "line"}},
    {"[[recovery.pair]]", {"arm", "minus", "title"}},
    {"[[recovery.line]]", {"title", "arms"}},
    {"[time_to]", {"budget", "looser", "timing_set", "one_seed", "link"}},
    {"[[time_to.link]]", {"name", "set"}},
    {"[[paper_value]]", {"arm", "value", "what", "source"}}};

const KeysByTable kSimulateKeys = {
    {"[simulate]",
     {"samples", "seed", "folder", "format", "workers", "retries", "task_timeout_s", "timeout_s",
      "crash_share", "hang_share"}},
    {"[simulator]",
     {"type", "grid", "every", "viscosity", "time", "step", "snapshots", "past", "cells", "injectors",
      "ratio_low", "ratio_high", "producers", "margin", "moves"}}};

const KeysByTable kPowerKeys = {{"[power]",
                                 {"trace", "repeat", "levels", "spec", "folder", "rate_hz", "lead_s",
                                  "measure", "settle_s", "constant_share", "workers", "phase", "policy"}},
                                {"[power.workers]", {"count", "offsets", "jitter_s", "seed"}},
                                {"[[power.phase]]", {"name", "seconds"}},
                                {"[[power.policy]]",
                                 {"at",
                                  "type",
                                  "floor",
                                  "ceiling",
                                  "ramp_up",
                                  "ramp_down",
                                  "hysteresis_s",
                                  "target",
                                  "period_s",
                                  "start_below",
                                  "stop_above",
                                  "n_on",
                                  "block",
                                  "block_s",
                                  "first_blocks",
                                  "most_blocks",
                                  "gain",
                                  "capacity_s",
                                  "cutoff_hz",
                                  "charge",
                                  "discharge",
                                  "charge_efficiency",
                                  "discharge_efficiency",
                                  "soc_gain",
                                  "soc_target",
                                  "soc_start"}},
                                {"[spec]",
                                 {"name", "note", "ramp_up", "ramp_down", "ramp_window_s", "range",
                                  "range_window_s", "band_low_hz", "band_high_hz", "band_share"}},
                                {"[levels]", {"name", "note", "rated_watts", "rise_s", "fall_s"}},
                                {"[[level]]", {"phase", "share", "activity", "rise_s", "fall_s"}}};

const KeysByTable kTransformKeys = {
    {"[transform]", {"type",
                     "from",
                     "step",
                     "to",
                     "weights",
                     "dtype",
                     "through",
                     "width",
                     "hidden",
                     "heads",
                     "kv_heads",
                     "mamba_heads",
                     "mamba_head_width",
                     "layers",
                     "keep_layers",
                     "depth",
                     "iterative",
                     "aggregate",
                     "rank",
                     "seed",
                     "merge_heads",
                     "importance",
                     "search",
                     "take",
                     "data",
                     "samples",
                     "device",
                     "threads",
                     "precision"}},
    {"[transform.data]",
     {"type", "path", "format", "context", "batch", "val_fraction", "train_fraction", "val_path", "order",
      "vocabulary", "tokenizer", "token_bytes", "pack", "long_documents", "separator_line", "separator_byte",
      "jsonl_key", "max_bad_share", "cache"}}};

/// Files that are not runs: experiments, studies and simulations, each with its own reader.
void mutate_files(Total& total, const std::string& kind, const KeysByTable& keys,
                  const std::function<void(const std::string&)>& read) {
  const Scratch scratch;
  for (const char* folder : {"base", "presets", "reproduce", "simulate", "power", "transform"})
    if (folder != kind) fs::create_directory_symlink(kConfigs / folder, scratch / folder);
  const fs::path mutated = scratch / (kind + "/mutated.toml");
  const auto answer = [&](const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write_file(mutated, text);
    try {
      read(mutated.string());
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      return std::string(error.what());
    }
  };

  std::set<std::string> proven;
  for (const fs::path& file : shipped(kind)) {
    SCOPED_TRACE(file.string());
    std::vector<std::string> lines;
    std::istringstream in(read_file(file));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    ASSERT_EQ(answer(lines), "");
    std::string table;
    for (std::string& line : lines) {
      if (line.starts_with("[")) table = line;
      std::smatch match;
      if (!std::regex_match(line, match, std::regex("([a-z_]+)( *=.*)"))) continue;
      const std::string key = match[1], rest = match[2];
      // The sizes of a study are one table under four names.
      if (!proven.insert((table.starts_with("[size.") ? "[size]" : table) + key).second) continue;
      ASSERT_EQ(keys.count(table), 1u) << table;
      ++total.keys;
      std::string example;
      for (const std::string& mutation : config::one_edit_mutations(key, total.every)) {
        if (keys.at(table).count(mutation) > 0) continue;
        ++total.tried;
        line = mutation + rest;
        const std::string text = answer(lines);
        if (text.empty()) total.accepted.push_back(table + key + " -> " + mutation);
        if (text.find("did you mean '" + key + "'?") == std::string::npos && example.empty())
          example = table + key + " -> " + mutation + ": " + text;
      }
      line = key + rest;
      if (key.size() < 4) continue;
      ++total.long_keys;
      if (!example.empty()) total.misguided.push_back(example);
    }
  }
}

TEST(KeyMutations, AreRefusedInEveryShippedConfiguration) {
  Total total;
  const char* wanted = std::getenv("TENON_MATRIX");
  if (wanted != nullptr && std::string_view(wanted) == "all") total.every = 1;
  mutate_runs(total);
  EXPECT_GT(total.keys, 30u);
  const std::size_t in_runs = total.keys;
  mutate_files(total, "experiments", kExperimentKeys,
               [](const std::string& path) { ab::read_experiment(path, {}); });
  EXPECT_GT(total.keys, in_runs + 6);
  const std::size_t without_studies = total.keys;
  mutate_files(total, "studies", kStudyKeys, [](const std::string& path) { reproduce::read_study(path); });
  EXPECT_GT(total.keys, without_studies + 15);
  const std::size_t without_simulations = total.keys;
  Registry registry;
  registry.discover_only({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  mutate_files(total, "simulate", kSimulateKeys,
               [&](const std::string& path) { simulate::read_plan(Config::load(path, {}), registry, path); });
  EXPECT_GT(total.keys, without_simulations + 12);
  const std::size_t without_sites = total.keys;
  mutate_files(total, "power", kPowerKeys,
               [&](const std::string& path) { power::read_file(path, registry); });
  EXPECT_GT(total.keys, without_sites + 30);
  const std::size_t without_transforms = total.keys;
  mutate_files(total, "transform", kTransformKeys, [&](const std::string& path) {
    transform::read_plan(Config::load(path, {}), registry, path, "");
  });
  EXPECT_GE(total.keys, without_transforms + 6);
  EXPECT_EQ(total.accepted, std::vector<std::string>());
  EXPECT_LE(total.misguided.size() * 10, total.long_keys)
      << "fewer than 90 % of " << total.long_keys << " keys have only right suggestions";
  std::cout << total.keys << " keys, " << total.tried << " misspellings; " << total.misguided.size() << " of "
            << total.long_keys << " long keys with some other suggestion, for example\n";
  for (const std::string& example : total.misguided) std::cout << "  " << example << "\n";
}

}  // namespace
}  // namespace tenon::integration::key_mutations_test
