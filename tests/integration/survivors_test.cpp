// Real deaths of rank processes under `tenon launch --restarts`: the others keep their state, replacements of
// the dead get what they need, and the run continues from the slot that was interrupted. P and F numbers are
// those of the specification of recovery.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <set>
#include <sstream>
#include <thread>

namespace tenon::integration::survivors_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// A small GPT of three replicas.
std::string replicas(const std::string& recovery, int steps = 40, int deadline = 20) {
  std::string toml = replaced(
      Scratch::kRun, "steps = 6",
      "steps = " + std::to_string(steps) + "\neval_every = 10\ndeadline = " + std::to_string(deadline));
  toml = replaced(toml, "log_every = 1", "log_every = 10");
  toml = replaced(toml, "type = \"full\"\nevery = 2\nasync = false", recovery);
  return toml + "\n[parallel]\nranks = 3\n\n[transport]\ntype = \"socket\"\n\n[sync]\ntype = \"ddp\"\n";
}
const std::string kReplica = "type = \"replica\"\nevery = 8";

std::string fault(int rank, int step, const std::string& phase, const std::string& kind = "crash") {
  return "\n[[fault]]\nrank = " + std::to_string(rank) + "\nstep = " + std::to_string(step) + "\nkind = \"" +
         kind + "\"\nphase = \"" + phase + "\"\n";
}

Words launched(int ranks, Words options = {}) {
  Words words{"launch", "-n", std::to_string(ranks)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "train", "run.toml", "--quiet"});
  return words;
}

/// Lines of recovery.jsonl with this event.
std::vector<Json> events(const Scratch& scratch, const std::string& event) {
  std::vector<Json> found;
  std::istringstream lines(read_file(scratch / "runs/tiny/latest/recovery.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line);
    if (parsed["event"] == event) found.push_back(parsed);
  }
  return found;
}

std::string log_of(const Scratch& scratch, int rank) {
  return read_file(scratch / ("runs/tiny/latest/log.rank" + std::to_string(rank) + ".txt"));
}

/// The text after `text` in each line that has it.
std::vector<std::string> behind(const std::string& log, const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find(text);
    if (at != std::string::npos) found.push_back(line.substr(at + text.size()));
  }
  return found;
}

/// Hashes of an undisturbed run.
std::pair<std::string, std::string> undisturbed(const std::string& toml, int ranks = 3) {
  const Scratch scratch;
  write_file(scratch / "run.toml", toml);
  const Ended ended = scratch.run(launched(ranks));
  EXPECT_EQ(ended.status, 0) << ended.err;
  return hashes_of(scratch);
}

class Survivors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { whole() = undisturbed(replicas(kReplica)); }
  static std::pair<std::string, std::string>& whole() {
    static std::pair<std::string, std::string> hashes;
    return hashes;
  }
};

TEST_F(Survivors, P2_P20_F1_F2_ADeadReplicaIsReplacedWithoutLossWhereverItDies) {
  for (const char* phase : {"slot", "forward", "backward", "collective", "update"}) {
    for (const int rank : {0, 1}) {
      const Scratch scratch;
      write_file(scratch / "run.toml", replicas(kReplica) + fault(rank, 13, phase));
      const Ended ended = scratch.run(launched(3, {"--restarts", "1"}));
      ASSERT_EQ(ended.status, 0) << phase << "\n" << ended.err;
      EXPECT_EQ(hashes_of(scratch), whole()) << phase << " of rank " << rank;
      EXPECT_EQ(scratch.summary("samples"), "240") << "every sample once";
      EXPECT_THAT(ended.err, HasSubstr("live on (1 of 1)"));
      const auto failures = events(scratch, "failure");
      ASSERT_EQ(failures.size(), 1u);
      EXPECT_EQ(failures[0]["dead"], Json::array({rank}));
      EXPECT_EQ(failures[0]["action"], "continue_partial");
      EXPECT_EQ(failures[0]["lost_samples"], 0);
    }
  }
}

