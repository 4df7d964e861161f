// Recovery `multilevel` in whole runs: each level by its own cadence, each next level where one is lost,
// damaged, full or of another run, and the bits of an undisturbed run in all of these cases.
#include "run_program.hpp"

#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <sstream>

namespace tenon::integration::multilevel_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// Nine slots: the local folder has 2, 4, 6 and 8, the run's folder 5 and 9.
std::string levels(const std::string& recovery = "every = 5\nlocal_every = 2\nlocal_folder = \"local\"",
                   int steps = 9) {
  return replaced(replaced(Scratch::kRun, "steps = 6", "steps = " + std::to_string(steps)),
                  "type = \"full\"\nevery = 2", "type = \"multilevel\"\n" + recovery);
}

std::vector<Json> events(const Scratch& scratch, const std::string& event,
                         const std::string& attempt = "latest") {
  std::vector<Json> found;
  std::istringstream lines(read_file(scratch / ("runs/tiny/" + attempt + "/recovery.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line);
    if (parsed["event"] == event) found.push_back(parsed);
  }
  return found;
}

/// Slots of committed saves in a place; "" is the run's folder.
std::vector<int> saved(const Scratch& scratch, const std::string& place) {
  std::vector<int> slots;
  for (const Json& save : events(scratch, "save")) {
    if (save["status"] == "committed" && save.value("place", "") == place) slots.push_back(save["slot"]);
  }
  return slots;
}

/// The folder of the only run below a local folder.
fs::path local_of(const fs::path& folder) {
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(folder)) runs.push_back(entry.path());
  EXPECT_EQ(runs.size(), 1u);
  return runs.empty() ? fs::path() : runs[0];
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) found.push_back(entry.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void flip(const fs::path& file, std::size_t bit) {
  std::string bytes = read_file(file);
  bytes.at(bit / 8) ^= static_cast<char>(1 << bit % 8);
  write_file(file, bytes);
}

/// Hashes of a run that nothing disturbs.
class MultiLevel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Scratch scratch;
    write_file(scratch / "run.toml", levels());
    const Ended ended = scratch.train();
    ASSERT_EQ(ended.status, 0) << ended.err;
    whole() = hashes_of(scratch);
  }
  static std::pair<std::string, std::string>& whole() {
    static std::pair<std::string, std::string> hashes;
    return hashes;
  }

  MultiLevel() { write_file(scratch_ / "run.toml", levels()); }
  /// Killed in slot 9: the newest checkpoints are 8 and 6 in the local folder and 5 in the run's.
  void kill_in_the_last_slot(const Scratch& scratch) {
    EXPECT_EQ(scratch.train({}, {{"TENON_KILL_AT", "compute:9"}}).signal, SIGKILL);
  }
  void kill_in_the_last_slot() { kill_in_the_last_slot(scratch_); }
  /// Resumes, and compares with the undisturbed run.
  void expect_resumed_from(int slot) {
    const Ended ended = scratch_.train({"--resume"});
    EXPECT_EQ(ended.status, 0) << ended.err;
    const std::vector<Json> resumes = events(scratch_, "resume");
    EXPECT_EQ(resumes.empty() ? -1 : resumes.back()["slot"].get<int>(), slot);
    EXPECT_EQ(hashes_of(scratch_), whole());
  }
  fs::path local() const { return local_of(scratch_ / "local"); }
  fs::path shared() const { return scratch_ / "runs/tiny/1/checkpoints"; }

  Scratch scratch_;
};

