// Row tables in tiers, in whole runs: for any tier a run has the bits of one whose rows lie in host memory,
// with any placement of the rows, with any recovery policy, and resumed from checkpoints of other tiers (T1).
// Saves, hashes and evaluations see rows that a cache alone has, and leave its counts as they were (T2, P13).
#include "cell.hpp"
#include "row_cache.hpp"

#include <tenon/recovery.hpp>

#include <gmock/gmock.h>

#include <numeric>

namespace tenon::integration::tiers_test {
namespace {

struct TierCase {
  const char* name;
  const char* place;    ///< of [[tables.place]], after its pattern
  bool hogwild = true;  ///< declares it
};

/// Every tier of this tree that keeps all bits.
constexpr TierCase kTiers[] = {
    {"dram", "tier={type='dram'}"},
    {"cached", "tier={type='cached', ways=4}"},
    {"cached_through", "tier={type='cached', load_factor=0.05, policy='lfu', write='through'}"},
    {"one_line", "tier={type='cached', load_factor=0.00001}"},
    {"all_rows", "tier={type='cached', load_factor=1.0}"},
    {"file", "tier={type='file', folder='/tmp', resident='16KiB'}"},
    {"cached_file",
     "tier={type='cached', policy='clock', behind={type='file', folder='/tmp', resident='64KiB'}}"},
    {"shared", "tier={type='shared'}"},
    {"row_cache", "tier={type='row_cache'}"},
    {"state_alone", "tier={type='dram'}, state={type='row_cache', sets=3}"},
};

/// Ranks, workers and the ways of rows between them.
struct WorldCase {
  const char* name;
  bool replicas;
  const char* sync;
  std::vector<std::string> sets;
  bool hogwild = false;
};

const std::string kSimulated =
    "transport={type='thread', clock={type='simulated', compute_seconds=0.002}, link={latency=0.001}}";

const WorldCase kWorlds[] = {
    {"alone", false, "", {}},
    {"alone_clipped", false, "", {"run.clip=0.05", "run.accumulate=2"}},
    {"ddp_replicated", true, "type='ddp'\n", {"model.placement=replicated"}},
    {"ddp_rows", true, "type='ddp'\n", {"model.placement=rows"}},
    {"ddp_tables", true, "type='ddp'\n", {"model.placement=tables"}},
    {"own_updates", true, "type='none'\n", {"model.placement=rows"}},
    {"on_request", true, "type='none'\n", {"model.placement=rows", "parallel.rows=request", kSimulated}},
    {"hogwild", false, "", {"parallel.workers=2", kSimulated}, true},
    {"hogwild_on_request",
     true,
     "type='none'\n",
     {"model.placement=rows", "parallel.rows=request", "parallel.workers=2", kSimulated},
     true},
};

struct Named {
  const char* name;
  const char* toml;
};

constexpr Named kRules[] = {
    {"rowwise_adagrad", "optimizer={type='rowwise_adagrad', lr=0.05}"},
    {"sgd", "optimizer={type='sgd', lr=0.2}"},
    {"adamw", "optimizer={type='adamw', lr=0.01}"},
};

constexpr std::int64_t kSlots = 9, kLogEvery = 4;

constexpr Named kPolicies[] = {
    {"none", "type='none'"},
    {"full", "type='full', every=3, async=false, keep=50"},
    {"full_async", "type='full', every=3, keep=50"},
    {"replica", "type='replica', every=3, async=false, keep=50"},
    {"checkfreq", "type='checkfreq', profile=1, max_overhead=0.9, keep=50"},
    {"checknrun_consecutive", "type='checknrun', every=2, async=false, keep=50, increments='consecutive'"},
    {"checknrun_one_shot", "type='checknrun', every=2, async=false, keep=50, increments='one_shot'"},
    {"checknrun_4_bits", "type='checknrun', every=2, async=false, keep=50, bits='4'"},
    {"peer_memory", "type='peer_memory', every=3, copy_every=3, async=false, keep=50"},
    {"multilevel", "type='multilevel', every=3, async=false, keep=50"},
    {"spike_guard",
     "type='spike_guard', norm_factor=1e6, loss_factor=1e6, inner={type='full', every=3, async=false, "
     "keep=50}"},
};

/// One of eight shards fails twice: its rows are those of a checkpoint, all others go on.
constexpr const char* kEmulated =
    "emulate={hours=9, shards=8, mtbf_hours=3, save_minutes=2, load_minutes=1, restart_minutes=1, "
    "failure=[{hour=4.5, shards=[2]}, {hour=7.5, shards=[5]}]}";

constexpr Named kPartial[] = {
    {"scar", "type='cpr', tracker='scar', partial='always', target_pls=0.02, async=false, keep=50"},
    {"mfu", "type='cpr', tracker='mfu', partial='always', target_pls=0.02, async=false, keep=50"},
    {"ssu", "type='cpr', tracker='ssu', partial='always', target_pls=0.02, async=false, keep=50"},
    {"vanilla", "type='cpr', tracker='vanilla', partial='always', target_pls=0.02, async=false, keep=50"},
    {"never", "type='cpr', partial='never', async=false, keep=50"},
};

// Counts around what a boundary does.

struct Moment {
  std::string what;
  std::int64_t slot = 0;
  std::vector<std::int64_t> counts;           ///< of all tables that count
  std::int64_t dirty = 0;                     ///< rows that caches of row_cache.hpp alone have
  std::map<std::string, std::int64_t> asked;  ///< how often those were
};
std::vector<Moment> moments;

void add(const TierCount& count, std::vector<std::int64_t>& to) {
  for (const std::int64_t value : {count.reads, count.writes, count.hits, count.misses, count.evictions,
                                   count.write_backs, count.bytes_in, count.bytes_out})
    to.push_back(value);
}

/// Notes the counts after each slot, after the evaluation at its boundary, and after the save.
class NotedCounts final : public RecoveryDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "recovery/1").mandatory()};
  static constexpr ComponentInfo kInfo{
      .id = "noted_counts", .summary = "notes counts of tiers", .options = kOptions};
  explicit NotedCounts(const Options& options) : RecoveryDecorator(options.component<Recovery>("inner")) {}
  void bind(RecoveryHost& host) override {
    host_ = &host;
    RecoveryDecorator::bind(host);
  }
  void after_slot(const SlotOutcome& outcome) override {
    slot_ = outcome.slot;
    note("slot");
    RecoveryDecorator::after_slot(outcome);
  }
  void on_evaluation(std::int64_t slot, std::string_view metric, double value) override {
    note("evaluation");
    RecoveryDecorator::on_evaluation(slot, metric, value);
  }
  void on_save(const SaveResult& result) override {
    if (result.status == SaveStatus::kCommitted) note("save");
    RecoveryDecorator::on_save(result);
  }

 private:
  void note(const char* what) const {
    Moment moment{what, slot_, {}, 0, {}};
    for (const ParameterInfo& info : host_->run().live->parameters()) {
      RowTable* const table = host_->run().live->table(info.index);
      auto* const counts =
          table == nullptr ? nullptr : static_cast<TierCounts*>(table->query(TierCounts::kId));
      if (counts != nullptr) counts->counts([&](const TierCount& count) { add(count, moment.counts); });
    }
    // Rows of the optimizer, too.
    const std::lock_guard lock(live_caches.mutex);
    for (const CachedRows* cache : live_caches.all) {
      moment.asked[cache->name()] += cache->asked();
      moment.dirty += cache->dirty();
    }
    moments.push_back(std::move(moment));
  }

  RecoveryHost* host_ = nullptr;
  std::int64_t slot_ = 0;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.tiers", .version = "1.0.0", .summary = "tiers of tests"},
                    RowCache<true>, RowCache<false>, NotedCounts)