TEST_F(Survivors, F1_ADeathInAnyPhaseOfASaveLeavesTheBits) {
  for (const char* phase : {"copy:2", "write:2", "sync:2", "manifest:2", "verify:2", "rename:2", "gc:3"}) {
    const Scratch scratch;
    // In the background a save is skipped while an earlier one is being written: two are certain, three are
    // not.
    const bool third = std::string_view(phase) == "gc:3";
    write_file(scratch / "run.toml", replicas(kReplica + (third ? "\nasync = false" : "")));
    const Ended ended =
        scratch.run(launched(3, {"--restarts", "1"}), {{"TENON_KILL_AT", std::string(phase) + "@0"}});
    ASSERT_EQ(ended.status, 0) << phase << "\n" << ended.err;
    EXPECT_EQ(hashes_of(scratch), whole()) << phase;
    EXPECT_EQ(events(scratch, "failure").size(), 1u) << phase;
  }
}

TEST_F(Survivors, F1_AnEvaluationThatADeathInterruptedIsMadeAgain) {
  const Scratch scratch;
  write_file(scratch / "run.toml", replicas(kReplica));
  const Ended ended = scratch.run(launched(3, {"--restarts", "1"}), {{"TENON_KILL_AT", "evaluate:2@1"}});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(hashes_of(scratch), whole());
  std::set<int> evaluated;
  std::istringstream lines(read_file(scratch / "runs/tiny/latest/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line);
    if (parsed["split"] == "val") evaluated.insert(parsed["step"].get<int>());
  }
  EXPECT_THAT(evaluated, ::testing::ElementsAre(10, 20, 30, 40));
}

TEST_F(Survivors, P23_F1_ASecondDeathDuringRecoveryIsOutlivedToo) {
  for (const char* phase : {"hold:1@2", "rejoin:1@2", "rejoin:1@0"}) {
    const Scratch scratch;
    write_file(scratch / "run.toml", replicas(kReplica) + fault(1, 13, "backward"));
    const Ended ended = scratch.run(launched(3, {"--restarts", "2"}), {{"TENON_KILL_AT", phase}});
    ASSERT_EQ(ended.status, 0) << phase << "\n" << ended.err;
    EXPECT_EQ(hashes_of(scratch), whole()) << phase;
  }
}

TEST_F(Survivors, F3_OneRankIsEnough) {
  const Scratch scratch;
  write_file(scratch / "run.toml", replicas(kReplica) + fault(0, 13, "slot") + fault(2, 13, "slot"));
  const Ended ended = scratch.run(launched(3, {"--restarts", "2"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(hashes_of(scratch), whole());
}

TEST_F(Survivors, F3_WhenAllDieTheCheckpointIsTheNextToBeAsked) {
  const std::string toml = replicas(kReplica, 400);
  const auto expected = undisturbed(toml);
  const Scratch scratch;
  write_file(scratch / "run.toml", toml);
  Child launch({launched(3, {"--restarts", "1"}), scratch.folder(), {}});
  await_checkpoint(scratch);
  const pid_t all[] = {process_of(0, scratch), process_of(1, scratch), process_of(2, scratch)};
  for (const pid_t rank : all) ASSERT_GT(rank, 0);
  for (const pid_t rank : all) ::kill(rank, SIGKILL);
  const Ended ended = launch.wait(60);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("all ranks start again from the newest checkpoint (1 of 1)"));
  EXPECT_EQ(hashes_of(scratch), expected);
}

TEST_F(Survivors, P2_FullRecoveryTakesAllBackToTheCheckpointWithoutStartingThemAgain) {
  const std::string full = "type = \"full\"\nevery = 8";
  const auto expected = undisturbed(replicas(full));
  const Scratch scratch;
  write_file(scratch / "run.toml", replicas(full) + fault(1, 13, "backward"));
  const Ended ended = scratch.run(launched(3, {"--restarts", "1"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(hashes_of(scratch), expected);
  const auto failures = events(scratch, "failure");
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0]["action"], "roll_back");
  EXPECT_EQ(failures[0]["slot"], 13);
  EXPECT_EQ(failures[0]["from_slot"], 8);
  EXPECT_EQ(failures[0]["repeated_slots"], 5);
}

TEST_F(Survivors, P21_F7_F10_P22_AStoppedRankIsReplacedAndCannotComeBack) {
  const std::string toml = replicas(kReplica, 400, 4);
  const auto expected = undisturbed(toml);
  const Scratch scratch;
  write_file(scratch / "run.toml", toml);
  Child launch({launched(3, {"--restarts", "3", "--kill-after", "2"}), scratch.folder(), {}});
  await_checkpoint(scratch);
  const pid_t zombie = process_of(1, scratch);
  ASSERT_GT(zombie, 0);
  ::kill(zombie, SIGSTOP);
  // Before the deadline of the others has passed it would be a slow rank; after it, it may not continue.
  const auto replaced_by = [&] {
    const pid_t now = process_of(1, scratch);
    return now > 0 && now != zombie;
  };
  const auto began = std::chrono::steady_clock::now();
  while (!replaced_by() && std::chrono::steady_clock::now() - began < std::chrono::seconds(30))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(25)) << "deadline 4 s, then 2 s";
  ::kill(zombie, SIGCONT);
  const Ended ended = launch.wait(60);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(hashes_of(scratch), expected);
  EXPECT_GE(events(scratch, "failure").size(), 1u) << "a busy machine may be late, too";
}

TEST_F(Survivors, F13_DeathsAreOutlivedSoOftenAndNoMore) {
  const Scratch scratch;
  write_file(scratch / "run.toml",
             replicas(kReplica) + fault(1, 3, "slot") + fault(1, 5, "slot") + fault(1, 7, "slot"));
  const Ended ended = scratch.run(launched(3, {"--restarts", "2"}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("(1 of 2)"), HasSubstr("(2 of 2)"),
                               HasSubstr("2 restart(s) were allowed and used"),
                               HasSubstr("rank 1: its process was killed by signal 9 (Killed), in slot 7")));
  EXPECT_EQ(scratch.summary("status"), "\"failed\"");
}

TEST_F(Survivors, StateThatDiffersBetweenReplicasGoesBackToACheckpoint) {
  std::string toml = replaced(replicas(kReplica), "type = \"ddp\"", "type = \"diloco\"\ninterval = 4");
  const auto expected = undisturbed(toml);
  const Scratch scratch;
  write_file(scratch / "run.toml", toml + fault(1, 13, "backward"));
  const Ended ended = scratch.run(launched(3, {"--restarts", "1"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(hashes_of(scratch), expected);
  EXPECT_THAT(log_of(scratch, 0), HasSubstr("all ranks go back to a checkpoint: its replicas differ"));
}

/// Running means and variances change in every forward pass; replicas may each have their own.
TEST_F(Survivors, P2_P3_BuffersThatTheInterruptedSlotHadChangedAreSetBack) {
  for (const char* buffers : {"average", "local"}) {
    const std::string toml =
        std::string("extends = [\"") + TENON_SOURCE_DIR +
        "/configs/base/resnet18.toml\"]\n"
        "run = {name = \"tiny\", steps = 12, eval_every = 6, eval_batches = 1, deadline = 20}\n"
        "device.threads = 1\ndata.batch = 4\nmodel.width = 4\nparallel.ranks = 3\n"
        "transport.type = \"socket\"\nrecovery = {type = \"replica\", every = 4}\n"
        "sync = {type = \"ddp\", buffers = \"" +
        buffers + "\"}\n";
    const auto expected = undisturbed(toml);
    const Scratch scratch;
    write_file(scratch / "run.toml", toml + fault(1, 7, "collective"));
    const Ended ended = scratch.run(launched(3, {"--restarts", "1"}));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(hashes_of(scratch), expected) << buffers;
    const auto kept = behind(log_of(scratch, 2), "keeps its state at slot ");
    EXPECT_EQ(kept.size(), 1u);
    EXPECT_EQ(behind(log_of(scratch, 2), "continues from slot "), kept) << buffers;
  }
}

/// Works for any strategy, since each rank gets its own state back.
TEST_F(Survivors, CopiesInTheMemoryOfPeersBringAllBackWithoutADisk) {
  for (const char* sync : {"type = \"ddp\"", "type = \"diloco\"\ninterval = 4",
                           "type = \"palsgd\"\ninterval = 4\nwarmup = 4\np = 0.25\neta = 0.5"}) {
    const std::string toml =
        replaced(replicas("type = \"peer_memory\"\ncopy_every = 5\nevery = 12"), "type = \"ddp\"", sync);
    const auto expected = undisturbed(toml);
    const Scratch scratch;
    // A checkpoint of slot 12 is newer than the copies of slot 10. Replicas that update alone may be ahead.
    write_file(scratch / "run.toml", toml + fault(1, 14, "slot") + fault(0, 33, "slot"));
    const Ended ended = scratch.run(launched(3, {"--restarts", "2"}));
    ASSERT_EQ(ended.status, 0) << sync << "\n" << ended.err;
    EXPECT_EQ(hashes_of(scratch), expected) << sync;
    const auto failures = events(scratch, "failure");
    ASSERT_EQ(failures.size(), 2u) << sync;
    EXPECT_EQ(failures[0]["action"], "roll_back");
    EXPECT_GE(failures[0]["slot"], 14);
    EXPECT_LE(failures[0]["slot"], 15);
    EXPECT_EQ(failures[0]["from_slot"], 10);
    EXPECT_EQ(failures[0]["repeated_slots"], failures[0]["slot"].get<int>() - 10);
    EXPECT_EQ(failures[0]["bytes_read"], 0);
    EXPECT_EQ(failures[1]["from_slot"], 30);
  }
}

TEST_F(Survivors, F3_WhereACopyIsLostWithItsOwnerACheckpointServes) {
  const std::string toml = replicas("type = \"peer_memory\"\ncopies = 2\ncopy_every = 5\nevery = 12");
  const auto expected = undisturbed(toml);
  // Three ranks of two copies are a ring: rank 1's are at 1 and 2.
  const Scratch scratch;
  write_file(scratch / "run.toml", toml + fault(1, 14, "slot") + fault(2, 14, "slot"));
  const Ended ended = scratch.run(launched(3, {"--restarts", "1"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(hashes_of(scratch), expected);
}

/// Four owners of rows that no other rank has; rows are restored alone, to those of slot 0: nothing is saved
/// after it.
std::string owners() {
  std::string toml = replaced(clicks_run(), "steps = 24", "steps = 60\ndeadline = 20");
  toml = replaced(toml, "type = \"dlrm\"", "type = \"dlrm\"\nplacement = \"rows\"");
  toml = replaced(toml, "type = \"thread\"", "type = \"socket\"");
  toml =
      replaced(toml, "type = \"full\"\nevery = 6\nasync = false",
               "type = \"cpr\"\ntracker = \"mfu\"\ntarget_pls = 0.1\nmtbf_seconds = 1000.0\nsave_seconds = "
               "0.001\nasync = false");
  return toml + "\n[parallel]\nranks = 4\n";
}

TEST_F(Survivors, P3_P23_RowsAndWeightsOfWhoLivesAreThoseBeforeTheDeath) {
  for (const char* phase : {"collective", "update"}) {
    const Scratch scratch;
    write_file(scratch / "run.toml", owners() + fault(2, 37, phase) + fault(1, 45, phase));
    const Ended ended = scratch.run(launched(4, {"--restarts", "2"}));
    ASSERT_EQ(ended.status, 0) << phase << "\n" << ended.err;
    const auto failures = events(scratch, "failure");
    ASSERT_EQ(failures.size(), 2u) << phase;
    EXPECT_EQ(failures[0]["dead"], Json::array({2}));
    EXPECT_EQ(failures[1]["dead"], Json::array({1}));
    for (const Json& failure : failures) {
      EXPECT_EQ(failure["action"], "continue_partial") << phase;
      EXPECT_GT(failure["rows"], 0);
      EXPECT_GT(failure["account"]["pls"], 0);
    }
    for (const int rank : {0, 3}) {
      const auto kept = behind(log_of(scratch, rank), "keeps its state at slot ");
      EXPECT_EQ(kept.size(), 2u);
      EXPECT_EQ(behind(log_of(scratch, rank), "continues from slot "), kept) << phase << ", rank " << rank;
    }
    EXPECT_EQ(behind(log_of(scratch, 1), "keeps its state at slot ").size(), 1u);
    EXPECT_EQ(scratch.summary("samples"), "30720") << "no sample is dropped, none comes twice";
    EXPECT_LT(std::stod(scratch.summary("val/loss")), 0.55) << "the entropy of the base rate";
  }
}

}  // namespace
}  // namespace tenon::integration::survivors_test
