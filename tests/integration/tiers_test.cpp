// The program with [tables]: kills between and during slots lose no row that a cache alone had (T1), and
// places that contradict, hold nothing or cannot serve the run's workers are refused or warned of with their
// lines.
#include "run_program.hpp"

#include <chrono>
#include <thread>

namespace tenon::integration::tiers_program_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr const char* kCached =
    "\n[[tables.place]]\nmatch = \"emb.*\"\ntier = { type = \"row_cache\", sets = 3 }\n";

class TiersProgram : public Scratch {
 public:
  explicit TiersProgram(const std::string& tables = "") {
    write_file(*this / "run.toml", clicks_run() + tables);
  }
  Command command(Words words) const {
    return {std::move(words), folder(), {{"TENON_PLUGIN_PATH", TENON_ROW_CACHE}}};
  }
  Ended train(const Words& sets, Words words = {}) const {
    words.insert(words.begin(), {"train", "run.toml"});
    for (const std::string& set : sets) {
      words.emplace_back("--set");
      words.push_back(set);
    }
    return Child(command(words)).wait();
  }
};

class KilledTiers : public ::testing::TestWithParam<int> {};

TEST_P(KilledTiers, T1_ResumeToTheBitsOfAWholeRunWithoutTiers) {
  const Words sets = {"parallel.ranks=" + std::to_string(GetParam()), "model.placement=rows", "run.steps=240",
                      "data.batch=" + std::to_string(96 / GetParam()), "recovery.keep=1000"};
  const TiersProgram whole;
  ASSERT_EQ(whole.train(sets).status, 0);
  const TiersProgram run(kCached);
  int kills = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    Words words{"train", "run.toml", "--quiet"};
    for (const std::string& set : sets) {
      words.emplace_back("--set");
      words.push_back(set);
    }
    if (attempt > 0) words.emplace_back("--resume");
    Child child(run.command(words));
    const fs::path awaited = run / "runs/tiny/1/checkpoints" / ("step-" + std::to_string(60 * (attempt + 1)));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::exists(awaited) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.send(SIGKILL);
    kills += child.wait().signal == SIGKILL ? 1 : 0;
  }
  EXPECT_EQ(kills, 2) << "the run ended before it was killed";
  const Ended ended = run.train(sets, {"--resume"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(run.summary("weights_hash"), whole.summary("weights_hash"));
  EXPECT_EQ(run.summary("state_hash"), whole.summary("state_hash"));
}

INSTANTIATE_TEST_SUITE_P(Replicas, KilledTiers, ::testing::Values(1, 2));

/// What a run of one slot says, and its exit status.
std::string said(const std::string& tables, const Words& sets, int status) {
  const TiersProgram run(tables);
  Words all = {"run.steps=1"};
  all.insert(all.end(), sets.begin(), sets.end());
  const Ended ended = run.train(all);
  EXPECT_EQ(ended.status, status) << ended.err;
  return run.plain(ended.err);
}

TEST(TierRefusals, HogwildWorkersOnATierThatDoesNotDeclareThem) {
  const Words workers = {"parallel.workers=2", "sync.type=none"};
  const auto place = [](const std::string& tier) {
    return "\n[[tables.place]]\nmatch = \"*\"\ntier = " + tier + "\n";
  };
  const char* const refusal =
      "parallel.workers = 2 write rows at the same time, and tier.lone_row_cache does not declare 'hogwild'; "
      "set "
      "parallel.workers = 1, or choose a tier that declares it";
  EXPECT_THAT(said(place("{type='lone_row_cache'}"), workers, 2),
              AllOf(HasSubstr("run.toml:42:"), HasSubstr(refusal)));
  EXPECT_THAT(said(place("{type='row_cache', behind={type='lone_row_cache'}}"), workers, 2),
              HasSubstr(refusal))
      << "the outer one declares it";
  EXPECT_THAT(said(place("{type='row_cache'}\nstate = {type='lone_row_cache'}"), workers, 2),
              HasSubstr(refusal));
  said(place("{type='row_cache', behind={type='row_cache'}}"), workers, 0);
  said(place("{type='lone_row_cache'}"), {}, 0);
}

TEST(TierRefusals, TwoPlacesOfOnePatternThatContradict) {
  const std::string first = "\n[[tables.place]]\nmatch = \"emb.*\"\ntier = { type = \"dram\" }\n";
  const auto second = [&](const std::string& match, const std::string& rest) {
    return first + "[[tables.place]]\nmatch = \"" + match + "\"\n" + rest;
  };
  const auto refusal =
      AllOf(HasSubstr("run.toml:43:1: [[tables.place]] match = \"emb.*\" is that of the entry at "),
            HasSubstr("run.toml:40:1, too, which names other tiers; leave one of the two out"));
  EXPECT_THAT(said(second("emb.*", "tier = { type = \"row_cache\" }\n"), {}, 2), refusal);
  EXPECT_THAT(said(second("emb.*", "tier = { type = \"dram\", huge_pages = false }\n"), {}, 2), refusal);
  EXPECT_THAT(said(second("emb.*", "tier = { type = \"dram\" }\nstate = { type = \"row_cache\" }\n"), {}, 2),
              refusal);
  // The first that matches counts, so another pattern may say more of the rest.
  const std::string fine = said(second("emb.0.*", "tier = { type = \"dram\" }\n"), {}, 0);
  EXPECT_THAT(fine,
              HasSubstr("run.toml:43:1: [[tables.place]] match = 'emb.0.*' holds no table: entries before it "
                        "hold all that it matches"));
  const std::string same =
      said(second("emb.*", "tier = { type = \"dram\" }\nstate = { type = \"dram\" }\n"), {}, 0);
  EXPECT_THAT(same, HasSubstr("holds no table"));
}

TEST(TierWarnings, NamePlacesThatHoldNothing) {
  EXPECT_THAT(
      said("\n[[tables.place]]\nmatch = \"table.*\"\ntier = { type = \"dram\" }\n", {}, 0),
      HasSubstr(
          "run.toml:40:1: [[tables.place]] match = 'table.*' matches no row table of this model; known: "
          "emb.0.weight, emb.1.weight, emb.2.weight, emb.3.weight, emb.4.weight, emb.5.weight, "
          "emb.6.weight, emb.7.weight and 6 more"));
  EXPECT_THAT(said("\n[[tables.place]]\nmatch = \"emb.1?.weight\"\ntier = { type = \"dram\" }\n", {}, 0),
              Not(HasSubstr("[[tables.place]]")));
  const TiersProgram run;
  write_file(run / "run.toml",
             std::string(Scratch::kRun) + "[[tables.place]]\nmatch = \"*\"\ntier = { type = \"dram\" }\n");
  const Ended ended = run.train({});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(": [tables] places nothing: this model has no row tables"));
}

}  // namespace
}  // namespace tenon::integration::tiers_program_test
