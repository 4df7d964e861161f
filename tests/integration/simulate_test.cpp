// tenon simulate as a user starts it: equal bytes for any number of processes and after any failure, and
// messages for errors.
#include "run_program.hpp"

#include <dirent.h>
#include <chrono>
#include <sstream>
#include <thread>

namespace tenon::integration::simulate_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Simulate : public ::testing::Test {
 protected:
  void SetUp() override { write_config("wait_ms = 0\n", 12); }

  void write_config(const std::string& simulator, int samples) {
    write_file(scratch_ / "sim.toml",
               "[simulate]\nsamples = " + std::to_string(samples) +
                   "\nworkers = 2\ntask_timeout_s = 20\n\n[simulator]\ntype = \"rehearsal\"\n" + simulator);
  }
  static std::vector<std::string> words(const std::string& folder, const std::vector<std::string>& sets) {
    std::vector<std::string> all{"simulate", "sim.toml", "--quiet",
                                 "--json",   "--set",    "simulate.folder=" + folder};
    for (const std::string& set : sets) all.insert(all.end(), {"--set", set});
    return all;
  }
  Command command(const std::string& folder, const std::vector<std::string>& sets = {}) const {
    return {words(folder, sets), scratch_.folder(), {{"TENON_PLUGIN_PATH", TENON_SIMULATORS}}};
  }
  Ended simulate(const std::string& folder, const std::vector<std::string>& sets = {}) const {
    return Child(command(folder, sets)).wait();
  }
  /// The bytes of an undisturbed simulation by one worker.
  std::map<std::string, std::string> undisturbed(const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> alone = sets;
    alone.push_back("simulate.workers=1");
    EXPECT_EQ(simulate("alone", alone).status, 0);
    return tree(scratch_ / "alone");
  }
  std::int64_t finished(const std::string& folder) const {
    std::int64_t count = 0;
    if (!fs::exists(scratch_ / (folder + "/samples"))) return 0;
    for (const auto& entry : fs::directory_iterator(scratch_ / (folder + "/samples")))
      count += entry.path().extension() != ".partial" ? 1 : 0;
    return count;
  }
  void wait_for(const std::string& folder, std::int64_t samples) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (finished(folder) < samples) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << finished(folder);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::string manifest(const std::string& folder) const {
    return read_file(scratch_ / (folder + "/manifest.json"));
  }

  Scratch scratch_;
};

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string stat = read_file(entry.path() / "stat");
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream rest(stat.substr(end + 2));
    char state = ' ';
    pid_t its_parent = 0;
    rest >> state >> its_parent;
    if (its_parent == parent) found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

// As mpirun starts them; it ends them all when process 0 fails.
TEST_F(Simulate, P17_ProcessesOfALauncherMakeTheSameBytes) {
  const auto expected = undisturbed();
  const auto start = [&](int rank, const std::vector<std::string>& sets) {
    Command one = command("three", sets);
    one.environment["OMPI_COMM_WORLD_RANK"] = std::to_string(rank);
    one.environment["OMPI_COMM_WORLD_SIZE"] = "3";
    return std::make_unique<Child>(one);
  };
  {
    const std::vector<std::string> sets{"simulate.crash_share=0.3"};
    const auto second = start(2, sets), first = start(1, sets), zero = start(0, sets);
    for (Child* child : {&*zero, &*first, &*second}) {
      const Ended ended = child->wait();
      EXPECT_EQ(ended.status, 0) << ended.err;
    }
  }
  EXPECT_EQ(tree(scratch_ / "three"), expected);
  const auto other = start(1, {"simulate.seed=5"}), zero = start(0, {"simulate.seed=5"});
  const Ended refused = zero->wait();
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("holds another simulation: simulate.seed is 1 there and 5 here"));
}

TEST_F(Simulate, OneFileOfAllSamplesIsTheSameForAnyNumberOfWorkers) {
  const std::string hdf5 = "simulate.format='hdf5'";
  ASSERT_EQ(simulate("one", {hdf5, "simulate.workers=1"}).status, 0);
  ASSERT_EQ(simulate("two", {hdf5, "simulate.workers=2", "simulate.crash_share=0.3"}).status, 0);
  const std::string file = read_file(scratch_ / "one/samples.h5");
  EXPECT_TRUE(file.starts_with("\x89HDF\r\n")) << file.substr(0, 8);
  EXPECT_EQ(read_file(scratch_ / "two/samples.h5"), file);
}

