// A whole run: settings, errors between tables, the resolved file, and that no misspelt key passes.
#include "config/run_schema.hpp"
#include "config/sample_components.hpp"
#include "config/testing/key_mutations.hpp"
#include "test_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

TENON_ABI_BEGIN
namespace config {
namespace {

Config sample_run(std::vector<std::string> sets = {}) {
  return Config::parse(sample::kRun, "run.toml", std::move(sets));
}

TEST(RunCheck, ReadsSettings) {
  CheckedRun run = check_run(sample_run({"run.seed_order=9"}), sample::kCatalog, {});
  EXPECT_EQ(run.core.run.name, "sample");
  EXPECT_EQ(run.core.run.seed, 7u);
  EXPECT_EQ(run.core.run.seed_init, 7u);
  EXPECT_EQ(run.core.run.seed_order, 9u);
  EXPECT_EQ(run.core.run.steps, 400);
  EXPECT_EQ(run.core.run.clip, 1.0);
  EXPECT_FALSE(run.core.run.max_tokens.has_value());
  EXPECT_EQ(run.core.device.threads, 2);
  EXPECT_EQ(run.core.parallel.ranks_per_replica(), 2);
  EXPECT_EQ(run.core.parallel.world(), 8);
  ASSERT_TRUE(run.core.transport.link.has_value());
  EXPECT_EQ(run.core.transport.link->bandwidth, 1.25e8);
  EXPECT_TRUE(run.core.transport.simulated_clock);
  EXPECT_EQ(run.core.transport.costs.compute_seconds, 0.01);
  EXPECT_EQ(run.core.buffers, BufferPolicy::kLocal);
  EXPECT_EQ(run.core.recovery.fallbacks, 3);
  EXPECT_TRUE(run.core.recovery.canary);
  ASSERT_EQ(run.core.faults.size(), 1u);
  EXPECT_EQ(run.core.faults[0].kind, FaultSettings::Kind::kCrash);
  EXPECT_EQ(run.core.faults[0].step, 30);
  EXPECT_TRUE(run.warnings.empty());
}

TEST(RunCheck, ANameIsAFolderBelowRuns) {
  for (const char* name : {"a", "a b", "a/b.c/-d", "na\xc3\xafve", "..a", "<x>", "1"})
    EXPECT_EQ(check_run(sample_run({std::string("run.name=") + "'" + name + "'"}), sample::kCatalog, {})
                  .core.run.name,
              name);
  for (const char* name : {"", ".", "..", "../out", "a/..", "a/../b", "/tmp/a", "a//b", "a/", "a/./b",
                           "latest", "a/latest", "a\x01"}) {
    EXPECT_FALSE(is_safe_name(name)) << name;
    if (std::string_view(name).find('\x01') != std::string_view::npos) continue;  // TOML refuses it first
    try {
      check_run(sample_run({std::string("run.name=") + "'" + name + "'"}), sample::kCatalog, {});
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string("[run] name = '") + name +
                                                   "' is no folder below runs/: expected a name"));
    }
  }
}

TEST(RunCheck, HandsEachComponentItsOptions) {
  CheckedRun run = check_run(sample_run(), sample::kCatalog, {});
  std::vector<std::string> tables;
  for (const CheckedComponent& component : run.components) tables.push_back(component.table);
  EXPECT_THAT(tables, testing::ElementsAre("device", "transport", "data", "model", "precision", "optimizer",
                                           "schedule", "sync", "recovery", "observe[0]"));
  EXPECT_THAT(run.component("optimizer")->options->reals("betas"), testing::ElementsAre(0.9, 0.95));
  EXPECT_EQ(run.component("observe[0]")->options->real("flush_seconds"), 1.0);
  EXPECT_EQ(run.component("nothing"), nullptr);
  const auto inner = run.component("sync")->options->inner();
  ASSERT_EQ(inner.size(), 2u);
  EXPECT_EQ(inner[0].first, "inner");
  EXPECT_EQ(inner[0].second->options->owner(), "sync.mean");
  EXPECT_EQ(inner[1].second->options->real("momentum"), 0.9);
  EXPECT_EQ(run.model_edits.find("insert")->array().size(), 1u);
}

