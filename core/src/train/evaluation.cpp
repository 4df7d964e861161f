// Sums stay in double and are divided once, so the result depends on the order of batches only through
// rounding.
#include "train/evaluation.hpp"

#include <algorithm>

namespace tenon::train {

Evaluator::Evaluator(Parts& parts, RankReplica& replica, Executor& executor, std::int64_t max_batches)
    : parts_(parts), replica_(replica), executor_(executor), reader_(parts, executor) {
  const std::int64_t batch = parts.dataset->batch();
  batches_ = (parts.dataset->info().val_samples + batch - 1) / batch;
  if (max_batches > 0) batches_ = std::min(batches_, max_batches);
}

std::vector<EvaluationValue> Evaluator::run(ParameterSet& weights, std::int64_t slot) {
  const std::int64_t batch = parts_.dataset->batch();
  const std::int64_t samples = parts_.dataset->info().val_samples;
  sums_.assign(executor_.losses().size() * 2, 0);
  for (std::int64_t b = replica_.replica(); b < batches_; b += replica_.replicas()) {
    reader_.read({Split::kVal, b * batch, std::min(batch, samples - b * batch)});
    RunSpec run;
    run.slot = slot;
    run.first_sample = b * batch;
    run.training = false;
    executor_.forward(weights, run);
    for (std::size_t i = 0; i < executor_.losses().size(); ++i) {
      sums_[2 * i] += executor_.losses()[i].sum;
      sums_[2 * i + 1] += executor_.losses()[i].count;
    }
  }
  if (Communicator* group = replica_.group(Purpose::kStatistics)) {
    TensorView view;
    view.data = sums_.data();
    view.dtype = DType::kF64;
    view.shape = Shape{static_cast<std::int64_t>(sums_.size())};
    group->all_reduce(view, ReduceOp::kSum);
  }
  std::vector<EvaluationValue> values;
  for (std::size_t i = 0; i < executor_.losses().size(); ++i) {
    if (sums_[2 * i + 1] > 0)
      values.push_back({executor_.losses()[i].metric, sums_[2 * i] / sums_[2 * i + 1]});
  }
  return values;
}

}  // namespace tenon::train
