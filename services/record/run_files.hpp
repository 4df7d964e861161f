// Files of a run folder that are written whole: manifest.json, plugins.lock, summary.json. Metrics and the
// record of failures, which grow, are in metrics.hpp and recovery_log.hpp.
#pragma once

#include "record/build_info.hpp"

#include <tenon/dataset.hpp>
#include <tenon/files.hpp>
#include <tenon/runtime.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

// manifest.json: what it takes to understand, repeat or compare a run. Free of host names and of any
// environment beyond the variables that change numbers or speed. Written when a run starts and again when it
// ends.

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// From one start of the program to its end; an attempt that was resumed has several.
struct ManifestSegment {
  std::string command_line;
  std::int64_t first_step = 0;  ///< slots already done at the start
  std::string start;            ///< UTC, utc_now()
  std::string end;              ///< "" while running or after a kill
  std::string exit_reason;      ///< "completed", "interrupted: SIGTERM", "failed: ..."; "" as above
};

/// What a run with [init] began with.
struct LoadedWeights {
  std::string from;                                 ///< attempt or model folder; "" = the weights were drawn
  std::int64_t step = 0;                            ///< of its checkpoint; -1 = a model folder
  std::string digest;                               ///< StoredModel::digest()
  std::string what;                                 ///< as in [init]
  std::int64_t loaded = 0, drawn = 0, dropped = 0;  ///< parameters
};

struct Manifest {
  BuildInfo build;
  std::string cpu_model, cpu_features;  ///< features as the device names them
  int cpu_cores = 0;                    ///< usable by the process
  std::string device_choice;            ///< why this device; "" where the configuration names it
  std::string kernels;                  ///< kernel set in use; resume and paired runs take it from here
  int ranks = 1;
  int threads = 1;  ///< per rank
  std::uint64_t seed = 0, seed_init = 0, seed_order = 0, seed_rounding = 0;
  std::string rng = "philox4x32-10";
  std::string config_sha256;  ///< of config.resolved.toml
  std::vector<DataSource> data;
  std::vector<DataAttribute> attributes;  ///< of the data: what a model of it was made for
  /// Costs of the simulated clock where they were measured, in seconds; empty otherwise.
  std::vector<std::pair<std::string, double>> calibration;
  NamedTexts libraries;  ///< {"oneDNN", "2.6.3"}
  NamedTexts environment;
  LoadedWeights init;                     ///< its `from` is written as parent_run
  std::vector<ManifestSegment> segments;  ///< oldest first, at least one
};

/// A manifest with build, processor and environment filled in and one segment that starts now.
Manifest begin_manifest(std::string command_line, std::int64_t first_step);

/// Writes `folder`/manifest.json atomically.
void write_manifest(FileSystem& files, const std::string& folder, const Manifest& manifest);
/// Throws Error(kRun) when the file is not a manifest, FileError when it cannot be read.
Manifest read_manifest(FileSystem& files, const std::string& folder);

// plugins.lock: which plugin files a run had loaded, as TOML. A plugin that was replaced when the run was
// resumed has an entry for each of its files.

struct LockedPlugin {
  std::string id;               ///< "tenon.sync_basic"
  std::string version;          ///< "0.1.0"
  std::string file;             ///< "" when linked into the program
  std::string sha256;           ///< of the file
  std::string abi;              ///< what must match: "epoch 0, x86_64, libstdc++, ..."
  std::int64_t first_step = 0;  ///< slots that were done when it came
};

/// Writes `folder`/plugins.lock atomically, sorted by id and first step.
void write_plugin_lock(FileSystem& files, const std::string& folder, std::vector<LockedPlugin> plugins);
/// Reads it back, in its order; empty when there is none. Throws Error(kRun) when it is not such a file.
std::vector<LockedPlugin> read_plugin_lock(FileSystem& files, const std::string& folder);

/// The entries of a run that goes on with `now` at `step`: those that it had, and what is new or replaced. A
/// replaced plugin is another version or another file of the same id; `replaced` gets a sentence about each.
std::vector<LockedPlugin> continued_plugins(std::vector<LockedPlugin> had,
                                            const std::vector<LockedPlugin>& now, std::int64_t step,
                                            std::vector<std::string>& replaced);

// summary.json: how a run ended, in one object. Written once, at the end, by rank 0.

/// Writes result.folder/summary.json atomically. Numbers that are not finite become null.
void write_summary(FileSystem& files, const RunResult& result);
/// Reads it back; null reads as NaN, and exit_status is derived from the status. Throws Error(kRun) when the
/// file is not a summary, FileError when it cannot be read.
RunResult read_summary(FileSystem& files, const std::string& folder);

}  // namespace tenon
