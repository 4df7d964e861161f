// The numbers that a rank shows of the run: lines of metrics, and the seconds, bytes and samples in them.
// Rank 0 writes them; all ranks count, since losses and times are joined.
#pragma once

#include "loop/distributions.hpp"
#include "loop/observers.hpp"
#include "loop/parts.hpp"
#include "loop/replica.hpp"
#include "loop/row_server.hpp"
#include "loop/service.hpp"
#include "loop/time_account.hpp"
#include "loop/worker.hpp"
#include "run/rank_state.hpp"
#include "run/world.hpp"

#include <tenon/observer.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::train {

class MetricLines final : public MetricSink, public Service {
 public:
  struct Sources {
    Parts* parts = nullptr;
    RankReplica* weights = nullptr;
    Observers* observers = nullptr;
    bool shared = false;            ///< replicas hold equal weights, and communicate in every slot anyway
    std::int64_t slot_samples = 0;  ///< of all replicas in a slot of which each takes its part
  };

  MetricLines(World& world, int rank, Counters& counters, TimeAccount& account, Distributions& distributions)
      : world_(world),
        rank_(rank),
        epoch_(world.start.epoch),
        counters_(counters),
        account_(account),
        distributions_(distributions) {}
  /// Before the first line.
  void bind(const Sources& sources) { from_ = sources; }
  /// Seconds and samples of the first line count from here.
  void start() override;
  /// The calling thread's time is accounted for from here on.
  void start_times();

  void record(std::string_view name, double value) override { distributions_.record(name, value); }
  void add(std::int64_t step, Split split, std::string_view name, double value) override {
    write(step, split, "", name, value);
  }
  /// A line of an evaluation: `set` is "val.NAME", or "" for the run's own data.
  void evaluated(std::int64_t step, std::string_view set, std::string_view name, double value) {
    write(step, Split::kVal, set, name, value);
  }
  /// The lines of training, where some are due. Collective among shared replicas.
  void after_slot(std::int64_t slot, const SlotResult& result) override;

  /// Brings into Counters::lines what is counted elsewhere, and back.
  void note();
  void take();

  double wall_s() const;  ///< including segments before a resume
  /// Bytes sent by the whole run, including segments before a resume.
  std::uint64_t bytes_sent() const { return world_.links.bytes_sent() + world_.start.earlier_bytes; }
  /// Excludes the time in which actors of `rows` wait for requests, since training does not wait then. `rows`
  /// may be null.
  RankTime time_so_far(const RowServer* rows);
  double actors_idle_s() const { return actors_idle_s_; }

  /// Training stood still, for a save or a failure.
  void stood_still(double seconds) { stall_s_ += seconds; }
  double stall_s() const { return stall_s_; }

 private:
  void write(std::int64_t step, Split split, std::string_view set, std::string_view name, double value);
  void times(std::int64_t done);
  void count_planned_samples(std::int64_t done);
  void trained(std::int64_t done);

  World& world_;
  int rank_;
  std::uint32_t epoch_;
  Counters& counters_;
  TimeAccount& account_;
  Distributions& distributions_;
  Sources from_;
  double begun_s_ = 0, logged_at_s_ = 0;
  std::int64_t logged_samples_ = 0, logged_tokens_ = 0;
  RankTime logged_time_;
  double earlier_transfer_s_ = 0;  ///< before the account began
  double stall_s_ = 0;
  double actors_idle_s_ = 0;  ///< waits for requests, once they have ended
  std::string name_;          ///< "train/loss", reused so that a line allocates nothing
};

}  // namespace tenon::train