class Tiers : public ::testing::Test {
 protected:
  Tiers() { runs_.runtime().add_plugin(plugin); }

  static Choices choices(const WorldCase& world, std::vector<std::string> sets) {
    Choices choices;
    choices.replicas = world.replicas;
    choices.slots = kSlots;
    choices.sync = world.sync;
    choices.sets = world.sets;
    choices.sets.emplace_back("run.log_every=" + std::to_string(kLogEvery));
    choices.sets.emplace_back("run.eval_every=3");
    choices.sets.insert(choices.sets.end(), sets.begin(), sets.end());
    return choices;
  }
  static Choices placed(Choices choices, const std::string& place) {
    choices.sets.push_back("tables.place=[{match='*', " + place + "}]");
    return choices;
  }
  RunResult train(const Choices& choices, const std::string& folder, bool resume = false,
                  std::string_view model = "dlrm") {
    RunResult result = runs_.train(folder, model_named(model), choices, resume);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.steps, kSlots);
    return result;
  }
  static void expect_same(const RunResult& run, const RunResult& plain) {
    EXPECT_EQ(run.weights_hash, plain.weights_hash);
    EXPECT_EQ(run.state_hash, plain.state_hash);
    for (const char* metric : {"train/loss", "val/loss"})
      EXPECT_EQ(run.metrics.at(metric), plain.metrics.at(metric)) << metric;
  }

  CellRuns runs_;
};