TEST(RunCheck, ResolvedFileIsCompleteAndStable) {
  const CheckedRun run = check_run(sample_run(), sample::kCatalog, {});
  const Value& root = run.resolved.root();
  EXPECT_EQ(run.resolved.find("optimizer.weight_decay")->origin.text(), "default");
  EXPECT_EQ(run.resolved.find("run.deadline")->real(), 300.0);
  EXPECT_EQ(run.resolved.find("sync.inner.bucket_mib")->origin.text(), "run.toml:60:14");
  EXPECT_EQ(run.resolved.find("sync.buffers")->text(), "local");
  const std::string text = to_toml(root, true);
  const Config again = Config::parse(text, "config.resolved.toml", {});
  EXPECT_EQ(again.root(), root) << text;
  EXPECT_EQ(check_run(again, sample::kCatalog, {}).resolved.root(), root);
}

TEST(RunCheck, ReportsEveryProblemAtOnce) {
  const struct {
    std::vector<std::string> sets;
    const char* message;
  } cases[] = {
      {{"optimizer.beta1=1"},
       "--set optimizer.beta1=1: optimizer.adapt has no option 'beta1'; did you mean 'betas'? (see: tenon "
       "inspect "
       "optimizer.adapt)"},
      {{"optimiser.lr=1"},
       "--set optimiser.lr=1: a run has no table 'optimiser'; did you mean 'optimizer'? (known: run, init, "
       "device, "
       "parallel, "
       "transport, data, evaluate, model, precision, optimizer, schedule, sync, recovery, observe, power, "
       "tables, emulate, "
       "fault, "
       "plugins)"},
      {{"run.step=3"},
       "--set run.step=3: [run] has no option 'step'; did you mean 'steps'? (known: name, seed, seed_init, "
       "seed_order, "
       "seed_rounding, steps, max_samples, max_tokens, max_seconds, max_bytes, eval_every, eval_batches, "
       "evaluate_first, evaluate_on_stop, "
       "log_every, "
       "accumulate, clip, on_nan, deadline, witness_every, witness_layers)"},
      {{"device.thread=3"},
       "--set device.thread=3: device.cpu has no option 'thread'; did you mean 'threads'? (see: tenon "
       "inspect device.cpu)"},
      {{"device.threads=-1"},
       "--set device.threads=-1: option 'threads' of [device] is -1; expected a whole number from 0 to 4096 "
       "threads"},
      {{"optimizer.type=adapd"}, "--set optimizer.type=adapd: no component 'adapd'; did you mean 'adapt'?"},
      {{"optimizer.type=3"},
       "--set optimizer.type=3: [optimizer] needs 'type', the name of a component of kind optimizer, in "
       "quotes (see: "
       "tenon inspect)"},
      {{"sync.inner.buckets=1"},
       "--set sync.inner.buckets=1: sync.mean has no option 'buckets' (see: tenon inspect sync.mean)"},
      {{"transport.clock.type=real"},
       "--set transport.clock.type=real: option 'type' of [transport.clock] is \"real\"; expected one of "
       "'wall', "
       "'simulated'"},
      {{"sync.buffers=averaged", "run.steps=0"},
       "--set run.steps=0: option 'steps' of [run] is 0; expected a whole number of at least 1 slots\n"
       "--set sync.buffers=averaged: option 'buffers' of [sync] is \"averaged\"; expected one of 'average', "
       "'local', "
       "'broadcast'; did you mean 'average'?"},
      {{"recovery.fallbacks=-1"},
       "--set recovery.fallbacks=-1: option 'fallbacks' of [recovery] is -1; expected a whole number from 0 "
       "to "
       "1000 generations"},
      {{"recovery.canary=1"},
       "--set recovery.canary=1: option 'canary' of [recovery]: expected true or false, found the whole "
       "number "
       "1"},
      {{"parallel.ranks=1"},
       "run.toml:74:8: [[fault]] names rank 2, but the world has 2 ranks (counted from 0)"},
      {{"emulate={hours=56.0, shards=4, lost=5}"},
       "--set emulate={hours=56.0, shards=4, lost=5}: [emulate] lost = 5 of 4 shards; expected at most all "
       "of them"},
      {{"emulate={hours=56.0, law=\"gamma\"}"},
       "--set emulate={hours=56.0, law=\"gamma\"}: [emulate] law = \"gamma\" needs mtbf_hours"},
      {{"emulate={hours=56.0, at_least=1}"},
       "--set emulate={hours=56.0, at_least=1}: [emulate] at_least needs a law, e.g. law = \"exponential\""},
      {{"emulate.hour=3"}, "--set emulate.hour=3: [emulate] has no option 'hour'; did you mean 'hours'?"},
      {{"emulate={hours=56.0, failure=[{hour=60.0, shards=[9]}]}"},
       "--set emulate={hours=56.0, failure=[{hour=60.0, shards=[9]}]}: [[emulate.failure]] names shard 9, "
       "but "
       "the cluster has 8 (counted from 0)\n"
       "--set emulate={hours=56.0, failure=[{hour=60.0, shards=[9]}]}: [[emulate.failure]] at hour 60, but "
       "the "
       "job ends after 56"},
      {{"emulate={hours=56.0, failure=[{hour=6.0, shards=[]}]}"},
       "--set emulate={hours=56.0, failure=[{hour=6.0, shards=[]}]}: [[emulate.failure]] names no shard"},
      {{"data.path=no/such/file"}, "--set data.path=no/such/file: option 'path' of data"},
      {{"run=3"}, "--set run=3: [run] takes a table, found the whole number 3"},
      {{"model.insert=3"},
       "--set model.insert=3: expected [[model.insert]], a list of tables, found the whole number 3"},
      {{"observe=[1]"}, "--set observe=[1]: expected a table in [[observe]], found the whole number 1"},
      {{"sync.type=mean", "sync.inner={type=\"mean\"}"},
       "--set sync.inner={type=\"mean\"}: sync.mean has no option 'inner' (see: tenon inspect sync.mean)"},
  };
  for (const auto& test : cases) {
    try {
      check_run(sample_run(test.sets), sample::kCatalog, {});
      ADD_FAILURE() << test.message << ": accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_THAT(error.what(), testing::StartsWith(test.message));
    }
  }
}

