// Checks of recovery policies: ranks plan the same saves, a save can be resumed however the run ended,
// responses to failures can be carried out, and the state is all that has to be remembered.
#include "memory_state.hpp"
#include "subject.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/executor.hpp>
#include <tenon/recovery.hpp>
#include <tenon/save_places.hpp>
#include <tenon/testing/recovery_host.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace tenon::conformance {
namespace {

bool same(const SavePlan& a, const SavePlan& b) {
  const auto same_rows = [](const RowSelection& x, const RowSelection& y) {
    return x.parameter == y.parameter && x.all == y.all;
  };
  return a.save == b.save && a.everything == b.everything && a.encoding == b.encoding &&
         a.base_slot == b.base_slot && a.background == b.background &&
         std::equal(a.tables.begin(), a.tables.end(), b.tables.begin(), b.tables.end(), same_rows);
}

std::string text_of(const SavePlan& plan) {
  return fmt::format("save = {}, everything = {}, encoding = {}, base_slot = {}, background = {}", plan.save,
                     plan.everything, plan.encoding, plan.base_slot, plan.background);
}

/// Where a policy puts a save; the run's folder where it keeps no places beside it.
int place_of(Recovery& policy, const SavePlan& plan, const SaveMoment& moment) {
  auto* const places = static_cast<SavePlaces*>(policy.query(SavePlaces::kId));
  return plan.save && places != nullptr ? places->place(moment) : kRunFolder;
}

constexpr std::int64_t kSlots = 240;

/// The moment before slot `slot` as rank `rank` sees it, with clocks and costs of its own.
SaveMoment moment_of(std::int64_t slot, int rank, std::int64_t planned = kSlots) {
  SaveMoment moment;
  moment.slot = slot;
  moment.steps = planned;
  moment.samples = 8 * slot;
  moment.seconds = static_cast<double>(slot) * 0.5 + 0.11 * rank * static_cast<double>(slot % 7);
  moment.last_save_seconds = slot < 20 ? 0 : 0.2 + 0.3 * rank;
  moment.requested = slot % 37 == 9;
  return moment;
}

void hear(Recovery& policy, const SavePlan& plan, std::int64_t slot) {
  if (!plan.save) return;
  SaveResult result;
  result.step = slot;
  result.status = SaveStatus::kCommitted;
  policy.on_save(result);
}

void ranks_plan_alike(Subject& subject) {
  std::vector<testing::Made<Recovery>> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(subject.make<Recovery>());
  std::vector<std::pair<std::int64_t, SavePlan>> unheard;  // of rank 3, which learns of its saves late
  for (std::int64_t slot = 0; slot <= kSlots; ++slot) {
    SavePlan first;
    int place = kRunFolder;
    for (int rank = 0; rank < 4; ++rank) {
      Recovery& policy = *ranks[rank];
      const SaveMoment moment = moment_of(slot, rank);
      if (rank == 0) policy.save_due(moment);  // the only rank that is asked
      const SavePlan plan = policy.plan_save(moment);
      if (rank == 0) {
        first = plan;
        place = place_of(policy, plan, moment);
      }
      if (const int mine = place_of(policy, plan, moment); mine != place) {
        fail(fmt::format(
            "before slot {} rank 0 saves in place {} and rank {} in place {}: place() may depend only on "
            "what ranks agree about",
            slot, place, rank, mine));
      }
      if (!same(plan, first)) {
        fail(fmt::format(
            "before slot {} rank 0 plans [{}] and rank {} [{}]: plan_save may depend only on what ranks "
            "agree "
            "about, which are slot, steps, samples and requested; clocks and on_save differ between ranks",
            slot, text_of(first), rank, text_of(plan)));
      }
      if (rank != 3) hear(policy, plan, slot);
    }
    unheard.emplace_back(slot, first);
    if (slot % 10 == 0) {
      for (const auto& [at, plan] : unheard) hear(*ranks[3], plan, at);
      unheard.clear();
    }
  }
}

void plans_what_can_be_done(Subject& subject) {
  const testing::Made<Recovery> policy = subject.make<Recovery>();
  const int keep = policy->keep();
  if (keep == 1 || keep < 0) {
    fail(fmt::format(
        "keep() is {}, expected 0 (nothing is ever saved) or at least 2: with one generation there "
        "is none while the next is being written",
        keep));
  }
  std::vector<std::int64_t> saved;
  for (std::int64_t slot = 0; slot <= kSlots; ++slot) {
    const SavePlan plan = policy->plan_save(moment_of(slot, 0));
    if (policy->keep() != keep) fail(fmt::format("keep() was {} and is {} later", keep, policy->keep()));
    if (!plan.save) continue;
    if (keep == 0) fail(fmt::format("keep() is 0, but plan_save saves before slot {}", slot));
    if (plan.base_slot != -1 && std::find(saved.begin(), saved.end(), plan.base_slot) == saved.end())
      fail(fmt::format("the save of slot {} is an increment of slot {}, which was never saved", slot,
                       plan.base_slot));
    if (auto* const places = static_cast<SavePlaces*>(policy->query(SavePlaces::kId))) {
      const auto count = static_cast<int>(places->places().size());
      const int place = places->place(moment_of(slot, 0));
      if (place < kRunFolder || place >= count)
        fail(fmt::format("the save of slot {} goes to place {}; places() lists {}", slot, place, count));
    }
    if (!plan.everything && plan.base_slot == -1)
      fail(fmt::format("the save of slot {} leaves rows out and names no base that has them", slot));
    for (const RowSelection& rows : plan.tables) {
      if (!std::is_sorted(rows.ids.begin(), rows.ids.end()))
        fail(fmt::format("the save of slot {}: row ids of parameter {} are not ascending", slot,
                         rows.parameter));
    }
    saved.push_back(slot);
  }
}

void saves_when_its_timer_asked(Subject& subject) {
  const testing::Made<Recovery> policy = subject.make<Recovery>();
  if (policy->keep() == 0) not_applicable("it keeps nothing");
  for (std::int64_t slot = 1; slot < kSlots; ++slot) {
    SaveMoment moment = moment_of(slot, 0);
    moment.seconds = 3600.0 * static_cast<double>(slot);
    moment.requested = policy->save_due(moment) || moment.requested;
    if (!policy->plan_save(moment).save && moment.requested) {
      fail(fmt::format(
          "before slot {} plan_save does not save when `requested` says that the ranks agreed to, "
          "as they do after a yes of save_due",
          slot));
    }
  }
}

void answers_failures(Subject& subject) {
  const testing::Made<Recovery> policy = subject.make<Recovery>();
  std::vector<std::int64_t> saved;
  for (std::int64_t slot = 0; slot <= kSlots; ++slot) {
    const SavePlan plan = policy->plan_save(moment_of(slot, 0));
    if (plan.save) saved.push_back(slot);
    if (slot % 12 != 5) continue;
    for (const std::vector<int>& dead : {std::vector<int>{}, {1}, {0, 1}}) {
      FailureEvent failure;
      failure.slot = slot;
      failure.samples = 8 * slot;
      failure.dead = dead;
      const FailureDecision decision = policy->on_failure(failure);
      if (decision.action > FailureAction::kAbort)
        fail(fmt::format("on_failure at slot {} returns no known action", slot));
      const bool rolls_back = decision.action == FailureAction::kRollBack;
      if (rolls_back && policy->keep() == 0)
        fail("on_failure rolls back, but keep() is 0: there is never anything to go back to");
      if (decision.from_slot != -1 &&
          std::find(saved.begin(), saved.end(), decision.from_slot) == saved.end()) {
        fail(fmt::format("on_failure at slot {} reads from slot {}, which was never saved", slot,
                         decision.from_slot));
      }
    }
  }
}

/// One dense parameter, which a policy may read in RecoveryContext::live.
std::unique_ptr<ParameterSet> small_set(Device& device) {
  ParameterInfo info;
  info.spec.name = "w";
  info.spec.shape = info.local = {4};
  info.offset = {0};
  return make_parameter_set("live", {info}, device, SetContents::kEverything);
}

/// Two ranks of a run whose slot 60 has a loss and a norm that are not finite.
void plans_boundaries_alike(Subject& subject) {
  const std::unique_ptr<ParameterSet> live = small_set(subject.device());
  testing::LoneRecoveryHost hosts[2];
  std::vector<testing::Made<Recovery>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    RecoveryContext& run = hosts[rank].context;
    run.rank = rank;
    run.ranks = 2;
    run.steps = kSlots;
    run.samples = 8 * kSlots;
    run.live = live.get();
    run.domains = {2, false};
    ranks.push_back(subject.make<Recovery>());
    ranks.back()->bind(hosts[rank]);
    ranks.back()->start({});
  }
  std::vector<std::int64_t> saved;
  for (std::int64_t slot = 0; slot < kSlots; ++slot) {
    BoundaryPlan plans[2];
    double scales[2] = {};
    for (int rank = 0; rank < 2; ++rank) {
      Recovery& policy = *ranks[rank];
      const SaveMoment moment = moment_of(slot, rank);
      const bool saves = policy.plan_save(moment).save;
      if (saves && rank == 0) saved.push_back(slot);
      if (slot > 0) plans[rank] = policy.plan_boundary(moment);
      if (slot % 20 == 0) policy.on_evaluation(slot, "loss", 1 + 1e-3 * static_cast<double>(slot));
      SlotStart begun{slot};
      policy.before_slot(begun);
      scales[rank] = begun.rate_scale;
      SlotOutcome outcome;
      outcome.slot = slot;
      outcome.gradient = true;
      outcome.applied = slot != 60;
      outcome.loss_sum = outcome.applied ? 1 : std::numeric_limits<double>::quiet_NaN();
      outcome.loss_count = 1;
      outcome.gradient_norm = outcome.loss_sum;
      if (outcome.applied || policy.answers_non_finite()) policy.after_slot(outcome);
    }
    if (plans[0].acts != plans[1].acts || plans[0].rolls_back != plans[1].rolls_back ||
        plans[0].from_slot != plans[1].from_slot || scales[0] != scales[1]) {
      fail(fmt::format(
          "before slot {} rank 0 plans [acts = {}, rolls_back = {}, from_slot = {}, rate_scale = {}] and "
          "rank 1 "
          "[{}, {}, {}, {}]: what plan_boundary and before_slot say must follow from what all ranks know",
          slot, plans[0].acts, plans[0].rolls_back, plans[0].from_slot, scales[0], plans[1].acts,
          plans[1].rolls_back, plans[1].from_slot, scales[1]));
    }
    if (!std::isfinite(scales[0]) || scales[0] < 0)
      fail(fmt::format("before_slot of slot {} scales the learning rate by {}", slot, scales[0]));
    if (!plans[0].rolls_back) continue;
    if (ranks[0]->keep() == 0)
      fail("plan_boundary rolls back, but keep() is 0: there is never anything to go back to");
    if (plans[0].from_slot != -1 &&
        std::find(saved.begin(), saved.end(), plans[0].from_slot) == saved.end()) {
      fail(fmt::format("plan_boundary before slot {} reads from slot {}, which was never saved", slot,
                       plans[0].from_slot));
    }
    return;
  }
}

