// Evaluation of the validation split: batches dealt to the replicas in turn, sums of losses joined in rank
// order. Strategies whose replicas differ between syncs are evaluated as the mean over replicas of what each
// calls the model.
#pragma once

#include "train/batch_reader.hpp"
#include "train/exchange.hpp"
#include "train/parts.hpp"
#include "train/replica.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tenon::train {

struct EvaluationValue {
  std::string metric;
  double value = 0;
};

/// Whether an evaluation goes on, as all ranks agree between its batches: none may wait in a sum for one that
/// has left. They speak about it a few times a second.
class BreakAgreement {
 public:
  /// others: null where this rank is alone.
  BreakAgreement(TextExchange* others, int rank, std::function<bool()> wanted)
      : others_(others), rank_(rank), wanted_(std::move(wanted)) {}
  /// Some rank wants to end. Collective, between two rounds of batches.
  bool breaks();

 private:
  TextExchange* others_;
  int rank_;
  std::function<bool()> wanted_;
  std::int64_t every_ = 1, left_ = 1;  ///< rounds
  std::chrono::steady_clock::time_point spoke_ = std::chrono::steady_clock::now();
};

class Evaluator {
 public:
  /// max_batches: over all replicas, 0 = the whole split.
  /// `together`: every forward takes all replicas (tables cut over them), so those that have no batch left
  /// run along on padding.
  Evaluator(Parts& parts, RankReplica& replica, Executor& executor, std::int64_t max_batches, bool together);
  /// Collective over the replica group; call it while workers and actors are parked. Nothing when `breaks`
  /// said so between two rounds, in which each replica takes a batch.
  std::optional<std::vector<EvaluationValue>> run(ParameterSet& weights, std::int64_t slot,
                                                  const std::function<bool()>& breaks);

 private:
  Parts& parts_;
  RankReplica& replica_;
  Executor& executor_;
  BatchReader reader_;
  std::int64_t batches_;
  bool together_;
  std::vector<double> sums_;
  std::set<std::string, std::less<>> explained_;  ///< metrics whose absence was logged
};

}  // namespace tenon::train
