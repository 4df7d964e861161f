// The folder of a simulation, as `tenon simulate` writes it and data sets read it:
//
//   manifest.json           what is simulated, which samples are finished, which failed and why
//   shared/NAME.npy         arrays that all tasks read
//   samples/000012/NAME.npy one file per field of a sample; the folder appears whole, by a rename
//   sets/NAME.json          a manifest of one moment: the samples that a run was trained on
//
// Reads and writes the manifest and builds file names; runs nothing.
#pragma once

#include <tenon/files.hpp>
#include <tenon/simulator.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// A task without a sample, and the reason.
struct FailedTask {
  /// `error`: the simulator reported it, and would again. `time`, `lost`: it took too long, or its process
  /// died; it is retried when the simulation is continued.
  std::string kind;
  std::string cause;
  std::int64_t attempts = 1;
};

struct SimulationManifest {
  std::string simulator;       ///< "darcy"
  std::string plugin;          ///< "tenon.porous"
  std::string plugin_version;  ///< "0.1.0"
  std::string config;          ///< table [simulator], complete, in canonical TOML
  std::uint64_t seed = 1;
  std::int64_t samples = 0;  ///< requested: indices 0 ... samples - 1
  std::vector<SimulatedField> fields;
  std::vector<SimulatedField> shared;
  std::map<std::int64_t, std::string> finished;  ///< index -> digest of the sample
  std::map<std::int64_t, FailedTask> failed;

  /// Returns whether every sample is finished or known to fail.
  bool complete() const;
  /// SHA-256 of everything that determines the bytes of a sample: simulator, plugin, config, seed, fields.
  std::string config_hash() const;
};

/// `where` begins every message. Throws Error(kConfig): no JSON, another format or version, an unknown or
/// missing key, a value out of its range, a hash that does not fit.
SimulationManifest parse_simulation_manifest(std::string_view text, std::string_view where);
/// Canonical: equal manifests give equal text.
std::string simulation_manifest_text(const SimulationManifest& manifest);

/// Throws Error(kConfig) that says what to do if the folder holds no simulation.
SimulationManifest read_simulation(FileSystem& files, const std::string& folder);

std::string simulation_manifest_path(const std::string& folder);
std::string simulation_sample_folder(const std::string& folder, std::int64_t index);
std::string simulation_shared_folder(const std::string& folder);
std::string simulation_set_path(const std::string& folder, std::string_view set);
/// "NAME.npy" below `folder`.
std::string simulation_array_path(const std::string& folder, const SimulatedField& field);

/// xxh3-128 over the elements of the arrays, in the order of the fields.
std::string simulation_digest(std::span<const TensorView> arrays);
/// Throws Error(kConfig) with file, expected and found if an array stored below `folder` does not match
/// `fields`. Reads headers only.
void check_simulation_arrays(FileSystem& files, const std::string& folder,
                             std::span<const SimulatedField> fields);
/// The same, and reads the arrays; one view per field, of its type and shape.
void read_simulation_arrays(FileSystem& files, const std::string& folder,
                            std::span<const SimulatedField> fields, std::span<const TensorView> arrays);

TENON_ABI_END
