// Sums stay in double and are divided once, so the result depends on the order of batches only through
// rounding.
#include "loop/evaluation.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tenon::train {

namespace {

constexpr std::int64_t kSpeakAgainMs = 400;

/// Adds the reports of nodes to the values of the evaluation.
class Report final : public MetricReport {
 public:
  Report(std::vector<EvaluationValue>& values, const ValidationPass::Undefined& undefined)
      : values_(values), undefined_(undefined) {}
  void value(std::string_view metric, double value) override {
    values_.push_back({std::string(metric), value});
  }
  void undefined(std::string_view metric, std::string_view reason) override { undefined_(metric, reason); }

 private:
  std::vector<EvaluationValue>& values_;
  const ValidationPass::Undefined& undefined_;
};

}  // namespace

ValidationPass::ValidationPass(BatchReader& reader, Executor& executor, const DataInfo& data,
                               std::int64_t batch, std::int64_t max_batches)
    : reader_(reader),
      executor_(executor),
      batch_(batch),
      samples_(data.val_samples),
      batches_((samples_ + batch - 1) / batch),
      bytes_per_target_(data.bytes_per_target) {
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

void ValidationPass::begin() {
  sums_.assign(executor_.losses().size() * 2, 0);
  executor_.begin_metrics();
}

void ValidationPass::forward(ParameterSet& weights, std::int64_t b, std::int64_t slot) {
  const bool padding = b >= batches_;
  reader_.read({Split::kVal, padding ? 0 : first_sample(b), padding ? 0 : samples(b)});
  RunSpec run;
  run.slot = slot;
  run.first_sample = first_sample(b);
  run.training = false;
  executor_.forward(weights, run);
  for (std::size_t i = 0; i < executor_.losses().size(); ++i) {
    sums_[2 * i] += executor_.losses()[i].sum;
    sums_[2 * i + 1] += executor_.losses()[i].count;
  }
}

std::vector<EvaluationValue> ValidationPass::end(Communicator* replicas, const Undefined& undefined) {
  if (replicas != nullptr) {
    TensorView view;
    view.data = sums_.data();
    view.dtype = DType::kF64;
    view.shape = Shape{static_cast<std::int64_t>(sums_.size())};
    replicas->all_reduce(view, ReduceOp::kSum);
  }
  std::vector<EvaluationValue> values;
  for (std::size_t i = 0; i < executor_.losses().size(); ++i) {
    if (!(sums_[2 * i + 1] > 0)) continue;
    const std::string& metric = executor_.losses()[i].metric;
    const double mean = sums_[2 * i] / sums_[2 * i + 1];
    values.push_back({metric, mean});
    if (metric == "loss" && bytes_per_target_ > 0)
      values.push_back({"loss_per_byte", mean / bytes_per_target_});
  }
  Report report(values, undefined);
  executor_.finish_metrics(replicas, report);
  return values;
}

namespace {

std::string text_of(const DataField& field) {
  std::string text = fmt::format("'{}' {} {}", field.name, dtype_name(field.dtype), field.shape.text());
  if (field.offset != 0 || field.scale != 1)
    text += fmt::format(" of values {:g} + {:g} v", field.offset, field.scale);
  return text;
}

std::string text_of(const std::vector<DataField>& fields) {
  std::string text;
  for (const DataField& field : fields) text += (text.empty() ? "" : ", ") + text_of(field);
  return text;
}

bool equal(const NodeSpec& a, const NodeSpec& b) {
  return a.name == b.name && a.type == b.type && a.inputs == b.inputs &&
         std::ranges::equal(a.options, b.options, [](const NamedOption& x, const NamedOption& y) {
           return x.name == y.name && x.value == y.value;
         });
}

}  // namespace

void require_fitting_data(const std::string& where, const DataInfo& trained, std::int64_t batch,
                          const DataInfo& evaluated, std::int64_t evaluated_batch) {
  if (evaluated.val_samples == 0)
    fail_config(
        fmt::format("{}its data have no samples to validate on, and these are what is evaluated; raise "
                    "val_fraction, or name files of their own",
                    where));
  const std::string here = text_of(evaluated.fields), there = text_of(trained.fields);
  if (here != there)
    fail_config(
        fmt::format("{}its samples have the fields {}; the model was built for those of [data]: {}. Give its "
                    "data the options that make them equal",
                    where, here, there));
  if (evaluated_batch != batch)
    fail_config(
        fmt::format("{}its data come in batches of {}, and the model runs on {} samples at once, as [data] "
                    "says; set batch = {} in [evaluate.data]",
                    where, evaluated_batch, batch, batch));
}

void require_equal_graphs(const std::string& where, const DataInfo& trained, const GraphSpec& graph,
                          const DataInfo& evaluated, const GraphSpec& other) {
  const auto [a, b] = std::ranges::mismatch(graph.nodes, other.nodes, equal);
  if (a == graph.nodes.end() && b == other.nodes.end()) return;
  std::vector<std::string> differ;
  for (const DataAttribute& attribute : evaluated.attributes) {
    const auto found = std::ranges::find(trained.attributes, attribute.name, &DataAttribute::name);
    if (found != trained.attributes.end() && found->value != attribute.value)
      differ.push_back(
          fmt::format("'{}' is {} here and {} in [data]", attribute.name, attribute.value, found->value));
  }
  fail_config(fmt::format(
      "{}the model is another one for its data, from node '{}' on{}{}; give its data the options that make "
      "them equal to those of [data]",
      where, a != graph.nodes.end() ? a->name : b->name, differ.empty() ? "" : ": ",
      fmt::join(differ, ", ")));
}

Evaluator::Evaluator(EvaluatedData data, Device& device, RankReplica& replica, Executor& executor,
                     std::int64_t max_batches, bool together)
    : data_(std::move(data)),
      replica_(replica),
      reader_(
          [dataset = data_.dataset](const BatchRequest& request, std::span<const TensorView> fields) {
            (*dataset)->read(request, fields);
          },
          (*data_.dataset)->info(), device, executor),
      pass_(reader_, executor, (*data_.dataset)->info(), (*data_.dataset)->batch(), max_batches),
      together_(together) {}

std::optional<std::vector<EvaluationValue>> Evaluator::run(ParameterSet& weights, std::int64_t slot,
                                                           const std::function<bool()>& breaks) {
  pass_.begin();
  const std::int64_t replicas = replica_.replicas(), rounds = (pass_.batches() + replicas - 1) / replicas;
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round > 0 && breaks()) return std::nullopt;
    const std::int64_t b = round * replicas + replica_.replica();
    if (b < pass_.batches() || together_) pass_.forward(weights, b, slot);
  }
  return pass_.end(
      replica_.group(Purpose::kStatistics), [this](std::string_view metric, std::string_view reason) {
        if (!explained_.emplace(metric).second) return;
        replica_.host().log(LogLevel::kWarning,
                            fmt::format("{}/{} is undefined and not written: {}", data_.set, metric, reason));
      });
}

}  // namespace tenon::train