class Worlds : public Tiers, public ::testing::WithParamInterface<int> {};

TEST_P(Worlds, T1_HaveTheSameBitsInEveryTier) {
  const WorldCase& world = kWorlds[GetParam()];
  const bool every_rule = &world == &kWorlds[0] || std::string_view(world.name) == "ddp_rows";
  for (const Named& rule : kRules) {
    if (&rule != &kRules[0] && !every_rule) continue;
    const Choices plain = choices(world, {rule.toml});
    const RunResult expected = train(plain, std::string("none_") + rule.name);
    EXPECT_EQ(train(plain, std::string("again_") + rule.name).state_hash, expected.state_hash)
        << "the world itself is repeatable";
    for (const TierCase& tier : kTiers) {
      if (world.hogwild && !tier.hogwild) continue;
      SCOPED_TRACE(std::string(rule.name) + ", " + tier.name);
      expect_same(train(placed(plain, tier.place), std::string(tier.name) + "_" + rule.name), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Worlds, ::testing::Range(0, static_cast<int>(std::size(kWorlds))),
                         [](const auto& info) { return std::string(kWorlds[info.param].name); });

TEST_F(Tiers, T1_RowsOfOneNumberHaveTheSameBits) {
  const Choices plain = choices(kWorlds[0], {});
  const RunResult expected = train(plain, "none", false, "logistic_regression");
  for (const TierCase& tier : kTiers) {
    SCOPED_TRACE(tier.name);
    expect_same(train(placed(plain, tier.place), tier.name, false, "logistic_regression"), expected);
  }
}

class Policies : public Tiers, public ::testing::WithParamInterface<Named> {
 protected:
  /// Whole, and thrown back to a checkpoint between two lines of the log.
  void expect_same_in_every_tier(const std::vector<WorldCase>& worlds, const std::vector<std::string>& more) {
    for (const WorldCase& world : worlds) {
      std::vector<std::string> sets = more;
      sets.push_back("recovery={" + std::string(GetParam().toml) + "}");
      const Choices plain = choices(world, sets);
      const RunResult expected = train(plain, std::string("none_") + world.name);
      const bool whole_list = !world.replicas && more.empty();
      const bool goes_back = throw_back(expected.folder, kSlots, kLogEvery);
      const RunResult after = goes_back ? train(plain, std::string("none_") + world.name, true) : RunResult{};
      for (const TierCase& tier : kTiers) {
        // All tiers where it is quick, elsewhere a third of them with each policy.
        if (!whole_list && (&tier - kTiers + std::ptrdiff_t{GetParam().name[1]}) % 3 != 0) continue;
        SCOPED_TRACE(std::string(world.name) + ", " + tier.name);
        const std::string folder = std::string(tier.name) + "_" + world.name;
        const Choices tiered = placed(plain, tier.place);
        const RunResult whole = train(tiered, folder);
        expect_same(whole, expected);
        if (!throw_back(whole.folder, kSlots, kLogEvery)) {
          // By the clock there may be none.
          EXPECT_THAT(GetParam().name, ::testing::AnyOf("none", "checkfreq"));
          continue;
        }
        const RunResult resumed = train(tiered, folder, true);
        if (goes_back) expect_same(resumed, after);
      }
    }
  }
};

TEST_P(Policies, T1_HaveTheSameBitsInEveryTierAndGoOnAfterAKill) {
  expect_same_in_every_tier({kWorlds[0], kWorlds[3]}, {});
}

INSTANTIATE_TEST_SUITE_P(All, Policies, ::testing::ValuesIn(kPolicies),
                         [](const auto& info) { return std::string(info.param.name); });

using PartialPolicies = Policies;

TEST_P(PartialPolicies, T1_PutRowsOfFailedShardsBackInEveryTier) {
  expect_same_in_every_tier({kWorlds[0]}, {kEmulated});
}

INSTANTIATE_TEST_SUITE_P(All, PartialPolicies, ::testing::ValuesIn(kPartial),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Tiers, T1_ACheckpointOfOneTierResumesUnderAnyOther) {
  for (const char* policy : {kPolicies[1].toml, kPolicies[5].toml}) {
    for (const WorldCase& world : {kWorlds[0], kWorlds[3]}) {
      if (world.replicas && policy != kPolicies[1].toml) continue;
      const Choices plain = choices(world, {"recovery={" + std::string(policy) + "}"});
      const RunResult expected = train(plain, "whole");
      std::vector<Choices> all{plain};
      for (const TierCase& tier : kTiers) all.push_back(placed(plain, tier.place));
      for (std::size_t i = 0; i < all.size(); ++i) {
        // Each with its two neighbours; the first is the core's own memory.
        for (const std::size_t j : {(i + 1) % all.size(), (i + all.size() - 1) % all.size()}) {
          SCOPED_TRACE(std::string(world.name) + ", " + std::to_string(i) + " then " + std::to_string(j));
          const std::string folder = std::string(world.name) + std::to_string(i) + "_" + std::to_string(j);
          ASSERT_TRUE(throw_back(train(all[i], folder).folder, kSlots, kLogEvery));
          expect_same(train(all[j], folder, true), expected);
          fs::remove_all(fs::path(expected.folder).parent_path().parent_path() / folder);
        }
      }
      fs::remove_all(fs::path(expected.folder).parent_path());
    }
  }
}

class Counts : public Tiers, public ::testing::WithParamInterface<TierCase> {};

TEST_P(Counts, T2_P13_EvaluationsAndSavesSeeDirtyRowsAndLeaveCountsAsTheyWere) {
  for (const char* policy : {kPolicies[1].toml, kPolicies[5].toml}) {
    const std::string inner = "recovery={type='noted_counts', inner={" + std::string(policy) + "}}";
    const Choices plain = choices(kWorlds[0], {inner, "run.eval_every=2"});
    const RunResult expected = train(plain, "none");
    moments.clear();
    live_caches.ended.clear();
    const RunResult run = train(placed(plain, GetParam().place), "tiered");
    expect_same(run, expected);
    int evaluations = 0, saves = 0;
    const Moment* slot = nullptr;
    for (const Moment& moment : moments) {
      if (moment.what == "slot") {
        if (slot != nullptr && !moment.counts.empty()) {
          EXPECT_NE(moment.counts, slot->counts) << "slots count";
        }
        slot = &moment;
        continue;
      }
      ASSERT_NE(slot, nullptr);
      EXPECT_EQ(moment.counts, slot->counts) << moment.what << " at slot " << moment.slot;
      EXPECT_EQ(moment.asked, slot->asked) << moment.what << " at slot " << moment.slot;
      EXPECT_EQ(moment.dirty, slot->dirty) << moment.what << " at slot " << moment.slot;
      (moment.what == "save" ? saves : evaluations) += 1;
      if (std::string_view(GetParam().place).find("row_cache") != std::string_view::npos) {
        EXPECT_GT(moment.dirty, 0) << "nothing for it to see";
      }
    }
    // The hashes of the run come after its last save.
    ASSERT_FALSE(moments.empty());
    for (const auto& [name, asked] : moments.back().asked)
      EXPECT_EQ(live_caches.ended.at(name), asked) << name;
    EXPECT_GE(evaluations, 4);
    EXPECT_GE(saves, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Counts, ::testing::ValuesIn(kTiers),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tenon::integration::tiers_test
