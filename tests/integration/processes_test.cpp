// Ranks as processes: the same bits as threads, and the end of a run when one of its processes dies, hangs,
// is asked to stop, or was started with other settings.
#include "run_program.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace tenon::integration::processes_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

/// Two replicas, 40 slots, an interval of four; a rank waits at most `deadline` seconds for another.
std::string two_replicas(const std::string& sync, int steps = 40, int deadline = 60) {
  std::string toml =
      replaced(Scratch::kRun, "steps = 6",
               "steps = " + std::to_string(steps) + "\ndeadline = " + std::to_string(deadline));
  toml = replaced(toml, "log_every = 1", "log_every = 10");
  toml = replaced(toml, "every = 2", "every = 5");
  return toml + "\n[parallel]\nranks = 2\n\n[transport]\ntype = \"thread\"\n\n[sync]\n" + sync + "\n";
}

const std::vector<std::string> kStrategies = {
    "type = \"ddp\"", "type = \"local_sgd\"\ninterval = 4", "type = \"diloco\"\ninterval = 4",
    "type = \"palsgd\"\ninterval = 4\nwarmup = 4\np = 0.25\neta = 0.5"};

Words launched(Words options = {}, Words more = {}) {
  Words words{"launch", "-n", "2"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "train", "run.toml", "--quiet"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_hashes_of_threads(const std::string& transport) {
  for (const std::string& sync : kStrategies) {
    const Scratch threads, processes;
    write_file(threads / "run.toml", two_replicas(sync));
    write_file(processes / "run.toml", two_replicas(sync));
    const Ended alone = threads.train();
    ASSERT_EQ(alone.status, 0) << alone.err;
    const Ended launch = processes.run(launched({"--transport", transport}));
    ASSERT_EQ(launch.status, 0) << sync << "\n" << launch.err;
    EXPECT_EQ(hashes_of(processes), hashes_of(threads)) << sync;
    EXPECT_EQ(processes.summary("bytes_sent"), threads.summary("bytes_sent")) << sync;
  }
}

TEST(Processes, TrainToTheBitsOfThreadsOverSockets) {
  expect_hashes_of_threads("socket");
}

class Mpi : public ::testing::TestWithParam<const char*> {};

TEST_P(Mpi, TrainsToTheBitsOfThreads) {
  const std::string program = std::string("mpirun.") + GetParam();
  const fs::path plugin = fs::path(TENON_BINARY_DIR) / "lib/tenon/plugins" /
                          ("tenon_transport_" + std::string(GetParam()) + ".so");
  if (!fs::exists(plugin) || std::system(("command -v " + program + " >/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "no " << GetParam() << " on this machine";
  }
  expect_hashes_of_threads(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Vendors, Mpi, ::testing::Values("openmpi", "mpich"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Processes, AKilledRankIsNamedAndTheRunGoesOnToTheSameBits) {
  const Scratch whole, killed;
  const std::string toml = two_replicas(kStrategies[2], 1000);
  write_file(whole / "run.toml", toml);
  write_file(killed / "run.toml", toml);
  ASSERT_EQ(whole.run(launched()).status, 0);
  Child launch({launched(), killed.folder(), {}});
  await_checkpoint(killed);
  const pid_t victim = process_of(1, killed);
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  const Ended ended = launch.wait(30);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("rank 1: its process was killed by signal 9 (Killed), in slot "));
  EXPECT_THAT(killed.summary("error"), HasSubstr("rank 1: its process was killed by signal 9"));
  const Ended resumed = killed.run(launched({}, {"--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(hashes_of(killed), hashes_of(whole));
}

TEST(Processes, AreStartedAgainAfterADeathAndEndWithTheSameBits) {
  const Scratch whole, killed;
  const std::string toml = two_replicas(kStrategies[2], 1000);
  write_file(whole / "run.toml", toml);
  write_file(killed / "run.toml", toml);
  ASSERT_EQ(whole.run(launched()).status, 0);
  Child launch({launched({"--restarts", "2"}), killed.folder(), {}});
  await_checkpoint(killed);
  const pid_t victim = process_of(1, killed);
  ASSERT_GT(victim, 0);
  const auto began = std::chrono::steady_clock::now();
  ::kill(victim, SIGKILL);
  // The next checkpoint of the continued run: 0.2 s on an idle machine (bench/kill_to_step.py).
  const fs::path log = killed / "runs/tiny/1/recovery.jsonl";
  const auto continued = [&] {
    const std::string text = read_file(log);
    const std::size_t resume = text.find("\"event\":\"resume\"");
    return resume != std::string::npos && text.find("\"event\":\"save\"", resume) != std::string::npos;
  };
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  while (!continued() && passed() < 30) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LT(passed(), 20) << "from the death to the next saved slot";
  const Ended ended = launch.wait(60);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 1: its process was killed by signal 9 (Killed)"),
                               HasSubstr("rank 1 is started again, rank 0 lives on (1 of 2)")));
  EXPECT_EQ(hashes_of(killed), hashes_of(whole));
}

TEST(Processes, AreStartedAgainSoOftenAndNoMore) {
  const Scratch scratch;
  // Nothing is saved, so each start reaches the same number that is not finite.
  write_file(scratch / "run.toml", replaced(two_replicas(kStrategies[0]), "lr = 1e-2", "lr = 1e30"));
  const Ended ended = scratch.run(launched({"--restarts", "2"}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("(1 of 2)"), HasSubstr("(2 of 2)"),
                               HasSubstr("2 restart(s) were allowed and used")));
  // A refused configuration would be refused again.
  write_file(scratch / "run.toml", replaced(two_replicas(kStrategies[0]), "heads = 2", "heads = 3"));
  const Ended refused = scratch.run(launched({"--restarts", "2"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, ::testing::Not(HasSubstr("start again")));
}

// Two trainers of two workers and a server; trainers ask each other for rows (docs/decisions/0021).
Words asking(const std::string& steps) {
  Words words{"launch", "-n", "3", "--", "train", "run.toml", "--quiet"};
  for (const std::string& set :
       {std::string("parallel={ranks=2, workers=2, servers=1, rows=\"request\"}"),
        std::string("sync={type=\"shadow_easgd\"}"), std::string("model.placement=rows"),
        std::string("data.batch=48"), std::string("run.deadline=20"), "run.steps=" + steps}) {
    words.emplace_back("--set");
    words.push_back(set);
  }
  return words;
}

TEST(Processes, AskEachOtherForRows) {
  const Scratch scratch;
  write_file(scratch / "run.toml", clicks_run());
  const Ended ended = scratch.run(asking("48"));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_LT(std::stod(scratch.summary("val/loss")), 0.55) << "the entropy of the base rate";
  // Owners' waits for requests do not count; the two workers may wait at the same time.
  EXPECT_LT(std::stod(scratch.summary("stall_s")), 2 * std::stod(scratch.summary("wall_s")));
  EXPECT_GE(std::stod(scratch.summary("stall_s")), 0);
}

TEST(Processes, MissARankThatHeldRows) {
  const Scratch scratch;
  write_file(scratch / "run.toml", clicks_run());
  Child launch({asking("1000000"), scratch.folder(), {}});
  await_checkpoint(scratch);
  const pid_t victim = process_of(1, scratch);
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  const Ended ended = launch.wait(30);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("rank 1"));
}

TEST(Processes, TheDeathOfRankZeroIsSaidByTheLauncher) {
  const Scratch scratch;
  write_file(scratch / "run.toml", two_replicas(kStrategies[0], 100000));
  Child launch({launched(), scratch.folder(), {}});
  await_checkpoint(scratch);
  const pid_t victim = process_of(0, scratch);
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  const Ended ended = launch.wait(30);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("tenon launch: rank 0: its process was killed by signal 9 (Killed)"));
  EXPECT_EQ(process_of(1, scratch), -1) << "no process may outlive its run";
}

TEST(Processes, TheDeathOfTheLauncherEndsTheRanks) {
  const Scratch scratch;
  write_file(scratch / "run.toml", two_replicas(kStrategies[0], 100000));
  Child launch({launched(), scratch.folder(), {}});
  await_checkpoint(scratch);
  launch.send(SIGKILL);
  launch.wait(30);
  for (int i = 0; i < 500 && process_of(0, scratch) + process_of(1, scratch) != -2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(process_of(0, scratch), -1);
  EXPECT_EQ(process_of(1, scratch), -1);
  EXPECT_THAT(scratch.summary("error"),
              AllOf(HasSubstr("the control plane 127.0.0.1:"), HasSubstr("is gone")));
}

TEST(Processes, ARankThatHangsIsNamedAfterTheDeadlineAndKilled) {
  const Scratch scratch;
  write_file(scratch / "run.toml", two_replicas(kStrategies[0], 100000, 2));
  Child launch({launched({"--kill-after", "1"}), scratch.folder(), {}});
  await_checkpoint(scratch);
  const pid_t victim = process_of(1, scratch);
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGSTOP);
  const Ended ended = launch.wait(40);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("2 s")));
  EXPECT_EQ(process_of(1, scratch), -1);
}

TEST(Processes, ASignalToTheLauncherIsAnAgreedStop) {
  const Scratch whole, stopped;
  const std::string toml = two_replicas(kStrategies[3], 1000);
  write_file(whole / "run.toml", toml);
  write_file(stopped / "run.toml", toml);
  ASSERT_EQ(whole.train().status, 0);
  Child launch({launched(), stopped.folder(), {}});
  await_checkpoint(stopped);
  launch.send(SIGTERM);
  const Ended ended = launch.wait(30);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(stopped.summary("status"), "\"interrupted\"");
  ASSERT_EQ(stopped.run(launched({}, {"--resume"})).status, 0);
  EXPECT_EQ(hashes_of(stopped), hashes_of(whole));
}

TEST(Processes, MustAgreeOnTheConfiguration) {
  const Scratch scratch;
  write_file(scratch / "run.toml", two_replicas(kStrategies[0]));
  fs::create_directories(scratch / "other");
  const std::map<std::string, std::string> first{{"TENON_RANK", "0"},
                                                 {"TENON_RANKS", "2"},
                                                 {"TENON_CONTROL", "127.0.0.1:29517"},
                                                 {"TENON_TOKEN", "word"}};
  auto second = first;
  second["TENON_RANK"] = "1";
  Words words{"train", "../run.toml",          "--quiet", "--set", "transport.type=socket",
              "--set", "data.path=../text.txt"};
  fs::create_directories(scratch / "one");
  Child one({words, scratch / "one", first});
  words.insert(words.end(), {"--set", "optimizer.lr=0.5"});
  Child two({words, scratch / "other", second});
  for (Child* child : {&one, &two}) {
    const Ended ended = child->wait(30);
    EXPECT_EQ(ended.status, 2);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 1 and rank 0 differ in their configuration, line "),
                                 HasSubstr("'lr = 0.5' against 'lr = 0.01'")));
  }
  EXPECT_FALSE(fs::exists(scratch / "one/runs")) << "nothing may be opened before that";
}

TEST(Processes, AreCheckedAsThreadsAndToldWhatADeathWouldDo) {
  const Scratch scratch;
  write_file(scratch / "run.toml",
             replaced(two_replicas(kStrategies[0]), "type = \"thread\"", "type = \"socket\""));
  const Ended socket = scratch.run({"check", "run.toml"});
  EXPECT_EQ(socket.status, 0) << socket.err;
  EXPECT_THAT(socket.out, AllOf(HasSubstr("planned for 2 rank(s)"),
                                HasSubstr("when a rank dies: tenon launch --restarts R starts it again")));
  EXPECT_THAT(scratch.run({"check", "run.toml", "--print"}).out, HasSubstr("type = \"socket\""));
  const Ended typo = scratch.run({"check", "run.toml", "--set", "transport.addres=x"});
  EXPECT_EQ(typo.status, 2);
  EXPECT_THAT(typo.err, HasSubstr("no option 'addres'"));
  const Ended mpi = scratch.run({"check", "run.toml", "--set", "transport.type=openmpi"});
  if (mpi.status == 2 && mpi.err.find("no plugin") != std::string::npos)
    GTEST_SKIP() << "built without Open MPI";
  EXPECT_EQ(mpi.status, 0) << mpi.err;
  EXPECT_THAT(mpi.out, HasSubstr("when a rank dies: the job ends; 'openmpi' cannot go on without a rank"));
}

TEST(Processes, ALaunchWithoutItsCommandIsToldTheRightForm) {
  struct Case {
    Words words;
    std::string said;
  };
  const std::string belongs = "belongs after '--', with the command that each rank runs: tenon launch ";
  const Case cases[] = {
      {{"run.toml"}, "'run.toml' " + belongs + "-n 2 -- train run.toml"},
      {{"-n", "3", "run.toml", "--set", "run.steps=4"},
       "'run.toml' " + belongs + "-n 3 -- train run.toml --set run.steps=4"},
      {{"run.toml", "--ranks", "4"}, "'run.toml' " + belongs + "--ranks 4 -- train run.toml"},
      {{"-n2", "--transport", "nccl", "train", "run.toml"},
       "'train' " + belongs + "-n2 --transport nccl -- train run.toml"},
      {{"-n", "2", "--", "run.toml"},
       "ranks run the command train, not 'run.toml': tenon launch -n 2 -- train run.toml"},
      {{"-n", "2"},
       "what to start? write the command of each rank after '--': tenon launch -n 2 -- train CONFIG"},
  };
  const Scratch scratch;
  for (const Case& c : cases) {
    Words words{"launch"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Ended ended = scratch.run(words);
    EXPECT_EQ(ended.err, "tenon: tenon launch: " + c.said + "\n");
    EXPECT_EQ(ended.status, 2);
  }
}

TEST(Processes, AreRefusedWhereTheyAreTooManyOrStrangers) {
  const Scratch scratch;
  const Ended many = scratch.run(launched());
  EXPECT_EQ(many.status, 2);
  EXPECT_THAT(many.err,
              HasSubstr("2 processes were started, but this configuration makes a world of 1 ranks"));
  const Ended half = scratch.train({}, {{"TENON_RANK", "1"}});
  EXPECT_EQ(half.status, 2);
  EXPECT_THAT(half.err, HasSubstr("needs TENON_RANKS above it, TENON_CONTROL=HOST:PORT and TENON_TOKEN"));
  write_file(scratch / "run.toml", two_replicas(kStrategies[0]) +
                                       "\n[transport.clock]\ntype = \"simulated\"\ncompute_seconds = 1.0\n");
  const Ended simulated = scratch.run(launched());
  EXPECT_EQ(simulated.status, 2);
  EXPECT_THAT(simulated.err, HasSubstr("the simulated clock orders the ranks of one process"));
}

}  // namespace
}  // namespace tenon::integration::processes_test
