// Objects that the ranks of one process share (all ranks of a run, or one): clock, control plane, transport,
// run folder and the record of the run.
#pragma once

#include "base/file_descriptor.hpp"
#include "config/run_schema.hpp"
#include "failover/snapshot.hpp"
#include "loop/pass_watch.hpp"
#include "plugin/guard.hpp"
#include "record/run_files.hpp"
#include "record/run_record.hpp"
#include "run/links.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::train {

// Tells tests in which phase of a run a process is: TENON_PHASE_LOG=FILE gets one line per phase entered
// (a launched rank r: FILE.r), written before the phase begins, and TENON_KILL_AT=phase:n ends the process
// with SIGKILL at the n-th entry; phase:n@r does so with the process that is rank r, but not with one that
// took its place. TENON_STOP_AT=phase:n sends SIGTERM to the process in the same way. Unset, it does nothing.

class PhaseProbe {
 public:
  PhaseProbe();
  /// "compute", "evaluate", "copy", "write", "sync", "manifest", "verify", "rename", "gc", "done"; "hold" and
  /// "rejoin" where other ranks died; from any thread.
  void enter(std::string_view phase);
  bool active() const { return file_ || !kill_.phase.empty() || !stop_.phase.empty(); }

 private:
  struct Moment {
    /// Takes it from the text of a variable; stays empty where another rank is meant.
    void read(const char* text);
    bool reached(std::string_view entered) { return entered == phase && --left == 0; }

    std::string phase;
    std::atomic<long> left{0};
  };

  base::FileDescriptor file_;
  Moment kill_, stop_;
};

// The point at which the ranks of a process begin, and begin again after a roll-back.

struct StartPoint {
  /// The point at which all ranks go on after they have been built again.
  struct RollBack {
    std::uint32_t epoch = 0;
    std::int64_t slot = -1;        ///< checkpoint; -1 = from the start
    int place = kRunFolder;        ///< where it is
    std::int64_t faults_from = 0;  ///< [[fault]]s of earlier slots have happened
    std::int64_t timeline = 0;
    double wall_s = 0;
    std::size_t next_failure = 0;
    bool asked = false;  ///< by the recovery policy, without a failure
    /// Checkpoint that was not believed, in whose place all ranks take an older one; -1: none.
    std::int64_t in_place_of = -1;
  };
  /// Called by every rank of this process, with equal arguments.
  void roll_back(const RollBack& target) {
    const std::lock_guard lock(mutex);
    if (epoch == target.epoch) return;  // another rank of this process was first
    epoch = target.epoch;
    restored_slot = target.slot;
    restored_place = target.place;
    faults_from = target.faults_from;
    timeline = target.timeline;
    restored_wall_s = target.wall_s;
    next_failure = target.next_failure;
    if (target.in_place_of >= 0) {
      if (first_epoch == epoch - 1) first_epoch = epoch;
      if (rolled_back_to == target.in_place_of) rolled_back_to = std::max<std::int64_t>(0, target.slot);
    }
    if (!target.asked) return;
    ++roll_backs;
    rolled_back_to = std::max<std::int64_t>(0, target.slot);
  }

  std::int64_t restored_slot = -1;     ///< checkpoint to continue from; -1 = from the start
  int restored_place = kRunFolder;     ///< where it is
  double restored_wall_s = 0;          ///< of the slots before it
  std::uint64_t earlier_bytes = 0;     ///< sent by rank 0 in earlier segments (modulo 2^64)
  std::optional<Survivors> survivors;  ///< the run goes on from what ranks hold in memory
  std::int64_t timeline = 0;           ///< of checkpoints; grows at every roll-back
  std::uint32_t epoch = 0;             ///< how often the ranks were built again
  /// Epoch in which the run goes on as its process found it: later ones follow roll-backs.
  std::uint32_t first_epoch = 0;
  bool mixed = false;                ///< a checkpoint whose rows are of several moments will do; rank 0
  std::int64_t faults_from = 0;      ///< of the newest roll-back
  std::size_t next_failure = 0;      ///< of the emulated schedule
  std::int64_t evaluated_slot = -1;  ///< of the newest evaluation that the attempt has recorded; rank 0
  std::int64_t roll_backs = 0;       ///< that the recovery policy asked for
  std::int64_t rolled_back_to = -1;  ///< slot that the newest of them went back to
  std::mutex mutex;
};