TEST_F(MultiLevel, EachLevelIsSavedByItsCadenceAndKeepsAsManyAsItWasTold) {
  write_file(scratch_ / "run.toml",
             levels("every = 5\nlocal_every = 2\nlocal_folder = \"local\"\nlocal_keep = 3"));
  const Ended ended = scratch_.train();
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(saved(scratch_, "local"), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(saved(scratch_, ""), ElementsAre(5, 9));
  EXPECT_THAT(names(local()), ElementsAre("step-4", "step-6", "step-8"));
  EXPECT_THAT(names(shared()), ElementsAre("step-5", "step-9"));
  EXPECT_THAT(read_file(local() / "RUN"), HasSubstr("runs/tiny/1/checkpoints"));
  EXPECT_THAT(scratch_.log(), HasSubstr("checkpoint of slot 8 saved in local: "));
  EXPECT_EQ(hashes_of(scratch_), whole());
}

TEST_F(MultiLevel, AsFullItTrainsTheSameWeights) {
  const Scratch full;
  write_file(full / "run.toml", replaced(Scratch::kRun, "steps = 6", "steps = 9"));
  ASSERT_EQ(full.train().status, 0);
  EXPECT_EQ(hashes_of(full).first, whole().first);
}

TEST_F(MultiLevel, AKilledRunGoesOnFromTheNewestLevelToTheSameBits) {
  kill_in_the_last_slot();
  expect_resumed_from(8);
  EXPECT_THAT(scratch_.log(), HasSubstr("continues from the checkpoint of slot 8 in " + local().string()));
}

TEST_F(MultiLevel, KilledInAnyPhaseOfASaveOfEitherLevelItGoesOnToTheSameBits) {
  for (const char* phase : {"copy", "write", "sync", "manifest", "verify", "rename", "gc"}) {
    for (const int save : {2, 3, 4}) {  // of slots 4, 5 and 6: local, shared, local
      const Scratch scratch;
      write_file(scratch / "run.toml", levels());
      const Ended ended = scratch.train({}, {{"TENON_KILL_AT", phase + (":" + std::to_string(save))}});
      ASSERT_EQ(ended.signal, SIGKILL) << phase;
      ASSERT_EQ(scratch.train({"--resume"}).status, 0);
      EXPECT_EQ(hashes_of(scratch), whole()) << phase << " " << save;
      const int before = save == 2 ? 2 : save == 3 ? 4 : 5, done = before + (save == 2 ? 2 : 1);
      EXPECT_EQ(events(scratch, "resume").at(0)["slot"], std::string_view(phase) == "gc" ? done : before);
    }
  }
}

TEST_F(MultiLevel, TheSharedFolderServesWhereTheLocalOneIsLost) {
  kill_in_the_last_slot();
  fs::remove_all(scratch_ / "local");
  expect_resumed_from(5);
}

TEST_F(MultiLevel, TheNextLevelServesWhereOneIsDamagedAndSaysSo) {
  kill_in_the_last_slot();
  flip(local() / "step-8/rank0.safetensors", 8 * 3000);
  expect_resumed_from(6);
  EXPECT_THAT(scratch_.log(), HasSubstr("checkpoint of slot 8 is damaged and was put aside as " +
                                        (local() / "step-8.bad").string()));

  // The resumed run ended; its last generations go, and so does what it saved on the way.
  fs::remove_all(shared() / "step-9");
  flip(local() / "step-8/MANIFEST.json", 300);
  flip(local() / "step-6/rank0.safetensors", 9);
  expect_resumed_from(5);
  EXPECT_THAT(scratch_.log(), HasSubstr("checkpoint of slot 6 is damaged and was put aside as " +
                                        (local() / "step-6.bad").string()));
}

TEST_F(MultiLevel, TheLocalFolderServesWhereTheSharedOneIsDamaged) {
  EXPECT_EQ(scratch_.train({}, {{"TENON_KILL_AT", "compute:6"}}).signal, SIGKILL);
  flip(shared() / "step-5/rank0.safetensors", 8 * 3000);
  expect_resumed_from(4);
}

TEST_F(MultiLevel, WithoutAnySoundLevelItBeginsAgain) {
  EXPECT_EQ(scratch_.train({}, {{"TENON_KILL_AT", "compute:5"}}).signal, SIGKILL);
  for (const char* step : {"step-2", "step-4"}) flip(local() / step / "rank0.safetensors", 100);
  expect_resumed_from(0);
  EXPECT_THAT(scratch_.log(), HasSubstr("no usable checkpoint: the attempt starts again from slot 0"));
}

TEST_F(MultiLevel, AStoppedRunIsKeptInTheSharedFolder) {
  write_file(scratch_ / "run.toml", levels("every = 500\nlocal_every = 2\nlocal_folder = \"local\"", 400));
  Child child({{"train", "run.toml", "--quiet"}, scratch_.folder()});
  while (!fs::exists(scratch_ / "runs/tiny/1/recovery.jsonl") ||
         read_file(scratch_ / "runs/tiny/1/recovery.jsonl").find("local") == std::string::npos)
    ::usleep(2000);
  child.send(SIGTERM);
  const Ended ended = child.wait();
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(saved(scratch_, "").size(), 1u);
  EXPECT_EQ(names(shared()).size(), 1u);
}

TEST_F(MultiLevel, RunsWithOneLocalFolderAreToldApart) {
  const Scratch other;
  const std::string folder = (scratch_ / "local").string();
  write_file(other / "run.toml",
             replaced(levels("every = 5\nlocal_every = 2\nlocal_folder = \"" + folder + "\""), "lr = 1e-2",
                      "lr = 1e-3"));
  kill_in_the_last_slot(scratch_);
  const std::string mine = local().filename().string();
  kill_in_the_last_slot(other);
  ASSERT_EQ(names(folder).size(), 2u);
  std::string theirs = names(folder)[0];
  if (theirs == mine) theirs = names(folder)[1];

  // A generation of the other run in the place of the newest is refused by name.
  fs::remove_all(fs::path(folder) / mine / "step-8");
  fs::rename(fs::path(folder) / theirs / "step-8", fs::path(folder) / mine / "step-8");
  const Ended ended = scratch_.train({"--resume"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(scratch_.log(), HasSubstr("it is of another run: owner " + theirs + ", expected " + mine));
  EXPECT_EQ(events(scratch_, "resume").back()["slot"], 6);
  EXPECT_EQ(hashes_of(scratch_), whole());

  // A copy of the run folder is another run.
  fs::copy(scratch_ / "runs/tiny", scratch_ / "runs/copy",
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  fs::remove_all(scratch_ / "runs/copy/1/checkpoints/step-9");
  const Ended copied = scratch_.train({"--resume", "--run-dir", "runs/copy"});
  EXPECT_EQ(copied.status, 0) << copied.err;
  EXPECT_THAT(read_file(scratch_ / "runs/copy/1/recovery.jsonl"),
              ::testing::ContainsRegex("\"event\": ?\"resume\", ?\"slot\": ?5,"));
}

TEST_F(MultiLevel, ALocalFolderThatCannotBeWrittenIsRefusedBeforeTheRunAppears) {
  for (const std::string folder : {"text.txt/local", "/proc/tenon"}) {
    const Ended ended = scratch_.train({"--set", "recovery.local_folder='" + folder + "'"});
    EXPECT_EQ(ended.status, 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("checkpoints of place 'local' cannot be kept in "));
    EXPECT_THAT(ended.err, HasSubstr(folder));
    EXPECT_THAT(ended.err, HasSubstr("Nothing was trained; make the folder writable, or choose another"));
    EXPECT_FALSE(fs::exists(scratch_ / "runs"));
  }
}

TEST_F(MultiLevel, WhatCannotBeMeantIsRefused) {
  const Ended often = scratch_.train({"--set", "recovery.local_every=5"});
  EXPECT_EQ(often.status, 2);
  EXPECT_THAT(often.err, HasSubstr("local_every = 5 and every = 5; the local folder is the cheaper level"));
  const Ended chooses = scratch_.train({"--set", "recovery.memory={type='checknrun', every=2}"});
  EXPECT_EQ(chooses.status, 2);
  EXPECT_THAT(chooses.err, HasSubstr("its memory policy decides about saves of its own"));
  EXPECT_FALSE(fs::exists(scratch_ / "runs"));
}

#ifdef TENON_FAILING_DISK
TEST_F(MultiLevel, AFullLocalDiskCostsThatLevelAlone) {
  // Saves of slots 4 and 6 fail: both are local.
  for (const char* call : {"write", "sync", "rename_manifest", "rename_generation"}) {
    const Scratch scratch;
    write_file(scratch / "run.toml", levels());
    const std::map<std::string, std::string> disk = {{"LD_PRELOAD", TENON_FAILING_DISK},
                                                     {"FAILING_DISK", call},
                                                     {"FAILING_DISK_ERROR", std::to_string(ENOSPC)}};
    // No later save to the run's folder makes up for it.
    const Ended ended = scratch.train({"--set", "recovery.save_at_end=false"}, disk);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(scratch.log(), HasSubstr("checkpoint of slot 6 could not be saved in local: "));
    EXPECT_THAT(scratch.log(), HasSubstr("No space left on device"));
    EXPECT_THAT(saved(scratch, "local"), ElementsAre(2, 8));
    EXPECT_THAT(saved(scratch, ""), ElementsAre(5));
    EXPECT_EQ(hashes_of(scratch), whole());
  }
}
#endif

// Levels inside a run whose ranks die.

std::string team(const std::string& faults) {
  std::string toml = levels(
      "every = 100\nlocal_every = 12\nlocal_folder = \"local\"\nmemory = {type = \"peer_memory\", "
      "copies = 2, copy_every = 5}",
      24);
  toml = replaced(toml, "log_every = 1", "log_every = 10\ndeadline = 20");
  return toml + "\n[parallel]\nranks = 3\n\n[transport]\ntype = \"socket\"\n\n[sync]\ntype = \"ddp\"\n" +
         faults;
}

std::string death(int rank, int step) {
  return "\n[[fault]]\nrank = " + std::to_string(rank) + "\nstep = " + std::to_string(step) +
         "\nkind = \"crash\"\nphase = \"slot\"\n";
}

Ended launch(const Scratch& scratch, const std::string& toml) {
  write_file(scratch / "run.toml", toml);
  return scratch.run({"launch", "-n", "3", "--restarts", "1", "--", "train", "run.toml", "--quiet"});
}

TEST(MultiLevelRanks, AfterDeathsTheNewestOfMemoryAndDiskServesToTheSameBits) {
  const Scratch undisturbed;
  const Ended all_live = launch(undisturbed, team(""));
  ASSERT_EQ(all_live.status, 0) << all_live.err;
  struct Case {
    const char* what;
    std::string faults;
    int from;
  };
  for (const Case& each :
       {Case{"copies of slot 15 are newer than the checkpoint of slot 12", death(1, 17), 15},
        Case{"the checkpoint of slot 12 is newer than the copies of slot 10", death(1, 14), 12},
        Case{"no copy of rank 1 is left", death(1, 17) + death(2, 17), 12},
        Case{"there is no checkpoint yet", death(0, 8), 5}}) {
    const Scratch scratch;
    const Ended ended = launch(scratch, team(each.faults));
    ASSERT_EQ(ended.status, 0) << each.what << "\n" << ended.err;
    EXPECT_EQ(hashes_of(scratch), hashes_of(undisturbed)) << each.what;
    const std::vector<Json> failures = events(scratch, "failure");
    ASSERT_EQ(failures.size(), 1u) << each.what;
    EXPECT_EQ(failures[0]["action"], "roll_back");
    EXPECT_EQ(failures[0]["from_slot"], each.from) << each.what;
  }
}

// Flipped bits, in this process, since there are many. observe_test flips more of them without a run.

class FlippedBits : public ::testing::Test {
 protected:
  FlippedBits() {
    runtime_.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
    write_file(
        scratch_ / "run.toml",
        levels("every = 5\nlocal_every = 2\nlocal_folder = \"" + (scratch_ / "local").string() + "\"") +
            "\n[parallel]\nranks = 2\n\n[transport]\ntype = \"thread\"\n\n[sync]\ntype = \"ddp\"\n");
  }
  RunResult train(bool resume) {
    TrainRequest request;
    request.run_dir = (scratch_ / "runs").string();
    request.quiet = true;
    request.resume = resume;
    const Words sets = {"data.path='" + (scratch_ / "text.txt").string() + "'"};
    return runtime_.train(Config::load((scratch_ / "run.toml").string(), sets), request);
  }

  Scratch scratch_;
  Runtime runtime_;
};

TEST_F(FlippedBits, OfAnyFileAreAnsweredByTheNextLevelAndNoRunHasOtherWeights) {
  const char* wanted = std::getenv("TENON_MATRIX");
  const int flips = wanted != nullptr && std::string_view(wanted) == "all" ? 10000 : 40;
  const RunResult whole = train(false);
  ASSERT_EQ(whole.error, "");
  // As after a kill in slot 9.
  fs::remove_all(fs::path(whole.folder) / "checkpoints/step-9");
  fs::remove(fs::path(whole.folder) / "summary.json");
  const fs::path kept = scratch_ / "kept";
  fs::create_directories(kept);
  const auto copy = [](const fs::path& from, const fs::path& to) {
    fs::remove_all(to);
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  };
  copy(scratch_ / "local", kept / "local");
  copy(whole.folder, kept / "run");

  const std::string local = local_of(scratch_ / "local").string();
  struct Level {
    std::string folder;
    int slot;
  };
  const Level order[] = {
      {local + "/step-8", 8}, {local + "/step-6", 6}, {whole.folder + "/checkpoints/step-5", 5}};
  std::mt19937_64 random(39);
  std::map<int, int> served;
  for (int i = 0; i < flips; ++i) {
    copy(kept / "local", scratch_ / "local");
    copy(kept / "run", whole.folder);
    // The newest levels are damaged, one bit of one file each; or the number of the run, which hides the
    // local level.
    const std::size_t damaged = random() % 8 == 0 ? 3 : random() % 3;
    int expected = 0;
    if (damaged == 0) {
      flip(whole.folder + "/run_id", random() % (8 * 33));
      expected = 5;
    }
    for (std::size_t level = 0; level < damaged; ++level) {
      std::vector<fs::path> files;
      for (const auto& entry : fs::directory_iterator(order[level].folder)) files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      ASSERT_GE(files.size(), 2u) << "a manifest, and a file of each rank that has something to write";
      const fs::path& file = files[random() % files.size()];
      flip(file, random() % (8 * fs::file_size(file)));
    }
    if (damaged > 0 && damaged < 3) expected = order[damaged].slot;
    const RunResult resumed = train(true);
    ASSERT_EQ(resumed.error, "") << i;
    ASSERT_EQ(resumed.weights_hash, whole.weights_hash) << "other weights: flip " << i;
    ASSERT_EQ(resumed.state_hash, whole.state_hash) << i;
    std::istringstream lines(read_file(whole.folder + "/recovery.jsonl"));
    int slot = -1;
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event["event"] == "resume") slot = event["slot"];
    }
    ASSERT_EQ(slot, expected) << "flip " << i << ", " << damaged << " levels damaged";
    ++served[slot];
  }
  for (const int slot : {6, 5, 0}) EXPECT_GT(served[slot], 0) << slot;
  EXPECT_EQ(served.count(8), 0u) << "a damaged level was read";
}

}  // namespace
}  // namespace tenon::integration::multilevel_test