TEST_F(Simulate, P17_BytesDependOnNoNumberOfWorkersAndNoFailure) {
  const struct {
    const char *type, *options;
  } solvers[] = {{"navier_stokes", "grid = 16\ntime = 0.1\nstep = 1e-2\nsnapshots = 2\n"},
                 {"darcy", "grid = 21\nevery = 5\n"},
                 {"buckley_leverett", "cells = 50\nsnapshots = 2\ninitial = 'random'\n"},
                 {"two_phase", "cells = 12\ntime = 0.1\nsnapshots = 2\nmargin = 2\n"}};
  for (const auto& [type, options] : solvers) {
    SCOPED_TRACE(type);
    write_file(
        scratch_ / "sim.toml",
        std::string("[simulate]\nsamples = 7\nseed = 3\n[simulator]\ntype = \"") + type + "\"\n" + options);
    const std::string name = type;
    for (const char* workers : {"1", "2", "4"}) {
      const Ended ended = simulate(name + workers, {std::string("simulate.workers=") + workers});
      ASSERT_EQ(ended.status, 0) << ended.err;
    }
    const Ended disturbed = simulate(name + "x", {"simulate.workers=2", "simulate.crash_share=0.6"});
    ASSERT_EQ(disturbed.status, 0) << disturbed.err;
    EXPECT_THAT(disturbed.out, Not(HasSubstr("\"lost_workers\": 0,")));
    const auto expected = tree(scratch_ / (name + "1"));
    EXPECT_GT(expected.size(), 14u);
    for (const char* other : {"2", "4", "x"})
      EXPECT_EQ(changes(scratch_ / (name + other), expected), std::vector<std::string>()) << other;
  }
}

TEST_F(Simulate, P17_AKilledWorkerLosesItsTaskAlone) {
  write_config("wait_ms = 30\n", 20);
  const auto expected = undisturbed();
  Child child(command("sims"));
  for (const std::int64_t done : {3, 8}) {
    wait_for("sims", done);
    const std::vector<pid_t> workers = children_of(child.pid());
    ASSERT_FALSE(workers.empty());
    ::kill(workers.front(), SIGKILL);
  }
  const Ended ended = child.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\"lost_workers\": 2,"));
  EXPECT_THAT(ended.out, HasSubstr("\"failed\": 0,"));
  EXPECT_EQ(changes(scratch_ / "sims", expected), std::vector<std::string>());
}

TEST_F(Simulate, P17_TasksThatHangOnceAreRepeatedAndGiveTheSameBytes) {
  const auto expected = undisturbed();
  const Ended ended = simulate("sims", {"simulate.hang_share=0.3", "simulate.task_timeout_s=0.2"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, Not(HasSubstr("\"repeated\": 0,")));
  EXPECT_THAT(ended.out, HasSubstr("\"lost_workers\": 0,")) << "a worker that notices its time lives on";
  EXPECT_THAT(ended.out, HasSubstr("\"failed\": 0,"));
  EXPECT_EQ(changes(scratch_ / "sims", expected), std::vector<std::string>());
  // Without a further attempt the task is a hole, with the reason.
  const Ended once =
      simulate("holes", {"simulate.hang_share=0.3", "simulate.task_timeout_s=0.2", "simulate.retries=0"});
  EXPECT_THAT(once.err, HasSubstr("not done within task_timeout_s = 0.2 s"));
}

TEST_F(Simulate, P17_AKilledProgramIsContinued) {
  write_config("wait_ms = 30\n", 20);
  const auto expected = undisturbed();
  {
    Child child(command("sims"));
    wait_for("sims", 6);
    const std::vector<pid_t> workers = children_of(child.pid());
    child.send(SIGKILL);
    child.wait();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (const pid_t worker : workers) {  // they end with it
      while (fs::exists("/proc/" + std::to_string(worker) + "/fd/3")) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
  }
  EXPECT_LT(finished("sims"), 20);
  const Ended ended = simulate("sims");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, Not(HasSubstr("\"taken_up\": 0,")));
  auto left = tree(scratch_ / "sims");
  left.erase(".lock");
  EXPECT_EQ(left, expected);
}

TEST_F(Simulate, OwnErrorsAreHolesAndNotRepeated) {
  write_config("fail_at = 2\nnan_at = 5\n", 8);
  const Ended ended = simulate("sims");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("sample 2 failed: plugin test.rehearsal (simulator.rehearsal): step 3: "
                                   "the CFL number 1.5 exceeds 1"));
  EXPECT_THAT(ended.err, HasSubstr("sample 5 failed: the result has nan in x, element 1"));
  EXPECT_THAT(ended.out, HasSubstr("\"finished\": 6,"));
  EXPECT_THAT(manifest("sims"), HasSubstr("{\"index\": 2, \"kind\": \"error\", \"attempts\": 1,"));
  EXPECT_FALSE(fs::exists(scratch_ / "sims/samples/000002"));
  const Ended again = simulate("sims");
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.out, HasSubstr("\"taken_up\": 6,"));
  EXPECT_THAT(again.out, HasSubstr("\"busy_s\": 0"));
}