// The world.

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
  /// Whether the ranks, once built, go on from a checkpoint of this run: as far as its folder says.
  bool goes_on_from_checkpoint() const;
  /// All ranks are threads of this process.
  bool threads_only() const { return place.rank < 0; }
  /// Replicas whose memory this machine holds.
  int replicas_here() const;
  /// Ranks that share this machine's processors.
  int ranks_here() const;
  int threads_per_rank() const;
  /// Plugins that are loaded, with their files.
  std::vector<LockedPlugin> loaded_plugins() const;
  /// The absolute folder of the run, as a name for what outlives this process; empty where nothing may.
  std::string kept_name() const;
  /// Processes only: every rank of the exchange must bring the same text. Throws Error(kConfig) that shows
  /// the first line that differs. `device` may differ, which rank 0 notes. Collective.
  void agree(TextExchange& among, int rank, std::string_view what, const std::string& text,
             const std::string& device = "");
  /// Rank 0, once every rank is built: the attempt appears on disk, or the newest one is opened to continue
  /// it.
  /// `check` looks at the checkpoint to continue from before anything is written.
  /// `mixed`: a checkpoint whose rows are of several moments will do.
  void open(const KeptPlaces& kept, bool mixed, const std::function<void(const CheckpointReader&)>& check);

  const Config& config;
  Registry& registry;
  TrainRequest request;
  Survival& survival;
  /// Seconds of this process, which rank 0 writes down; null for other ranks.
  WallTimeBreakdown* wall_time(int rank) const { return rank == 0 ? &survival.wall_time : nullptr; }
  ProcessPlace place;
  config::CheckedRun checked;  ///< for settings; each rank copies the options of its components
  const config::CoreSettings& settings;

  std::unique_ptr<FileSystem> files;
  std::unique_ptr<Clock> clock;
  std::unique_ptr<Clock>
      saver_clock;  ///< wall time for the saving threads, which take no part in the run's clock
  Links links;
  std::unique_ptr<PassWatch> pass_watch;  ///< of this process
  RunRecord record;
  StartPoint start;
  PhaseProbe phase;

 private:
  /// The body returns whether its rank shall be built again.
  void run_ranks(const std::function<bool(int rank, Rank& self)>& body);
  void run_rank(int rank, int participant, const std::function<bool(int rank, Rank& self)>& body);
  void run_trainer(int rank, const std::function<bool(int rank, Rank& self)>& body);
  /// Reports the exception in flight to the control plane; call inside a catch block.
  void report_failure(int rank);
  void throw_failure() const;
  int failure_status() const;  ///< of this process
  void note_crowding();
  /// Whether ranks are to keep their state: another has died. A rank that was cut off waits for the reason.
  bool outlives() const;
  /// Once they do: waits for the place to go on. False if the run has failed meanwhile.
  bool goes_on();
  /// The attempt was cut short in the evaluation of its last slot. Rank 0. Earlier ones are made up for in
  /// the loop.
  bool owes_evaluation() const;
  std::string base_folder() const;  ///< of the run's attempts
  void open_folder(const std::string& base, const KeptPlaces& kept, bool mixed,
                   const std::function<void(const CheckpointReader&)>& check);
  void open_recovery_log();
  void find_checkpoint(bool mixed, const std::function<void(const CheckpointReader&)>& check);
  // The end of a run whose kernel does not return.
  void watch_passes();
  void end_late(const LatePass& pass);
  void end_lost(const LatePass& pass);
  void write_lost(const LatePass& pass);
  /// A rank that was missed may be about to name the kernel that holds it.
  void await_late_pass() const;
  void finish();
  void finish_locked();
  void write_results();
  /// Those and, of a run that is resumed, what trained it before. Throws Error(kConfig) where a plugin was
  /// replaced, unless the request accepts that.
  std::vector<LockedPlugin> plugins_of_run();
  void connect(const WorldSpec& spec);
  void share_opening(int rank, const KeptPlaces& kept);

  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool only_built_ = false;
  std::atomic<int> running_{0};           ///< ranks of this process that have not ended
  std::atomic<bool> has_control_{false};  ///< links.control is there
  std::mutex end_mutex_;                  ///< held while the end of the run is written down
  std::atomic<bool> cut_off_{false};      ///< some call of a rank of this process has thrown
  /// A rank of this process cannot use its device any more: the process is to end, even if other ranks live
  /// on.
  std::atomic<bool> device_lost_{false};
  mutable std::mutex mutex_;
  StopReason stop_ = StopReason::kNone;
  std::string stop_why_;
};

}  // namespace tenon::train
