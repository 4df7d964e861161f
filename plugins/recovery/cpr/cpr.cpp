// Times and content of saves, and the answers to failures.
#include "cpr.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::recovery_cpr {
namespace {

constexpr double kRestartSeconds = 10;
constexpr double kDay = 86400;
/// Rounding of slot times must not move a save to the next slot.
constexpr double kSameMoment = 1e-9;

std::optional<double> optional_real(const Options& options, const char* name) {
  return options.has(name) ? std::optional(options.real(name)) : std::nullopt;
}

}  // namespace

Cpr::Cpr(const Options& options)
    : tracker_name_(options.text("tracker")),
      partial_(options.text("partial")),
      interval_(options.text("interval")),
      target_pls_(options.real("target_pls")),
      budget_(options.real("budget")),
      large_share_(options.real("large_share")),
      mtbf_(optional_real(options, "mtbf_seconds")),
      save_(optional_real(options, "save_seconds")),
      load_(optional_real(options, "load_seconds")),
      restart_(optional_real(options, "restart_seconds")),
      estimate_(options.boolean("estimate_mtbf")),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")),
      lost_(static_cast<int>(options.integer("lost"))),
      keep_(static_cast<int>(options.integer("keep"))),
      parts_(options.integer("parts")),
      rebase_(options.integer("rebase")) {}

void Cpr::bind(RecoveryHost& host) {
  const RecoveryContext& context = host.run();
  if (context.emulated) {
    const auto take = [](std::optional<double>& mine, double theirs) {
      if (!mine && theirs > 0) mine = theirs;
    };
    take(mtbf_, context.costs.mtbf_s);
    if (!save_) save_ = context.costs.save_s;
    if (!load_) load_ = context.costs.load_s;
    if (!restart_) restart_ = context.costs.restart_s;
  }
  if (!mtbf_) mtbf_ = kDay;
  shards_ = {context.domains.shards, std::min(lost_, context.domains.shards)};
  if (lost_ > context.domains.shards) {
    fail_config("recovery cpr: lost = " + std::to_string(lost_) + ", but there are " +
                std::to_string(context.domains.shards) + " shard(s); expected at most as many");
  }
  seed_ = context.seed;
  emulated_ = context.emulated;
  total_samples_ = context.samples;
  account_ = LostSamples(shards_.count, total_samples_);
  failures_ = context.failures;
  costs_ = {save_.value_or(0), load_.value_or(0), restart_.value_or(kRestartSeconds), *mtbf_};
  plan_interval(0);
  choose_tables(context);
}

// Selects the fewest tables that hold the wanted share of the bytes: largest first, ties by id.
void Cpr::choose_tables(const RecoveryContext& context) {
  struct Sized {
    int parameter = 0;
    double bytes = 0;
  };
  std::vector<Sized> tables;
  double all = 0;
  for (const ParameterInfo& info : context.live->parameters()) {
    const RowTable* table = context.live->table(info.index);
    if (table == nullptr) continue;
    tables.push_back(
        {info.index, static_cast<double>(dtype_bytes(table->dtype(), table->rows() * table->width()))});
    all += tables.back().bytes;
  }
  std::stable_sort(tables.begin(), tables.end(),
                   [](const Sized& a, const Sized& b) { return a.bytes > b.bytes; });
  large_index_.assign(context.live->parameters().size(), -1);
  double held = 0;
  for (const Sized& table : tables) {
    if (tracker_name_ == "vanilla" || held >= large_share_ * all) {
      small_.push_back(table.parameter);
      continue;
    }
    held += table.bytes;
    large_index_[table.parameter] = static_cast<int>(large_.size());
    large_.push_back(make_tracked(context.live->parameters()[table.parameter],
                                  *context.live->table(table.parameter), context.domains, parts_));
  }
  whole_share_ = all > 0 ? (all - held) / all : 0;
  // Without tables an increment would be empty, yet count as a checkpoint of its slot.
  if (!tables.empty()) tracker_ = make_tracker(tracker_name_, large_, seed_);
}

// A prior of one failure keeps the first estimate from being infinite.
void Cpr::plan_interval(double elapsed) {
  if (estimate_ && elapsed > 0) costs_.mtbf = (*mtbf_ + elapsed) / static_cast<double>(failures_ + 1);
  const bool before = choice_.partial;
  const double interval = choice_.interval;
  choice_ = choose(target_pls_, costs_, shards_, costs_.save);
  const bool partial = partial_ == "always" || (partial_ == "auto" && choice_.partial);
  choice_.partial = partial && !full_for_good_;
  choice_.interval = choice_.partial && interval_ == "pls" ? pls_interval(target_pls_, costs_, shards_)
                                                           : young_interval(costs_);
  if (interval > 0 && (choice_.interval != interval || choice_.partial != before)) {
    origin_ = elapsed;
    saves_ = 0;
  }
}

double Cpr::period() const {
  return by_priority() ? choice_.interval / static_cast<double>(parts_) : choice_.interval;
}

bool Cpr::passed_due(double seconds) {
  // Before the first measured save there is no basis for a plan.
  if (!(period() > 0)) return seconds > origin_;
  const auto passed = static_cast<std::int64_t>(std::floor((seconds - origin_) / period() + kSameMoment));
  if (passed <= saves_) return false;
  saves_ = passed;
  return true;
}