void carries_its_plans(Subject& subject) {
  for (const std::int64_t cut : {1, 13, 97}) {
    const testing::Made<Recovery> whole = subject.make<Recovery>();
    for (std::int64_t slot = 0; slot < cut; ++slot) hear(*whole, whole->plan_save(moment_of(slot, 0)), slot);
    MemoryState state(subject.device());
    whole->state(state);
    state.load();
    const testing::Made<Recovery> later = subject.make<Recovery>();
    later->state(state);
    for (std::int64_t slot = cut; slot <= kSlots; ++slot) {
      const SavePlan a = whole->plan_save(moment_of(slot, 0)), b = later->plan_save(moment_of(slot, 0));
      hear(*whole, a, slot);
      hear(*later, b, slot);
      if (!same(a, b)) {
        fail(fmt::format(
            "state() was saved before slot {} and given to another object; before slot {} the one "
            "that went on plans [{}] and the other [{}]",
            cut, slot, text_of(a), text_of(b)));
      }
    }
  }
}

bool has_generation(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with("step-") && entry.path().extension().empty())
      return true;
  }
  return false;
}

/// Whether a run continued from the newest generation can have the bits of one that ran through. One that
/// finds none begins again.
bool is_exact(const std::filesystem::path& folder) {
  if (!has_generation(folder)) return true;
  const auto files = make_posix_files();
  const CheckpointStore store(*files, folder.string(), {});
  return store.open(store.generations().back()).consistent();
}