TEST(RunCheck, NamesMissingTables) {
  try {
    check_run(Config::parse("[parallel]\nranks = 2\n[optimizer]\ntyp = \"sgd\"\n", "x.toml", {}),
              sample::kCatalog, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "x.toml: [run] needs option 'steps': a whole number of at least 1 slots, length of the run in slots\n"
        "x.toml: a run needs [device] with a 'type': the name of a component of kind device (see: tenon "
        "inspect)\n"
        "x.toml: a run needs [data] with a 'type': the name of a component of kind dataset (see: tenon "
        "inspect)\n"
        "x.toml: a run needs [model] with a 'type': the name of a component of kind model (see: tenon "
        "inspect)\n"
        "x.toml:4:1: [optimizer] has no 'typ'; did you mean 'type'? It names a component of kind optimizer "
        "(see: "
        "tenon inspect)");
  }
}

TEST(RunCheck, SeveralRanksNeedTransportAndSync) {
  const char* text =
      "run.steps = 1\nparallel.ranks = 2\ndevice.type = \"cpu\"\ndata.type = \"text\"\n"
      "data.path = \"README.md\"\nmodel.type = \"mlp\"\noptimizer.type = \"sgd\"\n";
  const std::string here = "data.path=" + std::string(TENON_SOURCE_DIR "/README.md");
  EXPECT_EQ(check_run(Config::parse(text, "x.toml", {here, "parallel.ranks=1"}), sample::kCatalog, {})
                .components.size(),
            4u);
  try {
    check_run(Config::parse(text, "x.toml", {here}), sample::kCatalog, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "x.toml: 2 ranks need [transport] with a 'type' (see: tenon inspect)\n"
                 "x.toml: 2 replicas need [sync] with a 'type' (see: tenon inspect)");
  }
}

