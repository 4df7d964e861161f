// Saves by the clock on whole runs: under a simulated clock of one second a slot, all ranks save at the same
// slots, and at the same ones every time.
#include "run_program.hpp"

namespace tenon::integration::timed_save_test {
namespace {

using ::testing::ElementsAre;

/// Slots of the existing checkpoints, ascending. keep is large, so these are all that were saved.
std::vector<int> saved_slots(const Scratch& scratch) {
  std::vector<int> slots;
  for (const auto& entry : fs::directory_iterator(scratch / "runs/tiny/latest/checkpoints")) {
    slots.push_back(std::stoi(entry.path().filename().string().substr(5)));
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

/// 20 slots of one simulated second.
std::string configuration(const std::string& recovery, int ranks) {
  std::string toml = replaced(Scratch::kRun, "every = 2", "keep = 100\n" + recovery);
  toml = replaced(replaced(toml, "steps = 6", "steps = 20"), "log_every = 1", "log_every = 100");
  toml +=
      "\n[transport]\ntype = \"thread\"\n\n[transport.clock]\ntype = \"simulated\"\ncompute_seconds = 1.0\n";
  if (ranks > 1) toml += "\n[parallel]\nranks = " + std::to_string(ranks) + "\n\n[sync]\ntype = \"ddp\"\n";
  return toml;
}

std::vector<int> run(const std::string& recovery, int ranks) {
  const Scratch scratch;
  write_file(scratch / "run.toml", configuration(recovery, ranks));
  const Ended ended = scratch.train();
  EXPECT_EQ(ended.status, 0) << ended.err;
  return saved_slots(scratch);
}

TEST(SavesByTheClock, ComeAtTheSameSlots) {
  EXPECT_THAT(run("every_seconds = 5", 1), ElementsAre(6, 11, 16, 20));
  const auto two = run("every_seconds = 5", 2);
  EXPECT_EQ(run("every_seconds = 5", 2), two);
  EXPECT_EQ(two.size(), 4u) << ::testing::PrintToString(two);
}

// Young: sqrt(2 * 0.5 s * 25 s) = 5 s.
TEST(SavesByTheClock, FollowYoungsFormula) {
  EXPECT_THAT(run("mtbf_seconds = 25\nsave_seconds = 0.5\nsave_at_end = false", 1), ElementsAre(6, 11, 16));
  EXPECT_EQ(run("mtbf_seconds = 25\nsave_seconds = 0.5", 2), run("every_seconds = 5", 2));
}

TEST(SavesByTheClock, ExcludeSavesBySlots) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", "recovery.mtbf_seconds=60"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, ::testing::HasSubstr("found 'every' and 'mtbf_seconds', which exclude each other"));
}

// A full disk: the policy learns of it and asks again after half a second, that is in every slot from the
// sixth on, and the run reports it at its end.
TEST(SavesByTheClock, F4_AreTriedAgainWhenTheyFail) {
  const Scratch scratch;
  write_file(scratch / "run.toml", configuration("every_seconds = 5", 1));
  const Ended ended = Child({{"train", "run.toml", "--quiet"}, scratch.folder(), {}, 8192}).wait();
  EXPECT_EQ(ended.status, 1) << ended.err;
  const std::string log = scratch.log(), failed = "could not be saved";
  int failures = 0;
  for (auto at = log.find(failed); at != std::string::npos; at = log.find(failed, at + 1)) ++failures;
  EXPECT_EQ(failures, 15) << log;
}

}  // namespace
}  // namespace tenon::integration::timed_save_test
