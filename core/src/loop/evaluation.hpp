// Evaluation of validation splits, that of the run's own data and those of [[evaluate]]: batches dealt to the
// replicas in turn, sums of losses joined in rank order. Strategies whose replicas differ between syncs are
// evaluated as the mean over replicas, each with the model that it evaluates.
#pragma once

#include "loop/batch_reader.hpp"
#include "loop/exchange.hpp"
#include "loop/parts.hpp"
#include "loop/replica.hpp"

#include <algorithm>
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
/// has left. They exchange this a few times a second.
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

/// One pass over validation batches in any order, for training and for commands on stored runs.
class ValidationPass {
 public:
  using Undefined = std::function<void(std::string_view metric, std::string_view reason)>;

  /// max_batches: 0 = the whole split. All outlive this.
  ValidationPass(BatchReader& reader, Executor& executor, const DataInfo& data, std::int64_t batch,
                 std::int64_t max_batches);

  std::int64_t batches() const { return batches_; }
  std::int64_t first_sample(std::int64_t b) const { return b * batch_; }
  std::int64_t samples(std::int64_t b) const { return std::min(batch_, samples_ - first_sample(b)); }

  void begin();
  /// Batch `b`; one beyond the last is all padding.
  void forward(ParameterSet& weights, std::int64_t b, std::int64_t slot);
  /// Means of the losses, the trained one also per byte where the data are text, then what nodes measure,
  /// over all members of `replicas` (null: there is one).
  std::vector<EvaluationValue> end(Communicator* replicas, const Undefined& undefined);

 private:
  BatchReader& reader_;
  Executor& executor_;
  std::int64_t batch_, samples_, batches_;
  double bytes_per_target_;
  std::vector<double> sums_;
};

/// What an evaluation is of, and when.
struct EvaluatedData {
  std::string set;         ///< "val", or "val.NAME" of an entry of [[evaluate]]
  Part<Dataset>* dataset;  ///< opened
  std::int64_t every = 0;  ///< slots; 0 = only at the end

  bool named() const { return set != split_name(Split::kVal); }
  bool due(std::int64_t slot) const { return slot > 0 && every > 0 && slot % every == 0; }
};

/// Throws Error(kConfig) that begins with `where` unless a graph for data `trained` in batches of `batch`
/// takes those of `evaluated`: it has a validation split, and the same batch and fields.
void require_fitting_data(const std::string& where, const DataInfo& trained, std::int64_t batch,
                          const DataInfo& evaluated, std::int64_t evaluated_batch);
/// The same where the graphs differ that the model makes of the two.
void require_equal_graphs(const std::string& where, const DataInfo& trained, const GraphSpec& graph,
                          const DataInfo& evaluated, const GraphSpec& other);

class Evaluator {
 public:
  /// max_batches: over all replicas, 0 = the whole split. `together`: every forward needs all replicas
  /// (tables sharded over them), so those that have no batch left run on padding.
  Evaluator(EvaluatedData data, Device& device, RankReplica& replica, Executor& executor,
            std::int64_t max_batches, bool together);
  const EvaluatedData& data() const { return data_; }
  /// Collective over the replica group; call it while workers and actors are parked. Nothing when `breaks`
  /// said so between two rounds, in which each replica takes a batch.
  std::optional<std::vector<EvaluationValue>> run(ParameterSet& weights, std::int64_t slot,
                                                  const std::function<bool()>& breaks);

 private:
  EvaluatedData data_;
  RankReplica& replica_;
  BatchReader reader_;
  ValidationPass pass_;
  bool together_;
  std::set<std::string, std::less<>> explained_;  ///< metrics whose absence was logged
};

}  // namespace tenon::train
