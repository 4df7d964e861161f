// Sums stay in double and are divided once, so the result depends on the order of batches only through
// rounding.
#include "train/evaluation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::train {

namespace {

constexpr std::int64_t kSpeakAgainMs = 400;

/// What nodes report, as values of the evaluation.
class Report final : public MetricReport {
 public:
  Report(std::vector<EvaluationValue>& values, std::set<std::string, std::less<>>& explained, Host& host)
      : values_(values), explained_(explained), host_(host) {}
  void value(std::string_view metric, double value) override {
    values_.push_back({std::string(metric), value});
  }
  void undefined(std::string_view metric, std::string_view reason) override {
    if (!explained_.emplace(metric).second) return;
    host_.log(LogLevel::kWarning, fmt::format("val/{} is undefined and not written: {}", metric, reason));
  }

 private:
  std::vector<EvaluationValue>& values_;
  std::set<std::string, std::less<>>& explained_;
  Host& host_;
};

}  // namespace

Evaluator::Evaluator(Parts& parts, RankReplica& replica, Executor& executor, std::int64_t max_batches,
                     bool together)
    : parts_(parts), replica_(replica), executor_(executor), reader_(parts, executor), together_(together) {
  const std::int64_t batch = parts.dataset->batch();
  batches_ = (parts.dataset->info().val_samples + batch - 1) / batch;
  if (max_batches > 0) batches_ = std::min(batches_, max_batches);
}

bool BreakAgreement::breaks() {
  if (others_ == nullptr) return wanted_();
  if (--left_ > 0) return false;
  const auto now = std::chrono::steady_clock::now();
  const auto mine = std::chrono::duration_cast<std::chrono::milliseconds>(now - spoke_).count();
  std::int64_t longest = 0;
  bool some = false;
  for (const std::string& text : others_->exchange(rank_, fmt::format("{} {}", wanted_() ? 1 : 0, mine))) {
    some |= text[0] == '1';
    longest = std::max<std::int64_t>(longest, std::stoll(text.substr(2)));
  }
  if (longest < kSpeakAgainMs / 2) every_ *= 2;
  if (longest > kSpeakAgainMs) every_ = std::max<std::int64_t>(1, every_ / 2);
  left_ = every_;
  spoke_ = std::chrono::steady_clock::now();
  return some;
}

std::optional<std::vector<EvaluationValue>> Evaluator::run(ParameterSet& weights, std::int64_t slot,
                                                           const std::function<bool()>& breaks) {
  const std::int64_t batch = parts_.dataset->batch();
  const std::int64_t samples = parts_.dataset->info().val_samples;
  sums_.assign(executor_.losses().size() * 2, 0);
  executor_.begin_metrics();
  const std::int64_t rounds = (batches_ + replica_.replicas() - 1) / replica_.replicas();
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round > 0 && breaks()) return std::nullopt;
    const std::int64_t b = round * replica_.replicas() + replica_.replica();
    const bool padding = b >= batches_;
    if (padding && !together_) continue;
    reader_.read({Split::kVal, padding ? 0 : b * batch, padding ? 0 : std::min(batch, samples - b * batch)});
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
  Report report(values, explained_, replica_.host());
  executor_.finish_metrics(replica_.group(Purpose::kStatistics), report);
  return values;
}

}  // namespace tenon::train
