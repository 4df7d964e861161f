// Evaluation of the validation split: batches dealt to the replicas in turn, sums of losses joined in rank
// order. Strategies whose replicas differ between syncs are evaluated as the mean over replicas of what each
// calls the model.
#pragma once

#include "train/batch_reader.hpp"
#include "train/parts.hpp"
#include "train/replica.hpp"

#include <set>
#include <string>
#include <vector>

namespace tenon::train {

struct EvaluationValue {
  std::string metric;
  double value = 0;
};

class Evaluator {
 public:
  /// max_batches: over all replicas, 0 = the whole split.
  /// `together`: every forward takes all replicas (tables cut over them), so those that have no batch left
  /// run along on padding.
  Evaluator(Parts& parts, RankReplica& replica, Executor& executor, std::int64_t max_batches, bool together);
  /// Collective over the replica group; call it while workers and actors are parked.
  std::vector<EvaluationValue> run(ParameterSet& weights, std::int64_t slot);

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
