// Records of a run on disk beside its logs: folder, checkpoints, metrics, manifest, the record of its
// failures; and what the folder knows of earlier segments.
#pragma once

#include "loop/compute_cost.hpp"
#include "record/checkpoint_places.hpp"
#include "record/metrics.hpp"
#include "record/recovery_log.hpp"
#include "record/run_files.hpp"
#include "record/run_folder.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>
#include <tenon/runtime.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

class RunRecord {
 public:
  explicit RunRecord(FileSystem& files) : files_(files) {}

  /// Once the folder is known. `hook` is called with the name of each phase of a save.
  void open_store(const KeptPlaces& kept, const std::function<void(const char*)>& hook);
  void open_metrics();
  /// Slots after this one will be computed again: their lines go.
  void go_back(std::int64_t slot);
  /// Rank 0: the manifest of this segment, with those of earlier ones before it.
  void begin_manifest(Manifest begun);
  /// Rank 0: this segment goes on from another slot than its manifest says.
  void begins_at(std::int64_t slot);
  void end_segment(const std::string& reason);
  /// Notes checkpoints that were not believed, in whose place the run takes that of slot `to` (-1: it starts
  /// again). Throws Error(kRun), which names them, where the attempt has had more of them than `most`.
  void count_fallbacks(std::span<const RejectedGeneration> rejected, std::int64_t to, std::int64_t most);
  /// "; the newest checkpoint is that of slot 40"
  std::string newest_checkpoint_text() const;

  std::unique_ptr<CheckpointStore> store;    ///< in the run's folder
  std::unique_ptr<CheckpointPlaces> places;  ///< that one, and those of the recovery policy
  RunFolder folder;
  std::unique_ptr<AttemptLock> lock;
  std::unique_ptr<MetricsWriter> metrics;
  Manifest manifest;
  std::vector<ManifestSegment> earlier_segments;
  std::string device_choice;                   ///< why this device, where the configuration left it open
  std::string recorded_kernels;                ///< of the attempt that is continued, "" otherwise
  std::optional<PieceSeconds> recorded_costs;  ///< that it had measured
  LoadedWeights recorded_init;                 ///< what it began with
  std::vector<std::string> notes;              ///< what a person should know about the start
  std::unique_ptr<RecoveryLog> recovery_log;   ///< rank 0
  RunResult result;                            ///< written by rank 0

 private:
  FileSystem& files_;
};

}  // namespace tenon::train
