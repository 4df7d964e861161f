// [tables] plan = "auto" in whole runs: what `tenon check` prints, that no bit changes, and what is refused.
#include "run_program.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace tenon::integration::table_plan_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPlanned = R"([run]
name = "tiny"
steps = 4
eval_batches = 2

[device]
type = "cpu"
threads = 1

[data]
type = "synthetic_ctr"
tables = 3
rows = [1000, 100, 4]
batch = 64
val_samples = 128

[model]
type = "dlrm"

[optimizer]
type = "rowwise_adagrad"
lr = 0.02
)";

/// Two tiers of host memory: rows take 64 bytes of weights and 4 of optimizer rows.
std::string plan_of(const std::string& fast, const std::string& slow, const std::string& more = "") {
  return "tables={plan=\"auto\"" + more + ", budget=[{bytes=\"" + fast +
         "\", tier={type=\"dram\"}}, {bytes=\"" + slow + "\", tier={type=\"dram\", numa=\"local\"}}]}";
}

class Planned : public Scratch {
 public:
  Planned() { write_file(*this / "run.toml", kPlanned); }
  Ended check(const std::vector<std::string>& sets) const { return run(words({"check", "run.toml"}, sets)); }
  Ended train_with(const std::vector<std::string>& sets) const { return train(words({}, sets)); }

 private:
  static std::vector<std::string> words(std::vector<std::string> first,
                                        const std::vector<std::string>& sets) {
    for (const std::string& set : sets) {
      first.emplace_back("--set");
      first.push_back(set);
    }
    return first;
  }
};

