// Data set `simulated` (contract dataset/1): the samples in the folder of a simulation, one file per sample
// and field. Failed samples are left out and reported. A file is opened when its sample is read; the
// operating system's page cache is the only copy.
#pragma once

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>
#include <tenon/sdk/simulation.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::simulated {

// The set of samples of a simulation that a run uses: all of a finished one, or those present at one moment,
// recorded under a name so that every rank, every resumed run and every arm of a study uses the same set.

/// `set` = "": the simulation in `folder` must be complete. Otherwise returns the set of this name, recorded
/// now if absent; of several processes that record it at once one wins, and all get its set. Throws
/// Error(kConfig).
SimulationManifest sample_set(FileSystem& files, const std::string& folder, const std::string& set);

/// Returns the SHA-256 that identifies the chosen samples: the simulation, their indices and their digests.
std::string sample_set_hash(const SimulationManifest& manifest, std::span<const std::int64_t> indices);

class Simulated final : public IndexedDataset {
 public:
  static constexpr const char* kParts[] = {"val", "test", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::path("path", nullptr).mandatory().made_later().doc_text("folder that `tenon simulate` wrote"),
      option::text("set", "\"\"")
          .doc_text("name under which the existing samples are, or were, recorded; empty: the simulation "
                    "must be complete"),
      option::integer("samples", "0")
          .at_least(0)
          .in_unit("samples")
          .doc_text("only the finished ones of lowest index; 0 = all"),
      option::texts("inputs", "[]")
          .doc_text("fields that models read: \"field\" or \"name=field\"; empty: all inputs"),
      option::texts("targets", "[]").doc_text("fields that losses compare with; empty: all targets"),
      option::real("val_fraction", "0.1")
          .between(0, 0.9)
          .doc_text("share of the samples that is held out for validation"),
      option::real("test_fraction", "0")
          .between(0, 0.9)
          .doc_text("share that is held out from training and validation"),
      option::text("evaluate_on", "\"val\"").one_of(kParts).doc_text("the part that evaluations read"),
      batch_option("16"),
      order_option(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "simulated", .summary = "samples that `tenon simulate` made", .options = kOptions};

  Simulated(const Options& options, Host& host);

 private:
  /// A field of the data set and its file.
  struct Source {
    std::string name;
    SimulatedField field;
    std::int64_t bytes = 0;
  };
  enum class Part { kTrain, kVal, kTest };

  IndexedContent load() override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;
  Part part_of(std::int64_t index) const;
  void choose_fields(const SimulationManifest& manifest);
  void report_holes(const SimulationManifest& manifest) const;

  Host& host_;
  std::string folder_, set_;
  std::int64_t most_;
  std::vector<std::string> inputs_, targets_;
  double val_fraction_, test_fraction_;
  bool on_test_;
  std::vector<Source> sources_;
  std::vector<std::int64_t> train_, held_out_;  ///< indices of samples
};

}  // namespace tenon::simulated