TEST(RunCheck, StragglersAreSlowerThanOthers) {
  const auto problem = [](const std::string& straggler) {
    try {
      check_run(sample_run({"transport.straggler=[" + straggler + "]"}), sample::kCatalog, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(problem("{ranks=[0], kind=\"factor\", factor=0.5}"),
              testing::HasSubstr("expected a factor of 1 or more, found 0.5"));
  EXPECT_THAT(problem("{ranks=[0], kind=\"factor\", factor=1.5}"),
              testing::Not(testing::HasSubstr("straggler")));
}

TEST(RunCheck, PassesExtraTablesOn) {
  const std::string extra[] = {"simulator"};
  const Config config = sample_run({"simulator.type=wave"});
  EXPECT_EQ(check_run(config, sample::kCatalog, extra).resolved.find("simulator.type")->text(), "wave");
  EXPECT_THROW(check_run(config, sample::kCatalog, {}), Error);
}

TEST(RunCheck, PluginPathsCountFromTheirFile) {
  const std::string sources = TENON_SOURCE_DIR;
  const std::string file = sources + "/configs/x.toml";
  const auto config = [&](const std::string& path) {
    return Config::parse("[plugins]\npaths = [\"" + path + "\", \"/tmp\"]\n", file,
                         {"plugins.+paths=[\"docs\"]"});
  };
  EXPECT_THAT(plugin_paths(config("base")),
              testing::ElementsAre(sources + "/configs/base", "/tmp", sources + "/docs"));
  std::string refused;
  try {
    plugin_paths(config("nowhere"));
  } catch (const Error& error) {
    refused = error.what();
  }
  EXPECT_THAT(refused, testing::StartsWith(file + ":2:10: [plugins] paths: cannot find 'nowhere'; tried\n  " +
                                           sources + "/configs/nowhere\n"));
}

std::vector<std::string> with_tables(std::vector<std::string> more = {}) {
  std::vector<std::string> sets{
      "tables.place=[{match=\"emb.*\", tier={type=\"memory\"}, state={type=\"memory\", pages=8}}, "
      "{match=\"*\", tier={type=\"memory\"}}]"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(RunCheck, TablesAreInPlacesInTheirOrder) {
  CheckedRun run = check_run(sample_run(with_tables({"tables.prefetch=2"})), sample::kCatalog, {});
  ASSERT_EQ(run.core.tables.places.size(), 2u);
  EXPECT_EQ(run.core.tables.places[0].match, "emb.*");
  EXPECT_TRUE(run.core.tables.places[0].has_state);
  EXPECT_FALSE(run.core.tables.places[1].has_state);
  EXPECT_EQ(run.core.tables.prefetch, 2);
  EXPECT_FALSE(run.core.tables.plan);
  EXPECT_EQ(run.component("tables.place[0].state")->options->integer("pages"), 8);
  EXPECT_EQ(run.component("tables.place[1].tier")->options->integer("pages"), 1);
  EXPECT_EQ(run.component("tables.place[1].state"), nullptr);
  // What was resolved means the same when it is read again.
  const Config again = Config::parse(to_toml(run.resolved.root(), false), "again.toml", {});
  EXPECT_EQ(to_toml(check_run(again, sample::kCatalog, {}).resolved.root(), false),
            to_toml(run.resolved.root(), false));
}

TEST(RunCheck, ATableBudgetIsInBytes) {
  const auto budget = [](const std::string& bytes) {
    return std::vector<std::string>{"tables.plan=auto",
                                    "tables.budget=[{bytes=\"" + bytes + "\", tier={type=\"memory\"}}]"};
  };
  CheckedRun run = check_run(sample_run(budget("2GiB")), sample::kCatalog, {});
  ASSERT_EQ(run.core.tables.budgets.size(), 1u);
  EXPECT_EQ(run.core.tables.budgets[0].bytes, std::int64_t{2} << 30);
  EXPECT_TRUE(run.core.tables.plan);
  for (const char* bytes : {"2 GiB", "2GB", "-1", "0", "1.5GiB", "", "9000000TiB", "9999999999999999999"}) {
    std::string refused;
    try {
      check_run(sample_run(budget(bytes)), sample::kCatalog, {});
    } catch (const Error& error) {
      refused = error.what();
    }
    EXPECT_THAT(refused,
                testing::HasSubstr(std::string("bytes = '") + bytes + "': expected a number of bytes"))
        << bytes;
  }
}

TEST(RunCheck, TablesAreRefusedWithAllFacts) {
  const struct {
    std::vector<std::string> sets;
    const char* message;
  } cases[] = {
      {{"tables.place=3"}, "expected [[tables.place]], a list of tables, found"},
      {{"tables.place=[{match=\"*\"}]"},
       "[[tables.place]] needs [tables.place.tier], a table with a 'type': the name of a component of kind "
       "tier"},
      {{"tables.place=[{match=\"*\", tier={type=\"memory\"}, state=3}]"},
       "[[tables.place]] needs [tables.place.state], a table with a 'type'"},
      {{"tables.place=[{tier={type=\"memory\"}}]"}, "[[tables.place]] needs option 'match'"},
      {{"tables.place=[{match=\"*\", tier={type=\"memori\"}}]"}, "no component 'memori'"},
      {{"tables.plan=auto"}, "[tables] plan = 'auto' fills budgets, and there is none"},
      {{"tables.budget=[{bytes=\"1\", tier={type=\"memory\"}}]"},
       "[[tables.budget]] is read with plan = 'auto' alone"},
      {{"tables=3"}, "expected the table [tables], found"},
  };
  for (const auto& c : cases) {
    std::string refused;
    try {
      check_run(sample_run(c.sets), sample::kCatalog, {});
    } catch (const Error& error) {
      refused = error.what();
    }
    EXPECT_THAT(refused, testing::HasSubstr(c.message));
  }
}

TEST(KeyMutations, GoIntoPlacesOfTables) {
  std::set<std::string> proven;
  const MutationReport report = mutate_keys(sample_run(with_tables()), sample::kCatalog, proven, 4);
  EXPECT_THAT(report.accepted, testing::IsEmpty());
  EXPECT_THAT(proven, testing::Contains(testing::HasSubstr("tier.memory")));
}

TEST(KeyMutations, EnumeratesSingleEdits) {
  const std::vector<std::string> edits = one_edit_mutations("lr");
  for (const char* word : {"l", "r", "rl", "lrr", "xlr", "l_r", "l-"})
    EXPECT_THAT(edits, testing::Contains(word));
  EXPECT_THAT(edits, testing::Not(testing::Contains("lr")));
  // 2 deletions, 1 transposition, 2 x 37 replacements, 3 x 38 insertions less 2 repeats.
  EXPECT_EQ(edits.size(), 2u + 1u + 74u + 112u);
}

TEST(KeyMutations, EveryMisspeltKeyIsRefusedWithTheRightSuggestion) {
  std::set<std::string> proven;
  const MutationReport report = mutate_keys(sample_run(), sample::kCatalog, proven, 4);
  EXPECT_GT(report.keys, 50u);
  EXPECT_GT(report.tried, 2500u);
  EXPECT_THAT(report.accepted, testing::IsEmpty());
  EXPECT_LE(report.misguided.size() * 10, report.long_keys) << testing::PrintToString(report.misguided);
  EXPECT_EQ(mutate_keys(sample_run(), sample::kCatalog, proven).tried, 0u);
}

TEST(KeyMutations, GoIntoListsOfComponents) {
  std::set<std::string> proven;
  const Config listed =
      sample_run({"sync={type=\"stack\", part=[{type=\"mean\"}, {type=\"mean\", bucket_mib=1}]}"});
  const MutationReport report = mutate_keys(listed, sample::kCatalog, proven, 4);
  EXPECT_THAT(report.accepted, testing::IsEmpty());
  EXPECT_THAT(proven, testing::Contains("sync.mean in inner bucket_mib"));
}

}  // namespace
}  // namespace config
TENON_ABI_END
