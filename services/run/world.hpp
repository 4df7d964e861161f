// Objects that the ranks of one process share (all ranks of a run, or one): clock, control plane, transport,
// run folder and the record of the run.
#pragma once

#include "config/run_schema.hpp"
#include "failover/survival.hpp"
#include "loop/pass_watch.hpp"
#include "plugin/guard.hpp"
#include "record/plugin_lock.hpp"
#include "record/run_record.hpp"
#include "run/links.hpp"
#include "run/phase_probe.hpp"
#include "run/start_point.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>
#include <tenon/transport.hpp>

#include <atomic>
#include <chrono>
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
  World(const Config& config, Registry& registry, const TrainRequest& request, Survival& survival);
  ~World();

  /// Runs all ranks to the end, or to an interruption that they outlive: survival.next then says where they
  /// go on. Throws what kept them from being built; later failures come back in the result.
  RunResult run();
  /// Builds every rank and no more; facts of rank 0 for `tenon check`.
  std::vector<std::string> build_only();
  /// Called from any thread: a signal or a budget asks for an agreed stop.
  void ask_to_stop(StopReason reason, const std::string& why);
  /// As above, learnt from the control plane: a signal came to another process.
  void note_interrupt();
  StopReason stop_reason() const;
  /// All ranks are threads of this process.
  bool threads_only() const { return place.rank < 0; }
  /// Replicas whose memory this machine holds.
  int replicas_here() const;
  /// Ranks that share this machine's processors.
  int ranks_here() const;
  int threads_per_rank() const;
  /// Processes only: every rank of the exchange must bring the same text. Throws Error(kConfig) that shows
  /// the first line that differs. `device` may differ, which rank 0 notes. Collective.
  void agree(TextExchange& among, int rank, std::string_view what, const std::string& text,
             const std::string& device = "");
  /// Rank 0, once every rank is built: the attempt appears on disk, or the newest one is opened to continue
  /// it.
  /// `check` looks at the checkpoint to continue from before anything is written.
  /// `mixed`: a checkpoint whose rows are of several moments will do.
  void open(int keep, bool mixed, const std::function<void(const CheckpointReader&)>& check);

  const Config& config;
  Registry& registry;
  TrainRequest request;
  Survival& survival;
  /// Seconds of this process, which rank 0 writes down; null for other ranks.
  OverheadLedger* ledger(int rank) const { return rank == 0 ? &survival.ledger : nullptr; }
  ProcessPlace place;
  config::CheckedRun checked;  ///< for settings; each rank copies the options of its components
  const config::CoreSettings& settings;

  std::unique_ptr<FileSystem> files;
  std::unique_ptr<Clock> clock;
  std::unique_ptr<Clock>
      saver_clock;  ///< wall time for the saving threads, which take no part in the run's clock
  Links links;
  std::unique_ptr<PassWatch> pass_watch;  ///< of this process's ranks
  RunRecord record;
  StartPoint start;
  PhaseProbe phase;

 private:
  /// The body returns whether its rank shall be built again.
  void run_ranks(const std::function<bool(int rank, Rank& self)>& body);
  void run_rank(int rank, int participant, const std::function<bool(int rank, Rank& self)>& body);
  void run_trainer(int rank, const std::function<bool(int rank, Rank& self)>& body);
  /// Reports the exception that is being handled to the control plane.
  void report_failure(int rank);
  void throw_failure() const;
  int failure_status() const;  ///< of this process
  void note_crowding();
  /// Whether ranks are to keep their state: another has died. A rank that was cut off waits for the reason.
  bool outlives() const;
  /// Once they do: waits for the place to go on. False if the run has failed meanwhile.
  bool goes_on();
  /// The attempt was cut short at a slot whose evaluation was due, and lacks it. Rank 0.
  bool owes_evaluation() const;
  void open_folder(const std::string& base, int keep, bool mixed,
                   const std::function<void(const CheckpointReader&)>& check);
  void find_checkpoint(bool mixed, const std::function<void(const CheckpointReader&)>& check);
  // pass_end.cpp
  void watch_passes();
  void end_late(const LatePass& pass);
  void end_lost(const LatePass& pass);
  /// A rank that was missed may be about to name the kernel that holds it.
  void await_late_pass() const;
  void finish();
  void finish_locked();
  void write_results();
  std::vector<LockedPlugin> loaded_plugins() const;
  void connect(const WorldSpec& spec);
  void share_opening(int rank, int keep);

  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::atomic<int> running_{0};       ///< ranks of this process that have not ended
  std::mutex end_mutex_;              ///< held while the end of the run is written down
  std::atomic<bool> cut_off_{false};  ///< some call of a rank of this process has thrown
  /// A rank of this process cannot use its device any more: the process is to end, even if other ranks live
  /// on.
  std::atomic<bool> device_lost_{false};
  mutable std::mutex mutex_;
  StopReason stop_ = StopReason::kNone;
  std::string stop_why_;
};

}  // namespace tenon::train