TEST_F(Simulate, EverythingFailedIsAFailure) {
  write_config("fail_at = 0\n", 1);
  const Ended ended = simulate("sims");
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("every sample failed"));
}

TEST_F(Simulate, AProcessThatEndsIsRepeatedAndThenAHole) {
  write_config("end_at = 1\n", 4);
  const Ended ended = simulate("sims", {"simulate.retries=1"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("sample 1 failed 2 times: its process ended with exit status 5"));
  EXPECT_THAT(ended.out, HasSubstr("\"finished\": 3,"));
  EXPECT_THAT(manifest("sims"), HasSubstr("\"kind\": \"lost\", \"attempts\": 2,"));
  // The cause is outside the simulation: on request it is tried again.
  EXPECT_THAT(simulate("sims", {"simulate.retries=0"}).err, HasSubstr("sample 1 failed: its process"));
}

TEST_F(Simulate, ATaskThatTakesTooLongIsEnded) {
  for (const bool deaf : {false, true}) {
    write_config(std::string("hang_at = 1\ndeaf = ") + (deaf ? "true" : "false") + "\n", 3);
    const std::string folder = deaf ? "deaf" : "polite";
    const Ended ended = simulate(folder, {"simulate.task_timeout_s=0.3", "simulate.retries=1"});
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("sample 1 failed 2 times: not done within task_timeout_s = 0.3 s"));
    EXPECT_THAT(ended.err, HasSubstr(deaf ? "its process was killed after" : "of 60000"));
    EXPECT_THAT(ended.out, HasSubstr("\"finished\": 2,"));
  }
}

TEST_F(Simulate, TimeOfTheWholeIsLimited) {
  write_config("wait_ms = 50\n", 200);
  const Ended ended = simulate("sims", {"simulate.timeout_s=1"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("timeout_s is over; the same command continues"));
  EXPECT_THAT(ended.out, HasSubstr("\"status\": \"timed out\""));
  EXPECT_GT(finished("sims"), 0);
  EXPECT_LT(finished("sims"), 200);
}

TEST_F(Simulate, CtrlCWaitsForWhatRuns) {
  write_config("wait_ms = 50\n", 200);
  Child child(command("sims"));
  wait_for("sims", 4);
  child.send(SIGINT);
  const Ended ended = child.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\"status\": \"interrupted\""));
  EXPECT_THAT(ended.out, HasSubstr("\"lost_workers\": 0,"));
}

TEST_F(Simulate, TwoProgramsDoNotShareAFolder) {
  write_config("wait_ms = 50\n", 100);
  Child first(command("sims"));
  wait_for("sims", 1);
  const Ended second = simulate("sims");
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err,
              HasSubstr("process " + std::to_string(first.pid()) +
                        " is writing to 'sims'; wait for it, or choose another [simulate] folder"));
}

