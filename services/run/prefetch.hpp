// Tells tables which rows the next slots will read ([tables] prefetch): an actor of the rank reads the
// batches of those slots, since data is a pure function of the position, and calls RowsAhead of the tables.
// It changes no value and sends nothing.
#pragma once

#include "loop/rank_host.hpp"
#include "loop/row_server.hpp"
#include "loop/service.hpp"
#include "run/rank_context.hpp"
#include "run/trainer.hpp"

#include <tenon/tier.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

class Prefetch final : public Service {
 public:
  Prefetch(const RankContext& rank, Trainer& trainer);
  ~Prefetch() override;

  /// Why [tables] prefetch does nothing in this run; "" where it acts or was not asked for.
  static std::string idle_reason(const config::CoreSettings& settings, const Trainer& trainer);

  // Service
  void start() override;
  void before_slot(std::int64_t slot) override;

  /// Returns when no hint is on its way; none begins before the next slot.
  void hold();
  /// After the last slot. Rethrows an error that ended the actor.
  void end();

 private:
  /// What the replicas have come to, and what they were told of.
  class Board;
  /// Slot `slot` of a replica, whose first sample has this position.
  struct Hint {
    int replica = 0;
    std::int64_t slot = 0, position = 0;
  };
  /// A table and the optimizer's tables beside it.
  struct Told {
    const RowTable* table = nullptr;
    std::vector<RowsAhead*> ahead;
    std::vector<std::int64_t> ids;
  };

  void run(Actor& actor);
  void collect(const Hint& hint);
  void read(const BatchRequest& request);
  void tell(const Hint& hint);

  RankContext rank_;
  Trainer& trainer_;
  std::vector<int> replicas_;  ///< whose samples read this rank's rows in one slot; empty: the hint's alone
  std::vector<Told> told_;     ///< by parameter
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TensorView> fields_;  ///< of a batch
  std::shared_ptr<Board> board_;    ///< null: nothing to do
  PauseGate gate_;  ///< of the actor alone: hold() stops it at boundaries, no other pause concerns it
  std::unique_ptr<RankHost> host_;
  std::unique_ptr<Actor> actor_;  ///< last: it uses all of the above
};

}  // namespace tenon::train
