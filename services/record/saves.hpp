// Checkpoints of one rank: copied when the policy wants one, written in the background, and reported to the
// policy, the metrics and the log once it is known how they ended.
#pragma once

#include "loop/exchange.hpp"
#include "loop/service.hpp"
#include "loop/spans.hpp"
#include "loop/time_account.hpp"
#include "record/recovery_log.hpp"
#include "record/saved_shape.hpp"
#include "run/rank_context.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/recovery.hpp>
#include <tenon/save_places.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::train {

/// The save exchange of one rank: agreement on the training threads, reports on the saving threads.
class HubExchange final : public SaveExchange {
 public:
  /// account: where the training thread's waits for other ranks count.
  HubExchange(int rank, TextExchange& training, TextExchange& saving, TimeAccount* account)
      : rank_(rank), training_(training), saving_(saving), account_(account) {}
  ~HubExchange() override;
  std::vector<std::string> gather(const std::string& text) override;
  std::string broadcast(const std::string& text) override;
  bool any(bool mine) override;

 private:
  int rank_;
  TextExchange& training_;
  TextExchange& saving_;
  TimeAccount* account_;
};

class Saves final : public Service {
 public:
  Saves(const RankContext& rank, TimeAccount& account, SpanRecorder& spans, const RunShape& shape);

  /// Collective, once the run has a folder.
  void start() override;
  void after_slot(std::int64_t, const SlotResult&) override { take_results(); }
  void ask(Boundary& due) override;
  void plan(Boundary& due) override;
  void at_boundary(Boundary& due) override;
  void take_results();
  /// Collective: nothing is in flight any more, and its end is known.
  void await();
  /// After an interruption: tells the policy how the saves ended that were under way.
  void report(std::span<const std::int64_t> slots);

  /// The newest committed checkpoint is that of `slot`; -1: there is none. Increments have their base in the
  /// run's folder.
  void set_newest(std::int64_t slot, int place) { newest_committed_ = place == kRunFolder ? slot : -1; }
  const std::string& error() const { return error_; }
  /// Slot of the newest save of this process whose content is the state of that moment, to the bit; -1: none.
  std::int64_t newest_exact() const { return newest_exact_; }
  /// Called once per save, when its end is known on this rank.
  void on_end(std::function<void(std::int64_t slot, bool committed, int place)> heard) {
    heard_ = std::move(heard);
  }
  /// Slots of saves whose ends are not known yet.
  std::vector<std::int64_t> unfinished() const;

 private:
  /// Bytes that the ranks together would write, as in memory.
  std::int64_t bytes_of_all_ranks() const;
  void force(Boundary& due);
  int planned_place(const Boundary& due) const;
  std::string_view place_of(std::int64_t slot) const;
  void save_planned(Boundary& due);
  void keep_all(Boundary& due);
  /// `last`: all ranks stop at this boundary. A request to stop does not decide it: ranks learn of it at
  /// different times.
  void save(const SaveMoment& moment, bool last);
  void hand_over(SavePlan plan, const SaveMoment& moment, SavedEvent& event);
  void report_aborted(const SaveResult& saved, const std::string& where);
  void log(const SaveResult& result);

  RankContext rank_;
  TimeAccount& account_;
  SpanRecorder& spans_;
  RunShape shape_;
  SaveSelector* selector_;                 ///< of the policy; null when it has none
  RowCodec* codec_;                        ///< likewise
  SavePlaces* places_;                     ///< likewise
  bool can_save_ = false, stops_ = false;  ///< at this boundary, as it was planned
  SavePlan plan_;                          ///< likewise
  int place_ = kRunFolder;                 ///< that it goes to
  int writing_to_ = kRunFolder;            ///< the newest save that was handed over
  std::deque<SavedEvent> handed_over_;     ///< saves whose results are not known yet
  std::int64_t newest_committed_ = -1;     ///< slot of that checkpoint, in the run's folder
  std::int64_t newest_exact_ = -1;         ///< handed over
  std::function<void(std::int64_t, bool, int)> heard_;
  std::int64_t state_bytes_ = 0;  ///< of all ranks, what an emulated complete save writes
  double last_save_s_ = 0;
  double handed_over_s_ = 0;  ///< to the saver's thread: the newest checkpoint
  std::string error_;
  SaveBuffers buffers_;
  HubExchange exchange_;
  std::unique_ptr<AsyncSaver> saver_;  ///< last: it may still read what is above. Null when nothing is kept
};

}  // namespace tenon::train