/// A run with row tables, whose rows are saved and lost separately.
std::vector<std::string> sets_of_tables() {
  return {"data.fields=[\"dense:real:4\", \"ids:i32:3:10\", \"labels:i32::2\"]",
          "data.attributes=[\"rows.0=10\", \"rows.1=10\", \"rows.2=10\"]",
          "model={type=\"dlrm\", bottom=[4, 4], top=[4, 1]}"};
}

/// A run that is killed after this many slots and resumed ends as `whole` did. Returns whether it found a
/// generation.
bool ends_alike(Subject& subject, RunRequest run, int slot, const RunResult& whole) {
  const char* const trained = run.sets.empty() ? "" : " with row tables";
  run.folder = fmt::format("{}killed{}", run.folder, slot);
  const std::filesystem::path generations = subject.scratch() / run.folder / "1" / "checkpoints";
  RunRequest killed = run;
  killed.kill_after = slot;
  subject.train_well(killed, "a run that is killed");
  const bool found = has_generation(generations), exact = is_exact(generations);
  run.resume = true;
  const RunResult resumed =
      subject.train_well(run, fmt::format("a run{} killed after {} slots, resumed,", trained, slot));
  if (exact && (resumed.weights_hash != whole.weights_hash || resumed.state_hash != whole.state_hash)) {
    fail(fmt::format(
        "a run of {} rank{}{} that was killed after {} slots and resumed from {} ends with weights_hash {} "
        "and "
        "state_hash {}; one that ran through with {} and {}",
        run.ranks, run.ranks == 1 ? "" : "s", trained, slot, found ? "its newest generation" : "the start",
        resumed.weights_hash, resumed.state_hash, whole.weights_hash, whole.state_hash));
  }
  return found;
}

