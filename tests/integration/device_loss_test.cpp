// A device that is lost, or has no memory left, in whole runs: the emulated device is told to fail. The loss
// of a device is the death of its rank, which others outlive; the rest fails the run like any other error.
#include "run_program.hpp"

namespace tenon::integration::device_loss_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr int kLost = 4;  // exit status

/// Twelve slots, a checkpoint every second one; `device`: lines of [device].
std::string run_file(const std::string& device, int ranks, const std::string& transport = "socket") {
  std::string toml = replaced(Scratch::kRun, "type = \"cpu\"", "type = \"cuda_emulated\"\n" + device);
  toml = replaced(toml, "steps = 6", "steps = 12");
  if (ranks == 1) return toml;
  return toml + "\n[parallel]\nranks = 2\n\n[transport]\ntype = \"" + transport +
         "\"\n\n[sync]\ntype = \"ddp\"\n";
}

Words launched(int ranks, const Words& options = {}) {
  Words words{"launch", "-n", std::to_string(ranks)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "train", "run.toml", "--quiet"});
  return words;
}

/// Number of device operations of the run that `toml` describes, at most a sixteenth too many: found by
/// halving, since the number depends on the operators.
int operations_of(const std::string& toml) {
  int too_few = 0, enough = 1 << 20;
  while (enough - too_few > enough / 16) {
    const int tried = (too_few + enough) / 2;
    const Scratch scratch;
    write_file(scratch / "run.toml", toml);
    (scratch.train({"--set", "device.lose_at=" + std::to_string(tried)}).status == 0 ? enough : too_few) =
        tried;
  }
  return enough;
}

/// The device of rank `index` is lost after four fifths of the run, so a process that continues from the
/// newest checkpoint does not reach that point.
std::string losing(int ranks, int index) {
  const std::string whose = "lose_index = " + std::to_string(index);
  const int late = operations_of(run_file(whose, ranks, "thread")) * 79 / 100;
  return "lose_at = " + std::to_string(late) + "\n" + whose;
}

/// The run of one rank with nothing lost.
class DeviceLoss : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    kept() = new Scratch;
    write_file(alone() / "run.toml", run_file("", 1));
    ASSERT_EQ(alone().train().status, 0);
  }
  static void TearDownTestSuite() { delete kept(); }
  static Scratch*& kept() {
    static Scratch* scratch = nullptr;
    return scratch;
  }
  static Scratch& alone() { return *kept(); }
};

TEST_F(DeviceLoss, EndsTheProcessWithAStatusOfItsOwnAndOneLine) {
  const Scratch scratch;
  write_file(scratch / "run.toml", run_file(losing(1, 0), 1));
  const Ended ended = scratch.train();
  EXPECT_EQ(ended.status, kLost);
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("rank 0, step "),
                    HasSubstr("device 0 (emulated on the host, memory guarded) is lost to this process"),
                    HasSubstr("; the newest checkpoint is that of slot ")));
  EXPECT_EQ(scratch.summary("status"), "\"failed\"");
  const Ended resumed = scratch.train({"--resume", "--set", "device.lose_at=-1"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(hashes_of(scratch), hashes_of(alone()));
}

TEST_F(DeviceLoss, IsADeathAfterWhichAllStartAgain) {
  const Scratch scratch;
  write_file(scratch / "run.toml", run_file(losing(1, 0), 1));
  const Ended ended = scratch.run(launched(1, {"--restarts", "1"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("is lost to this process"),
                               HasSubstr("all ranks start again from the newest checkpoint (1 of 1)")));
  EXPECT_EQ(hashes_of(scratch), hashes_of(alone()));
}

TEST_F(DeviceLoss, IsADeathThatOthersOutlive) {
  for (const int rank : {0, 1}) {
    const Scratch whole, scratch;
    write_file(whole / "run.toml", run_file("", 2));
    write_file(scratch / "run.toml", run_file(losing(2, rank), 2));
    const Ended quiet = whole.run(launched(2));
    ASSERT_EQ(quiet.status, 0) << quiet.err;
    const Ended ended = scratch.run(launched(2, {"--restarts", "1"}));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("is lost to this process"),
                                 HasSubstr("rank " + std::to_string(rank) + " is started again, rank " +
                                           std::to_string(1 - rank) + " lives on (1 of 1)")));
    EXPECT_EQ(hashes_of(scratch), hashes_of(whole)) << "rank " << rank;
  }
}

TEST_F(DeviceLoss, IsOutlivedSoOftenAndNoMore) {
  const Scratch scratch;
  write_file(scratch / "run.toml", run_file("lose_at = 40\nlose_index = 1", 2));
  const Ended ended = scratch.run(launched(2, {"--restarts", "1"}));
  EXPECT_EQ(ended.status, kLost);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("1 restart(s) were allowed and used"),
                               HasSubstr("is lost to this process"), Not(HasSubstr("(2 of"))));
}

TEST(MixedDevices, AreNotedByTheFirstRank) {
  for (const bool mixed : {false, true}) {
    const Scratch scratch;
    write_file(scratch / "run.toml",
               run_file(mixed ? "models = [\"H100\", \"H200\"]" : "models = [\"H100\"]", 2));
    const Ended ended = scratch.run({"launch", "-n", "2", "--", "train", "run.toml"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    for (const std::string& said : {ended.err, read_file(scratch / "runs/tiny/1/log.rank0.txt")}) {
      if (mixed) {
        EXPECT_THAT(said,
                    AllOf(HasSubstr("the ranks have different devices: rank 0 has cuda_emulated (emulated "
                                    "on the host as H100, "),
                          HasSubstr("rank 1 has cuda_emulated (emulated on the host as H200, ")));
      } else {
        EXPECT_THAT(said, Not(HasSubstr("different devices")));
      }
    }
  }
}

TEST_F(DeviceLoss, NoMemoryNamesTheTensorAndKeepsTheCheckpoint) {
  const Scratch scratch;
  write_file(scratch / "run.toml", run_file("", 1));
  ASSERT_EQ(scratch.train({"--set", "run.steps=6"}).status, 0);
  // The operators themselves use 4 MiB of this.
  const Ended ended = scratch.train({"--resume", "--set", "device.memory_mib=5", "--set", "model.width=512"});
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("device cuda_emulated: out of memory: "), HasSubstr("of 5.0 MiB are free"),
                    HasSubstr("use a smaller data.batch, with more run.accumulate"),
                    HasSubstr("the largest is transformer.h.0.mlp.c_fc")));
  const Ended resumed = scratch.train({"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(hashes_of(scratch), hashes_of(alone()));
}

}  // namespace
}  // namespace tenon::integration::device_loss_test
