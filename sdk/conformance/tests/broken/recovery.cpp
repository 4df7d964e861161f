// Recovery policies that break one promise each.
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>

namespace {

using namespace tenon;

/// Correct: saves every third slot.
class Every : public RecoveryBase {
 public:
  explicit Every(const Options&) {}
  SavePlan plan_save(const SaveMoment& moment) override {
    SavePlan plan;
    plan.save = moment.slot > 0 && (moment.slot % 3 == 0 || moment.requested || moment.slot == moment.steps);
    return plan;
  }
  int keep() const override { return 2; }
};

class ByItsOwnClock final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "by_its_own_clock", .summary = "plan_save reads seconds"};
  using Every::Every;
  SavePlan plan_save(const SaveMoment& moment) override {
    SavePlan plan;
    plan.save = moment.seconds - last_ > 10;
    if (plan.save) last_ = moment.seconds;
    return plan;
  }

 private:
  double last_ = 0;
};

/// Saves again soon after a save was committed, which ranks learn at different slots.
class ByWhatItHears final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "by_what_it_hears", .summary = "plan_save reads on_save"};
  using Every::Every;
  SavePlan plan_save(const SaveMoment& moment) override {
    SavePlan plan = Every::plan_save(moment);
    if (heard_) plan.save = false;
    heard_ = false;
    return plan;
  }
  void on_save(const SaveResult&) override { heard_ = true; }

 private:
  bool heard_ = false;
};

class KeepsOne final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "keeps_one", .summary = "one generation"};
  using Every::Every;
  int keep() const override { return 1; }
};

class SavesAndKeepsNothing final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "saves_and_keeps_nothing", .summary = "keep() is 0"};
  using Every::Every;
  int keep() const override { return 0; }
};

class NamesNoBase final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "names_no_base", .summary = "an increment of nothing"};
  using Every::Every;
  SavePlan plan_save(const SaveMoment& moment) override {
    SavePlan plan = Every::plan_save(moment);
    plan.everything = false;
    plan.base_slot = moment.slot - 1;
    return plan;
  }
};

class IgnoresItsTimer final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "ignores_its_timer", .summary = "asks, then does not save"};
  using Every::Every;
  bool save_due(const SaveMoment& moment) override { return moment.seconds > 1; }
  SavePlan plan_save(const SaveMoment&) override { return {}; }
};

class RollsBackToNothing final : public RecoveryBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "rolls_back_to_nothing", .summary = "keeps none, rolls back"};
  explicit RollsBackToNothing(const Options&) {}
  FailureDecision on_failure(const FailureEvent&) override { return {.action = FailureAction::kRollBack}; }
};

class RollsBackToTheFailure final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "rolls_back_to_the_failure",
                                       .summary = "reads what is not there"};
  using Every::Every;
  FailureDecision on_failure(const FailureEvent& failure) override {
    return {.action = FailureAction::kRollBack, .from_slot = failure.slot};
  }
};

/// One rank goes back, the other goes on.
class GoesBackAlone final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "goes_back_alone", .summary = "one rank alone goes back"};
  using Every::Every;
  void bind(RecoveryHost& host) override { rank_ = host.run().rank; }
  BoundaryPlan plan_boundary(const SaveMoment& moment) override {
    return {.rolls_back = rank_ == 1 && moment.slot == 10};
  }

 private:
  int rank_ = 0;
};

/// Names a slot at which nothing was saved.
class GoesBackToNothing final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "goes_back_to_nothing", .summary = "reads what is not there"};
  using Every::Every;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override {
    return {.rolls_back = moment.slot == 10, .from_slot = 8};
  }
};

/// Counts slots by itself and does not save the count.
class ForgetsItsCount final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_its_count", .summary = "a counter outside state()"};
  using Every::Every;
  SavePlan plan_save(const SaveMoment&) override {
    SavePlan plan;
    plan.save = ++calls_ % 5 == 0;
    return plan;
  }

 private:
  int calls_ = 0;
};

/// Its state grows with every save that it plans, and so differs from the state at the slot of the save.
class RemembersTheSave final : public Every {
 public:
  static constexpr ComponentInfo kInfo{.id = "remembers_the_save", .summary = "counts loads in its state"};
  using Every::Every;
  void state(StateVisitor& visitor) override {
    visitor.integer("loads", loads_);
    if (visitor.loading()) ++loads_;
  }

 private:
  std::int64_t loads_ = 0;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.recovery", .version = "1.0.0", .summary = "wrong policies"},
             ByItsOwnClock, ByWhatItHears, KeepsOne, SavesAndKeepsNothing, NamesNoBase, IgnoresItsTimer,
             RollsBackToNothing, RollsBackToTheFailure, GoesBackAlone, GoesBackToNothing, ForgetsItsCount,
             RemembersTheSave)
