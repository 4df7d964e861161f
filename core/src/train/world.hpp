// What the ranks of one process share: clock, control plane, transport, run folder and the record of the run.
#pragma once

#include "comm/control_inprocess.hpp"
#include "config/run_schema.hpp"
#include "observe/manifest.hpp"
#include "observe/metrics.hpp"
#include "observe/run_folder.hpp"
#include "train/compute_cost.hpp"
#include "train/exchange.hpp"
#include "train/pause_gate.hpp"
#include "train/phase_probe.hpp"
#include "train/rank_host.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>
#include <tenon/transport.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace tenon::train {

class Rank;

/// Why a run ended before its last slot.
enum class StopReason : std::uint8_t { kNone, kSignal, kBudget };

struct World {
  World(const Config& config, Registry& registry, const TrainRequest& request);
  ~World();

  /// Runs all ranks to the end. Throws what kept them from being built; later failures come back in the
  /// result.
  RunResult run();
  /// Builds every rank and no more; facts of rank 0 for `tenon check`.
  std::vector<std::string> build_only();
  /// Called from any thread: a signal or a budget asks for an agreed stop.
  void ask_to_stop(StopReason reason, const std::string& why);
  StopReason stop_reason() const;
  /// Of rank 0, over all purposes of the data transport.
  std::uint64_t bytes_sent() const;
  /// Rank 0, once every rank is built: the attempt appears on disk, or the newest one is opened to continue
  /// it.
  /// `check` looks at the checkpoint to continue from before anything is written.
  void open(int keep, const std::function<void(const CheckpointReader&)>& check);
  /// Rank 0: the manifest of this segment, with those of earlier ones before it.
  void begin_manifest(Manifest begun);

  const Config& config;
  Registry& registry;
  TrainRequest request;
  config::CheckedRun checked;  ///< for settings; each rank validates again for its own options
  const config::CoreSettings& settings;

  std::unique_ptr<FileSystem> files;
  std::unique_ptr<Clock> clock;
  std::unique_ptr<Clock>
      saver_clock;  ///< wall time for the saving threads, which take no part in the run's clock
  std::unique_ptr<InprocessControl> control;
  PauseGate transport_gate;  ///< of the transport's host, which belongs to no replica
  std::unique_ptr<RankHost> transport_host;
  Component<Transport> transport;
  std::unique_ptr<TextHub> training_hub, saving_hub, end_hub;
  std::unique_ptr<CheckpointStore> store;  ///< made by rank 0's recovery policy
  RunFolder folder;
  std::unique_ptr<AttemptLock> lock;
  std::unique_ptr<MetricsWriter> metrics;
  Manifest manifest;
  std::vector<ManifestSegment> earlier_segments;
  std::string recorded_kernels;                ///< of the attempt that is continued, "" otherwise
  std::optional<PieceSeconds> recorded_costs;  ///< that it had measured
  std::vector<std::string> notes;              ///< what a person should know about the start
  std::int64_t restored_slot = -1;             ///< checkpoint to continue from; -1 = from the start
  double restored_wall_s = 0;                  ///< of the slots before it

  PhaseProbe phase;
  RunResult result;  ///< written by rank 0

 private:
  void run_ranks(const std::function<void(int rank, Rank& self)>& body);
  void run_rank(int rank, int participant, const std::function<void(int rank, Rank& self)>& body);
  /// Of the exception that is being handled.
  void report_failure(int rank);
  void throw_failure() const;
  void open_folder(const std::string& base, int keep,
                   const std::function<void(const CheckpointReader&)>& check);
  void find_checkpoint(const std::function<void(const CheckpointReader&)>& check);
  void finish(double wall_s);

  mutable std::mutex mutex_;
  StopReason stop_ = StopReason::kNone;
  std::string stop_why_;
};

}  // namespace tenon::train