TEST(TablePlans, AreShownByCheck) {
  const Planned run;
  const Ended ended = run.check({plan_of("6800", "1MiB")});
  ASSERT_EQ(ended.status, 0) << ended.err;
  // 100 rows in the first tier: all 4 rows of the smallest table, the others as far as they are dense.
  EXPECT_THAT(ended.out, HasSubstr(R"(
  plan of 3 tables, rows read k^-1 times as often as the first; no plan serves more reads by its first tiers
    tier 1 (dram): 1 table whole, caches of 2; 6.25 KiB of weights and 400 bytes of optimizer rows, of 6.641 KiB
      serves 2.461 of 3 reads of a sample, 82.0 %; in no plan more than 82.0 %
    tier 2 (dram): 2 tables whole, caches of 0; 68.75 KiB of weights and 4.297 KiB of optimizer rows, of 1 MiB
      serves 0.5394 of 3 reads of a sample, 18.0 %
    emb.0.weight: 1000 rows in tier 2, 39 cached in tier 1 for 56.8 % of its reads
    emb.1.weight: 100 rows in tier 2, 57 cached in tier 1 for 89.2 % of its reads
    emb.2.weight: 4 rows in tier 1
)"));
  // Harmonic numbers: (H(39) / H(1000) + H(57) / H(100) + 1) is 2.460.
}

TEST(TablePlans, ChangeNoBit) {
  const Planned plain, planned, whole;
  ASSERT_EQ(plain.train().status, 0);
  const Ended ended = planned.train_with({plan_of("6800", "1MiB")});
  ASSERT_EQ(ended.status, 0) << ended.err;
  ASSERT_EQ(whole.train_with({plan_of("1MiB", "1MiB")}).status, 0);
  for (const char* hash : {"weights_hash", "state_hash"}) {
    EXPECT_EQ(planned.summary(hash), plain.summary(hash)) << hash;
    EXPECT_EQ(whole.summary(hash), plain.summary(hash)) << hash;
  }
}

TEST(TablePlans, AreOfTheShardOfEachRank) {
  const std::vector<std::string> two{"parallel.ranks=2", "transport.type=thread", "sync.type=ddp",
                                     "model.placement=rows"};
  std::vector<std::string> sets = two;
  sets.push_back(plan_of("6800", "1MiB"));
  const Planned plain, planned;
  ASSERT_EQ(plain.train_with(two).status, 0);
  const Ended ended = planned.train_with(sets);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(planned.summary("weights_hash"), plain.summary("weights_hash"));
  const Ended checked = planned.check(sets);
  EXPECT_THAT(checked.out, HasSubstr("    emb.0.weight: 500 rows in tier 2, "));
}

TEST(TablePlans, TakeAccessesFromARun) {
  const Planned run;
  ASSERT_EQ(run.train_with({"observe=[{type=\"tables\", hottest=1000}]"}).status, 0);
  const Ended ended = run.check({plan_of("6800", "1MiB", ", accesses=\"runs/tiny\"")});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(run.plain(ended.out),
              HasSubstr("plan of 3 tables, rows read as counted in {dir}/runs/tiny/1; "));
  // A sample reads a row of each table.
  EXPECT_THAT(ended.out, HasSubstr(" of 3 reads of a sample"));
  EXPECT_THAT(ended.out, HasSubstr("emb.2.weight: 4 rows in tier 1\n"));

  const Ended other =
      run.check({plan_of("6800", "1MiB", ", accesses=\"runs/tiny\""), "data.rows=[900, 100, 4]"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err,
              HasSubstr("has 1000 rows of table 'emb.0.weight', and this model has 900; name a run of the "
                        "same model"));
  const Ended more = run.check(
      {plan_of("9800", "1MiB", ", accesses=\"runs/tiny\""), "data.tables=4", "data.rows=[1000, 100, 4, 5]"});
  EXPECT_EQ(more.status, 2);
  EXPECT_THAT(more.err,
              HasSubstr("has no table 'emb.3.weight'; it has: emb.0.weight, emb.1.weight, emb.2.weight. Name "
                        "a run of the same model"));
}

TEST(TablePlans, LeaveTablesOfAPlaceAlone) {
  const Planned run;
  const std::string sets =
      "tables={plan=\"auto\", place=[{match=\"emb.0.*\", tier={type=\"dram\"}}], "
      "budget=[{bytes=\"8000\", tier={type=\"dram\"}}]}";
  const Ended ended = run.check({sets});  // 104 rows of 68 bytes
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("  dram: 1 table, 1000 rows, 62.5 KiB of weights, 3.906 KiB of optimizer rows\n"));
  EXPECT_THAT(ended.out, HasSubstr("plan of 2 tables, rows"));
  EXPECT_THAT(ended.out, Not(HasSubstr("emb.0.weight: ")));
}

TEST(TablePlans, OfPlacedCachesAreExpectedHits) {
  const Planned run;
  const Ended ended =
      run.check({"tables={power_law=1.2, place=[{match=\"emb.0.*\", tier={type=\"cached\", "
                 "load_factor=0.1}}]}"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  // Sum of k^-1.2 to 100 over that to 1000: 3.6030 / 4.3358.
  EXPECT_THAT(ended.out, HasSubstr("  host memory: 2 tables, 104 rows, "));
  EXPECT_THAT(ended.out, HasSubstr("  cached (host memory over host memory): 1 table, 1000 rows, "));
  EXPECT_THAT(ended.out,
              HasSubstr("    emb.0.weight: 1000 rows, a cache of 100 rows for 83.1 % of its reads\n"));
}

TEST(TablePlans, AreRefusedWithSizes) {
  const struct {
    std::vector<std::string> sets;
    std::string what;
  } cases[] = {
      {{plan_of("203", "1MiB")},
       "[[tables.budget]] of dram has 203 bytes, and one row of each of the 3 tables, with its optimizer "
       "rows, takes "
       "204; raise it, or leave this tier out"},
      {{plan_of("7000", "68100")},
       "the budgets of [tables] do not hold the 3 tables on this rank, which take 75072 bytes with their "
       "optimizer "
       "rows, the largest, 'emb.0.weight', 68000: a table lies whole in one tier"},
      {{plan_of("680", "6800")}, "67592 bytes are missing ("},
      {{plan_of("6800", "1MiB", ", accesses=\"runs/none\"")}, "runs/none"},
      {{"tables={plan=\"auto\"}"}, "plan = 'auto' fills budgets, and there is none"},
  };
  const Planned run;
  for (const auto& each : cases) {
    const Ended ended = run.check(each.sets);
    EXPECT_EQ(ended.status, 2) << each.what;
    EXPECT_THAT(ended.err, HasSubstr(each.what));
  }
}

}  // namespace
}  // namespace tenon::integration::table_plan_test
