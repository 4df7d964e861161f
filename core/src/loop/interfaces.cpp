// Out-of-line destructors and base answers of the contracts around the loop.
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/observer.hpp>
#include <tenon/phases.hpp>
#include <tenon/recovery.hpp>
#include <tenon/save_places.hpp>
#include <tenon/sync.hpp>
#include <tenon/sync_extra.hpp>

#include <iterator>

TENON_ABI_BEGIN

Replica::~Replica() = default;
Sync::~Sync() = default;
SyncBase::~SyncBase() = default;
SyncDecorator::~SyncDecorator() = default;
ServerNode::~ServerNode() = default;
SyncServer::~SyncServer() = default;
BucketSizes::~BucketSizes() = default;
MeanReducer::~MeanReducer() = default;
MeanUser::~MeanUser() = default;

void refuse_copied_tables(Replica& replica, std::string_view strategy) {
  if (replica.replicas() == 1) return;
  for (const ParameterInfo& info : replica.live().parameters()) {
    if (info.spec.role != Role::kRowTable || !info.spec.sharding.empty()) continue;
    fail_config(
        "sync " + std::string(strategy) + ": table '" + info.spec.name +
        "' is replicated, and under this strategy the copies would drift apart; shard it over the replicas "
        "(placement = \"rows\" or \"tables\"), or take a strategy that exchanges gradients in every slot");
  }
}
Recovery::~Recovery() = default;
RecoveryHost::~RecoveryHost() = default;
RecoveryDecorator::~RecoveryDecorator() = default;
RecoveryBase::~RecoveryBase() = default;
SavePlaces::~SavePlaces() = default;
SaveSelector::~SaveSelector() = default;
RowCodec::~RowCodec() = default;
Observer::~Observer() = default;
SpanSink::~SpanSink() = default;
PhaseObserver::~PhaseObserver() = default;

std::string_view phase_name(Phase phase) {
  constexpr std::string_view kNames[] = {"idle",          "forward", "backward", "optimizer", "compute",
                                         "communication", "wait",    "data",     "evaluate",  "save",
                                         "begin",         "end",     "generate"};
  static_assert(std::size(kNames) == kPhases);
  return kNames[static_cast<std::size_t>(phase)];
}

MetricSink::~MetricSink() = default;

void record_metric(Host& host, std::string_view name, double value) {
  if (auto* const sink = static_cast<MetricSink*>(host.query(MetricSink::kId))) sink->record(name, value);
}

TensorObserver::~TensorObserver() = default;
RowObserver::~RowObserver() = default;

std::string_view split_name(Split split) noexcept {
  return split == Split::kTrain ? "train" : "val";
}

void RecoveryBase::on_accesses(int, std::span<const std::int64_t>, std::span<const std::uint32_t>) {}
void RecoveryBase::bind(RecoveryHost&) {}
void RecoveryBase::start(const RecoveryStart&) {}
void RecoveryBase::before_slot(SlotStart&) {}
void RecoveryBase::after_slot(const SlotOutcome&) {}
void RecoveryBase::on_evaluation(std::int64_t, std::string_view, double) {}
BoundaryPlan RecoveryBase::plan_boundary(const SaveMoment&) {
  return {};
}
void RecoveryBase::at_boundary(const SaveMoment&) {}
bool RecoveryBase::answers_non_finite() const {
  return false;
}
std::int64_t RecoveryBase::rejoin() {
  return -1;
}
void RecoveryBase::bring_back(std::int64_t) {
  fail_plugin("a recovery policy whose rejoin() names a slot restores its ranks there in bring_back()");
}

bool RecoveryBase::save_due(const SaveMoment&) {
  return false;
}

void RecoveryBase::on_save(const SaveResult&) {}

void RecoveryBase::account(const std::function<void(std::string_view, double)>&) {}

SavePlan RecoveryBase::plan_save(const SaveMoment&) {
  return {};
}
FailureDecision RecoveryBase::on_failure(const FailureEvent&) {
  return {};
}
void RecoveryBase::on_restored(const RestoredShard&) {}
int RecoveryBase::keep() const {
  return 0;
}
bool RecoveryBase::needs_commit() const {
  return false;
}
void RecoveryBase::state(StateVisitor&) {}
void* RecoveryBase::query(std::string_view) {
  return nullptr;
}