void survives_a_kill(Subject& subject) {
  if (subject.make<Recovery>()->keep() == 0) not_applicable("it saves nothing");
  bool resumed = false;
  for (const bool tables : {false, true}) {
    for (const int ranks : {1, 2}) {
      RunRequest run{.ranks = ranks, .folder = fmt::format("{}{}", tables ? "tables" : "dense", ranks)};
      if (tables) run.sets = sets_of_tables();
      const RunResult whole = subject.train_well(run, "a run");
      // Before the first save of many policies, in the middle, and with the last save under way.
      for (const int slot : tables ? std::vector{5} : std::vector{2, 5, 7})
        resumed |= ends_alike(subject, run, slot, whole);
    }
  }
  if (!resumed)
    not_applicable("it saves nothing in 7 slots; add a [[case]] with a shorter interval to conformance.toml");
}

constexpr const char* kRecoveryKind = "recovery/1";
constexpr Check kRecoveryChecks[] = {
    {"recovery.ranks_plan_alike", kRecoveryKind, "ranks with clocks of their own plan the same saves",
     ranks_plan_alike},
    {"recovery.plans_what_can_be_done", kRecoveryKind,
     "keep() is 0 or at least 2, and increments have a base", plans_what_can_be_done},
    {"recovery.saves_when_its_timer_asked", kRecoveryKind, "what its timer asked for is saved",
     saves_when_its_timer_asked},
    {"recovery.answers_failures", kRecoveryKind, "decisions about failures can be carried out",
     answers_failures},
    {"recovery.plans_boundaries_alike", kRecoveryKind,
     "ranks act, go back and scale the learning rate alike, and go back to what was saved",
     plans_boundaries_alike},
    {"recovery.carries_its_state", kRecoveryKind, "state() holds all that later plans depend on",
     carries_its_plans},
    {"recovery.survives_a_kill", kRecoveryKind,
     "a run that is killed and resumed ends; from a consistent checkpoint, or from the start, with the bits "
     "of one that ran through",
     survives_a_kill, 120},
};

}  // namespace

std::span<const Check> recovery_checks() {
  return kRecoveryChecks;
}

}  // namespace tenon::conformance