bool Cpr::save_due(const SaveMoment& moment) {
  if (moment.same_clock || asked_) return false;
  if (!save_ && moment.last_save_seconds > 0 && costs_.save != moment.last_save_seconds) {
    costs_.save = moment.last_save_seconds;
    if (!load_) costs_.load = costs_.save;
    plan_interval(0);
  }
  asked_ = passed_due(moment.seconds);
  return asked_;
}

SavePlan Cpr::complete(const SaveMoment& moment) {
  SavePlan plan;
  plan.save = true;
  plan.background = background_;
  increments_ = 0;
  whole_samples_ = moment.samples;
  return plan;
}

SavePlan Cpr::priority(const SaveMoment& moment) {
  SavePlan plan;
  plan.save = true;
  plan.background = background_;
  plan.everything = plan.consistent = false;
  plan.base_slot = kNewestBase;
  // Survivors hold the dense part, so one save per full interval is enough.
  plan.dense = increments_ % parts_ == parts_ - 1;
  if (plan.dense) whole_samples_ = moment.samples;
  ++increments_;
  return plan;
}

void Cpr::select(const SaveMoment&, SavePlan& plan) {
  increment_ = !plan.everything;
  if (tracker_ == nullptr) return;
  if (plan.everything) return tracker_->saved_all();
  for (std::size_t t = 0; t < large_.size(); ++t)
    plan.tables.push_back({large_[t].parameter, false, tracker_->select(t)});
  for (const int parameter : small_) plan.tables.push_back({parameter, true, {}});
}

SavePlan Cpr::plan_save(const SaveMoment& moment) {
  slot_ = moment.slot;
  increment_ = false;
  // Increments need a base.
  if (moment.slot == 0) return by_priority() ? complete(moment) : SavePlan{};
  if (moment.slot == moment.steps) return save_at_end_ ? complete(moment) : SavePlan{};
  if (over_budget_) {
    over_budget_ = false;
    full_for_good_ = true;
    plan_interval(moment.same_clock ? moment.seconds : 0);
    return complete(moment);
  }
  const bool now = moment.same_clock ? passed_due(moment.seconds) : moment.requested;
  if (!now) return {};
  asked_ = false;
  const bool whole = !by_priority() || increments_ >= rebase_;
  SavePlan plan = whole ? complete(moment) : priority(moment);
  if (moment.same_clock && estimate_) plan_interval(moment.seconds);
  return plan;
}

void Cpr::on_accesses(int table, std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts) {
  if (tracker_ == nullptr) return;
  const int index = large_index_[table];
  if (index >= 0) tracker_->accessed(static_cast<std::size_t>(index), ids, counts, slot_);
}

FailureDecision Cpr::on_failure(const FailureEvent&) {
  ++failures_;
  FailureDecision decision;
  decision.action = choice_.partial ? FailureAction::kContinuePartial : FailureAction::kRollBack;
  return decision;
}

void Cpr::on_restored(const RestoredShard& shard) {
  // Priority checkpoints hold rows of many moments; the time when everything would have been saved counts.
  const std::int64_t saved = by_priority() ? whole_samples_ : shard.checkpoint_samples;
  account_.lost(shard.shard, std::min(saved, shard.samples_now), shard.samples_now);
  if (tracker_) tracker_->restored(shard.shard);
  if (!full_for_good_ && partial_ == "auto" && account_.portion() > budget_ * target_pls_)
    over_budget_ = true;
}

void Cpr::on_save(const SaveResult& result) {
  if (tracker_) tracker_->answered(result.status == SaveStatus::kCommitted);
}

void Cpr::account(const std::function<void(std::string_view, double)>& sink) {
  sink("pls", account_.portion());
  sink("pls_distinct", account_.distinct_portion());
  sink("save_interval_s", choice_.interval);
  sink("partial_recovery", choice_.partial ? 1 : 0);
  if (tracker_ == nullptr) return;
  sink("tracker_bytes", static_cast<double>(tracker_->bytes()));
  sink("always_whole_share", whole_share_);
}

void Cpr::state(StateVisitor& visitor) {
  std::int64_t over_budget = over_budget_ ? 1 : 0, full = full_for_good_ ? 1 : 0;
  visitor.integer("failures", failures_);
  visitor.integer("over_budget", over_budget);
  visitor.integer("full_for_good", full);
  visitor.enter("lost_samples");
  account_.state(visitor);
  visitor.leave();
  // State derived from save times is reproducible only with an emulated clock.
  if (emulated_) {
    visitor.real("origin", origin_);
    visitor.integer("saves", saves_);
    visitor.integer("increments", increments_);
    visitor.integer("whole_samples", whole_samples_);
    visitor.real("mtbf", costs_.mtbf);
  }
  if (visitor.loading()) {
    over_budget_ = over_budget != 0;
    full_for_good_ = full != 0;
    choice_ = {};  // the plan that follows does not count as a new one
    plan_interval(0);
  }
  // Counters are a fraction of the tables' size, and a priority save must not grow by it. They are saved with
  // complete checkpoints, and a run continued from an increment begins with those of its base.
  if (tracker_ == nullptr || !emulated_ || (increment_ && !visitor.loading())) return;
  visitor.enter("tracker");
  tracker_->state(visitor);
  visitor.leave();
}

void* Cpr::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  return interface_id == SaveSelector::kId ? static_cast<SaveSelector*>(this) : nullptr;
}

}  // namespace tenon::recovery_cpr