RecoveryDecorator::RecoveryDecorator(Recovery* inner) : inner_(inner) {
  if (inner == nullptr)
    fail_config(
        "a recovery decorator needs the policy that it adds to: add its table, e.g. [recovery.inner]");
}
void RecoveryDecorator::bind(RecoveryHost& host) {
  inner_->bind(host);
}
void RecoveryDecorator::start(const RecoveryStart& start) {
  inner_->start(start);
}
void RecoveryDecorator::before_slot(SlotStart& slot) {
  inner_->before_slot(slot);
}
void RecoveryDecorator::after_slot(const SlotOutcome& outcome) {
  inner_->after_slot(outcome);
}
void RecoveryDecorator::on_evaluation(std::int64_t slot, std::string_view metric, double value) {
  inner_->on_evaluation(slot, metric, value);
}
BoundaryPlan RecoveryDecorator::plan_boundary(const SaveMoment& moment) {
  return inner_->plan_boundary(moment);
}
void RecoveryDecorator::at_boundary(const SaveMoment& moment) {
  inner_->at_boundary(moment);
}
bool RecoveryDecorator::answers_non_finite() const {
  return inner_->answers_non_finite();
}
std::int64_t RecoveryDecorator::rejoin() {
  return inner_->rejoin();
}
void RecoveryDecorator::bring_back(std::int64_t slot) {
  inner_->bring_back(slot);
}
void RecoveryDecorator::on_accesses(int table, std::span<const std::int64_t> ids,
                                    std::span<const std::uint32_t> counts) {
  inner_->on_accesses(table, ids, counts);
}
bool RecoveryDecorator::save_due(const SaveMoment& moment) {
  return inner_->save_due(moment);
}
SavePlan RecoveryDecorator::plan_save(const SaveMoment& moment) {
  return inner_->plan_save(moment);
}
void RecoveryDecorator::on_save(const SaveResult& result) {
  inner_->on_save(result);
}
FailureDecision RecoveryDecorator::on_failure(const FailureEvent& failure) {
  return inner_->on_failure(failure);
}
void RecoveryDecorator::on_restored(const RestoredShard& shard) {
  inner_->on_restored(shard);
}
void RecoveryDecorator::account(const std::function<void(std::string_view, double)>& sink) {
  inner_->account(sink);
}
int RecoveryDecorator::keep() const {
  return inner_->keep();
}
bool RecoveryDecorator::needs_commit() const {
  return inner_->needs_commit();
}
void RecoveryDecorator::state(StateVisitor& visitor) {
  visitor.enter("inner");
  inner_->state(visitor);
  visitor.leave();
}
// Identities of the inner policy are about its own table.
void* RecoveryDecorator::query(std::string_view interface_id) {
  return interface_id == ComponentIdentities::kId ? nullptr : inner_->query(interface_id);
}

void SyncBase::start(Replica& replica) {
  replica_ = &replica;
}
std::int64_t SyncBase::first_round() const {
  return 0;
}
SlotPlan SyncBase::plan(const Slot&) const {
  return {};
}
GradientGroup SyncBase::gradient_group() const {
  return GradientGroup::kReplica;
}
void SyncBase::on_gradients_ready(const Bucket&) {}
void SyncBase::finish_gradients() {}
void SyncBase::after_step(const Slot&, const StepOutcome&) {}
void SyncBase::quiesce() {}
ParameterSet& SyncBase::evaluation_parameters() {
  return replica().live();
}
void SyncBase::state(StateVisitor&) {}
void* SyncBase::query(std::string_view) {
  return nullptr;
}

Replica& SyncBase::replica() const {
  if (replica_ == nullptr)
    fail_plugin("a sync strategy used its replica before start(); call SyncBase::start first");
  return *replica_;
}

SyncDecorator::SyncDecorator(Sync* inner) : inner_(inner) {
  if (inner == nullptr)
    fail_config("a sync decorator needs the strategy that it wraps: add its table, e.g. [sync.inner]");
}
void SyncDecorator::start(Replica& replica) {
  SyncBase::start(replica);
  inner_->start(replica);
}
std::int64_t SyncDecorator::first_round() const {
  return inner_->first_round();
}
SlotPlan SyncDecorator::plan(const Slot& slot) const {
  return inner_->plan(slot);
}
GradientGroup SyncDecorator::gradient_group() const {
  return inner_->gradient_group();
}
void SyncDecorator::on_gradients_ready(const Bucket& bucket) {
  inner_->on_gradients_ready(bucket);
}
void SyncDecorator::finish_gradients() {
  inner_->finish_gradients();
}
void SyncDecorator::after_step(const Slot& slot, const StepOutcome& outcome) {
  inner_->after_step(slot, outcome);
}
void SyncDecorator::quiesce() {
  inner_->quiesce();
}
ParameterSet& SyncDecorator::evaluation_parameters() {
  return inner_->evaluation_parameters();
}
void SyncDecorator::state(StateVisitor& visitor) {
  visitor.enter("inner");
  inner_->state(visitor);
  visitor.leave();
}
void* SyncDecorator::query(std::string_view interface_id) {
  return interface_id == ComponentIdentities::kId ? nullptr : inner_->query(interface_id);
}

TENON_ABI_END