TEST_F(Simulate, FoldersThatCannotBeWritten) {
  const Ended ended = simulate("text.txt/sims");
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("text.txt"));
  EXPECT_THAT(ended.err, HasSubstr("Not a directory"));
}

TEST_F(Simulate, AFullDiskLosesNothing) {
  // Files may grow to 4 KB: samples of 100 numbers fit, those of 2000 do not.
  write_config("elements = 100\n", 6);
  EXPECT_EQ(simulate("sims").status, 0);
  Command full = command("large", {"simulator.elements=2000"});
  full.largest_file = 4096;
  const Ended ended = Child(full).wait();
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("cannot be written"));
  EXPECT_THAT(ended.err, HasSubstr("File too large"));
  EXPECT_THAT(ended.err, HasSubstr("What was finished is recorded; the same command continues"));
  EXPECT_EQ(finished("large"), 0);
  const Ended later = simulate("large", {"simulator.elements=2000"});
  EXPECT_EQ(later.status, 0) << later.err;
  EXPECT_EQ(finished("large"), 6);
}

TEST_F(Simulate, WhatIsNotTheSameSimulationIsRefused) {
  EXPECT_EQ(simulate("sims").status, 0);
  const auto before = tree(scratch_ / "sims");
  const struct {
    std::string set, words;
  } cases[] = {{"simulator.elements=5", "holds another simulation: simulator.elements is 4 there and 5 here"},
               {"simulate.seed=2", "simulate.seed is 1 there and 2 here"},
               {"simulate.samples=3", "was made for 12 samples, and [simulate] samples is 3"},
               {"simulator.elemnts=5", "did you mean 'elements'?"},
               {"simulate.sample=5", "did you mean 'samples'?"},
               {"simulator.type=rehersal", "did you mean 'rehearsal'?"}};
  for (const auto& [set, said] : cases) {
    const Ended ended = simulate("sims", {set});
    EXPECT_EQ(ended.status, 2) << set;
    EXPECT_THAT(ended.err, HasSubstr(said));
  }
  EXPECT_EQ(changes(scratch_ / "sims", before), std::vector<std::string>());
  write_file(scratch_ / "sims/manifest.json",
             replaced(manifest("sims"), "\"seed\"", "\"chunk\": 4,\n\"seed\""));
  const Ended unknown = simulate("sims");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("manifest has the key 'chunk', which this program does not know"));
}

TEST_F(Simulate, GrowsWhenMoreAreAskedFor) {
  EXPECT_EQ(simulate("sims").status, 0);
  const Ended more = simulate("sims", {"simulate.samples=15"});
  EXPECT_EQ(more.status, 0);
  EXPECT_THAT(more.out, HasSubstr("\"taken_up\": 12,"));
  EXPECT_EQ(finished("sims"), 15);
}

TEST_F(Simulate, TrainingStartsWhileItGrows) {
  write_config("wait_ms = 5\n", 600);
  Child growing(command("sims"));
  wait_for("sims", 40);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // the manifest follows every other second
  write_file(scratch_ / "train.toml", R"([run]
name = "tiny"
steps = 8
[device]
type = "cpu"
threads = 1
[data]
type = "simulated"
path = "sims"
set = "tiny"
batch = 4
[model]
type = "mlp"
hidden = [8]
classes = 2
inputs = "x"
targets = "label"
[optimizer]
type = "sgd"
lr = 0.1
[recovery]
type = "full"
every = 4
)");
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"train", "train.toml", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return scratch_.run(all);
  };
  const Ended through = train({"--run-dir", "through"});
  ASSERT_EQ(through.status, 0) << through.err;
  ASSERT_EQ(train({"--run-dir", "runs/tiny", "--set", "run.steps=4"}).status, 0);
  EXPECT_EQ(growing.wait().status, 0);
  // The folder has grown; the resumed run reads the samples with which it started.
  const Ended resumed = train({"--run-dir", "runs/tiny", "--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const std::string expected = read_file(scratch_ / "through/latest/summary.json");
  EXPECT_THAT(expected, HasSubstr("\"weights_hash\": " + scratch_.summary("weights_hash")));
}

}  // namespace
}  // namespace tenon::integration::simulate_test
