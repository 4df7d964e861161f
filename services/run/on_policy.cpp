// Weights do not change between drawing and scoring, and the forward that scores is that of the slot to come,
// on the executor that trains: at a learning rate of 0 both give the same bits.
#include "run/on_policy.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {
namespace {

/// Drawing may take far longer than a slot.
constexpr float kDeadlinesToDraw = 12;

}  // namespace

OnPolicy::OnPolicy(const RankContext& rank, Trainer& trainer)
    : rank_(rank), trainer_(trainer), data_(trainer.on_policy()) {
  if (data_ != nullptr) {
    const std::string_view id = rank_.parts.dataset.id();
    if (const std::string why = refusal(); !why.empty())
      fail_config(
          fmt::format("data.{} draws its samples from the model, which this run cannot: {}", id, why));
    period_ = rank_.parts.dataset.guarded(*data_)->period();
    if (period_ < 1)
      fail_plugin(fmt::format("data.{}: a period of {} slots; expected at least 1", id, period_));
    generator();  // what it cannot do is said before the run has a folder
  }
  rank_.host.set_generator([this] { return between_slots(); });
}

OnPolicy::~OnPolicy() {
  rank_.host.set_generator({});
}

std::string OnPolicy::refusal() const {
  const config::CoreSettings& settings = rank_.world.settings;
  if (!trainer_.speaks())
    return fmt::format(
        "model '{}' is no language model; expected one that offers 'tenon.model.language/1', "
        "such as gpt_neo or decoder",
        rank_.parts.model.id());
  if (settings.parallel.workers > 1)
    return fmt::format(
        "parallel.workers = {}: workers that update the weights at the same time have no moment between "
        "slots; set it to 1, or train replicas with parallel.ranks",
        settings.parallel.workers);
  if (settings.parallel.ranks_per_replica() > 1)
    return "parallel.grid: a model that is sharded over a mesh generates nothing in this version; leave "
           "parallel.grid out";
  if (settings.parallel.servers > 0)
    return fmt::format("parallel.servers = {}: replicas would draw from different weights; set it to 0",
                       settings.parallel.servers);
  if (settings.emulate)
    return "[emulate]: failures of the emulated cluster do not bring samples back; leave the table out";
  if (rank_.weights.replicas() > 1 && !trainer_.shares_weights())
    return fmt::format(
        "the replicas of sync strategy '{}' differ, so the samples would depend on their number; set "
        "sync.type = \"ddp\"",
        rank_.parts.sync.id());
  if (&trainer_.evaluated() != &rank_.weights.live())
    return fmt::format(
        "sync strategy '{}' evaluates other weights than those that it trains, so samples would not be of "
        "the trained ones; set sync.type = \"ddp\", or leave [sync] out",
        rank_.parts.sync.id());
  return "";
}

Generator& OnPolicy::generator() {
  for (Executor* pass : passes_) trainer_.share_sites(*pass);
  if (generator_ == nullptr) {
    generator_ = trainer_.make_generator([this](Executor& pass) {
      passes_.push_back(&pass);
      trainer_.share_sites(pass);
    });
  }
  generator_->bind(trainer_.evaluated(), rank_.counters.slot);
  return *generator_;
}

std::int64_t OnPolicy::planned_bytes() {
  if (data_ == nullptr) return 0;
  generator_->make_all();
  return generator_->allocated_bytes();
}

std::vector<std::string> OnPolicy::facts() {
  if (data_ == nullptr) return {};
  const std::int64_t kept = generator_->batch() * generator_->sequence_bytes();
  const double passes = static_cast<double>(planned_bytes() - kept) / (1024.0 * 1024.0);
  return {
      fmt::format("memory of generation: {} sequences of {:.1f} KiB of kept state each, passes {:.1f} MiB",
                  generator_->batch(), static_cast<double>(generator_->sequence_bytes()) / 1024, passes)};
}

// Others than the data set may ask in any run: where the answer is no, there is none.
Generator* OnPolicy::between_slots() {
  if (in_slot_ || !trainer_.instruments().account.mine() || !refusal().empty()) return nullptr;
  return &generator();
}

void OnPolicy::plan(Boundary& due) {
  draws_ = data_ != nullptr && !due.stop && due.slot % period_ == 0;
  due.acts |= draws_;
}

void OnPolicy::at_boundary(Boundary& due) {
  if (!draws_ || due.stop || due.fails) return;
  rank_.world.phase.enter("generate");
  const PhaseScope part(&trainer_.instruments().account, Phase::kGenerate);
  draw(due.slot);
}

std::vector<OnPolicy::Coming> OnPolicy::coming(std::int64_t slot) const {
  std::vector<Coming> micros;
  std::int64_t position = rank_.counters.position;
  for (std::int64_t t = slot; t < slot + period_; ++t) {
    const SlotPlan plan = rank_.parts.sync->plan({t, trainer_.replica(), 0});
    const bool trains = plan.kind == SlotKind::kGrad;
    for (std::int64_t a = 0; trains && a < rank_.world.settings.run.accumulate; ++a)
      micros.push_back({t, a, position});
    if (trains || plan.consumes_data) position += trainer_.slot_samples();
  }
  return micros;
}

void OnPolicy::draw(std::int64_t slot) {
  SpanRecorder& spans = trainer_.instruments().spans;
  Worker& worker = *trainer_.workers().front();
  const std::vector<Coming> micros = coming(slot);
  {
    const SpanScope span(&spans, "generate", "draw");
    std::vector<BatchRequest> requests;
    for (const Coming& micro : micros) requests.push_back(worker.request(micro.position, micro.micro));
    rank_.parts.dataset.guarded(*data_, kDeadlinesToDraw)->prepare(slot, requests, generator());
  }
  const std::string scored(rank_.parts.dataset.guarded(*data_)->scored());
  if (scored.empty()) return;
  const SpanScope span(&spans, "generate", "score");
  for (const Coming& micro : micros) {
    const TensorView value =
        worker.foresee(trainer_.evaluated(), micro.slot, micro.micro, micro.position, scored);
    rank_.parts.dataset.guarded(*data_)->score(worker.request(micro.position, micro.micro), value);
  }
}

}  // namespace tenon::train
