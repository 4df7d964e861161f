// Places from variables: those of a launcher, those that Slurm 22.05 sets in a step and in a batch script,
// and those that are wrong; and the secret of which the word of a job is made.
#include "process_place.hpp"

#include "job_token.hpp"

#include <tenon/error.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

/// Reads from `environment`, which outlives it.
Variables variables_of(const Environment& environment) {
  return [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}

/// Task 5 of 8 on four nodes, where it is the second one of node 2.
Environment step_of_four_nodes() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_PROCID", "5"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "2"},
          {"SLURM_STEP_NODELIST", "n[07-09],m2"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}};
}

Environment changed(Environment environment, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

class Place : public testing::FolderTest {
 protected:
  Environment with_home(Environment environment) const {
    environment["HOME"] = folder_;
    return environment;
  }
  ProcessPlace place(const Environment& environment, const std::string& transport = "socket") const {
    const Environment all = with_home(environment);
    return process_place(variables_of(all), transport);
  }
  std::string refusal(const Environment& environment, const std::string& transport = "socket") const {
    return error_of([&] { place(environment, transport); });
  }
};

TEST_F(Place, OfATaskIsItsNumberInTheStepAndNotOnItsNode) {
  const ProcessPlace task = place(step_of_four_nodes());
  EXPECT_EQ(task.rank, 5);
  EXPECT_EQ(task.ranks, 8);
  EXPECT_EQ(task.local_ranks, 2);
  EXPECT_EQ(task.control, "n07:21103");
  EXPECT_FALSE(task.hosts_control);
  EXPECT_FALSE(task.survives);
  const ProcessPlace first =
      place(changed(step_of_four_nodes(), {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}));
  EXPECT_TRUE(first.hosts_control);
  EXPECT_EQ(first.control, task.control);
  EXPECT_EQ(first.token, task.token);
}

TEST_F(Place, OnOneNodeKeepsTheControlPlaneOnTheLoopback) {
  const ProcessPlace task = place(
      changed(step_of_four_nodes(),
              {{"SLURM_NODEID", "0"}, {"SLURM_STEP_NODELIST", "n07"}, {"SLURM_STEP_TASKS_PER_NODE", "8"}}));
  EXPECT_EQ(task.control, "127.0.0.1:21103");
  EXPECT_EQ(task.local_ranks, 8);
}

TEST_F(Place, CountsTheTasksOfItsOwnNode) {
  Environment uneven = changed(step_of_four_nodes(), {{"SLURM_STEP_TASKS_PER_NODE", "3,2(x2),1"}});
  const std::vector<int> expected{3, 2, 2, 1};
  for (int node = 0; node < 4; ++node) {
    uneven["SLURM_NODEID"] = std::to_string(node);
    EXPECT_EQ(place(uneven).local_ranks, expected[node]) << node;
  }
}

TEST_F(Place, OutsideOfAStepIsOneProcess) {
  // As in a batch script of sbatch --ntasks=4, and on a login node.
  const Environment script{{"SLURM_JOB_ID", "4711"},
                           {"SLURM_NTASKS", "4"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_JOB_NODELIST", "n1"}};
  for (const Environment& outside : {script, Environment{}}) {
    EXPECT_EQ(place(outside).rank, -1);
    EXPECT_EQ(place(outside, "thread").rank, -1);
  }
  EXPECT_FALSE(fs::exists(folder_ + "/.local")) << "a secret that nothing needs";
}

TEST_F(Place, InAStepOfOneTaskIsOneProcess) {
  const Environment alone = changed(step_of_four_nodes(), {{"SLURM_STEP_NUM_TASKS", "1"},
                                                           {"SLURM_PROCID", "0"},
                                                           {"SLURM_NODEID", "0"},
                                                           {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  EXPECT_EQ(place(alone).rank, -1);
  EXPECT_EQ(place(alone, "thread").rank, -1);
}

TEST_F(Place, OfTenonLaunchComesBeforeThatOfSlurm) {
  const Environment both =
      changed(step_of_four_nodes(),
              {{"TENON_RANK", "1"}, {"TENON_RANKS", "2"}, {"TENON_CONTROL", "a:1"}, {"TENON_TOKEN", "word"}});
  const ProcessPlace launched = place(both);
  EXPECT_EQ(launched.rank, 1);
  EXPECT_EQ(launched.ranks, 2);
  EXPECT_EQ(launched.control, "a:1");
  EXPECT_EQ(launched.token, "word");
  EXPECT_THAT(refusal(without(both, "TENON_TOKEN")), HasSubstr("TENON_RANK=1 needs TENON_RANKS above it"));
  EXPECT_THAT(refusal(changed(both, {{"TENON_RANKS", "two"}})),
              HasSubstr("TENON_RANKS='two' is not a number of ranks"));
}

TEST_F(Place, TakesAnAddressAndAWordThatAreGivenInsteadOfItsOwn) {
  const ProcessPlace task =
      place(changed(step_of_four_nodes(), {{"TENON_CONTROL", "ib7:29500"}, {"TENON_TOKEN", "word"}}));
  EXPECT_EQ(task.rank, 5);
  EXPECT_EQ(task.control, "ib7:29500");
  EXPECT_EQ(task.token, "word");
  EXPECT_FALSE(fs::exists(folder_ + "/.local")) << "a secret that nothing needs";
}

TEST_F(Place, IsLeftToMpiWhereItIsTheTransport) {
  for (const char* transport : {"mpi", "openmpi", "mpich"})
    EXPECT_EQ(place(step_of_four_nodes(), transport).rank, -1) << transport;
}

TEST_F(Place, OfSeveralTasksIsRefusedForRanksThatAreThreads) {
  for (const char* transport : {"thread", ""}) {
    EXPECT_THAT(refusal(step_of_four_nodes(), transport),
                AllOf(HasSubstr("this is task 5 of the 8 tasks of Slurm's step 4711.3"),
                      HasSubstr("--set transport.type=socket"), HasSubstr("TENON_SCHEDULER=none")));
    EXPECT_EQ(place(changed(step_of_four_nodes(), {{"TENON_SCHEDULER", "none"}}), transport).rank, -1);
  }
  EXPECT_THAT(refusal(changed(step_of_four_nodes(), {{"TENON_SCHEDULER", "pbs"}})),
              HasSubstr("TENON_SCHEDULER='pbs'; expected slurm or none"));
}

TEST_F(Place, OfTaskZeroOnAnotherNodeThanTheFirstNeedsAnAddress) {
  const Environment arbitrary = changed(step_of_four_nodes(), {{"SLURM_PROCID", "0"}});
  EXPECT_THAT(refusal(arbitrary), AllOf(HasSubstr("task 0 of Slurm's step 4711.3 does not run on the step's "
                                                  "first node n07"),
                                        HasSubstr("export TENON_CONTROL=HOST:PORT")));
  EXPECT_TRUE(place(changed(arbitrary, {{"TENON_CONTROL", "n09:29500"}})).hosts_control);
}

TEST_F(Place, IsRefusedWhereSlurmsVariablesContradictEachOther) {
  struct Case {
    std::map<std::string, std::string> values;
    std::string said;
  };
  const Case cases[] = {
      {{{"SLURM_PROCID", "x"}}, "SLURM_PROCID='x' is not a whole number from 0 to 1000000"},
      {{{"SLURM_PROCID", "-1"}}, "SLURM_PROCID='-1' is not a whole number"},
      {{{"SLURM_PROCID", "5 "}}, "SLURM_PROCID='5 ' is not a whole number"},
      {{{"SLURM_PROCID", "8"}}, "SLURM_PROCID=8 is no task of the step, whose SLURM_STEP_NUM_TASKS is 8"},
      {{{"SLURM_STEP_NUM_TASKS", "0"}}, "SLURM_STEP_NUM_TASKS='0' is not a whole number from 1 to 1000000"},
      {{{"SLURM_STEP_NUM_TASKS", "99999999999999999999"}}, "is not a whole number from 1 to 1000000"},
      {{{"SLURM_JOB_ID", ""}}, "SLURM_JOB_ID='' is not a whole number from 1 to 4294967295"},
      {{{"SLURM_STEP_ID", "batch"}}, "SLURM_STEP_ID='batch' is not a whole number"},
      {{{"SLURM_RESTART_COUNT", "once"}}, "SLURM_RESTART_COUNT='once' is not a whole number"},
      {{{"SLURM_NODEID", "4"}}, "SLURM_NODEID='4' is not a whole number from 0 to 3"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}},
       "SLURM_STEP_TASKS_PER_NODE='2(x3),1' at SLURM_NODEID=2 contradicts SLURM_STEP_NUM_TASKS=8"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "4(x2),0(x2)"}}, "contradicts SLURM_STEP_NUM_TASKS=8"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "2(x4"}}, "SLURM_STEP_TASKS_PER_NODE='2(x4' is no list of numbers"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "2(x0)"}}, "is no list of numbers of tasks, such as '2(x3),1'"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "2(x4),"}}, "is no list of numbers of tasks"},
      {{{"SLURM_STEP_TASKS_PER_NODE", ""}}, "is no list of numbers of tasks"},
      {{{"SLURM_STEP_NODELIST", ""}}, "SLURM_STEP_NODELIST='' is no list of nodes, such as 'n[1-3,7],m2'"},
      {{{"SLURM_STEP_NODELIST", "n[1-3"}}, "SLURM_STEP_NODELIST='n[1-3' is no list of nodes"},
      {{{"SLURM_STEP_NODELIST", "n[]"}}, "is no list of nodes"},
      {{{"SLURM_STEP_NODELIST", "n[a-c]"}}, "is no list of nodes"},
      {{{"SLURM_STEP_NODELIST", "n 1"}}, "is no list of nodes"},
      {{{"SLURM_HET_SIZE", "2"}}, "SLURM_HET_SIZE says that this is a heterogeneous job"},
  };
  for (const Case& c : cases)
    EXPECT_THAT(refusal(changed(step_of_four_nodes(), c.values)), HasSubstr(c.said)) << c.said;
  for (const char* name : {"SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID",
                           "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"}) {
    EXPECT_THAT(refusal(without(step_of_four_nodes(), name)),
                AllOf(HasSubstr(std::string("Slurm's variable ") + name + " is missing"),
                      HasSubstr("start the ranks by srun, or set TENON_SCHEDULER=none")));
  }
}

TEST(SlurmNodes, TheFirstOfAListIsFound) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"n1", "n1"},
      {"n[1-3,7],m2", "n1"},
      {"n[007-123]", "n007"},
      {"gpu-a.x_1", "gpu-a.x_1"},
      {"r[2-4]n[01,05]", "r2n01"},
      {"b,a", "b"},
      {"n[5]-ib", "n5-ib"},
  };
  for (const auto& [list, first] : cases) EXPECT_EQ(first_host(list), first) << list;
}

TEST(SlurmStepPort, DiffersBetweenAHundredJobsOfAHundredSteps) {
  std::set<std::string> addresses;
  SlurmStep step;
  for (step.job = 123'456; step.job < 123'556; ++step.job) {
    for (step.step = 0; step.step < 100; ++step.step) addresses.insert(step.control());
  }
  EXPECT_EQ(addresses.size(), 10'000u);
  EXPECT_EQ(*addresses.begin(), "127.0.0.1:20000");
  EXPECT_EQ(*addresses.rbegin(), "127.0.0.1:29999");
}

TEST_F(Place, WordOfAStepIsItsOwn) {
  const std::vector<Environment> steps{step_of_four_nodes(),
                                       changed(step_of_four_nodes(), {{"SLURM_JOB_ID", "4712"}}),
                                       changed(step_of_four_nodes(), {{"SLURM_STEP_ID", "4"}}),
                                       changed(step_of_four_nodes(), {{"SLURM_RESTART_COUNT", "1"}})};
  std::set<std::string> words;
  for (const Environment& step : steps) {
    const std::string word = place(step).token;
    EXPECT_EQ(word.size(), 32u);
    EXPECT_EQ(word, place(changed(step, {{"SLURM_PROCID", "7"}, {"SLURM_NODEID", "3"}})).token);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), steps.size());
  // Another user's secret gives another word for the same step.
  const std::string mine = place(steps[0]).token;
  fs::remove_all(folder_ + "/.local");
  EXPECT_NE(place(steps[0]).token, mine);
}

TEST_F(Place, SecretIsForItsUserAlone) {
  place(step_of_four_nodes());
  const std::string file = folder_ + "/.local/state/tenon/job_secret";
  struct stat facts {};
  ASSERT_EQ(::stat(file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(file).parent_path()), {}), 1);
  ::chmod(file.c_str(), 0640);
  EXPECT_THAT(
      refusal(step_of_four_nodes()),
      AllOf(HasSubstr(file), HasSubstr("is not a file of this user that nobody else may read; remove it"),
            HasSubstr("export TENON_TOKEN, a secret word, in the batch script")));
  fs::remove(file);
  for (const std::string& text : {std::string(), std::string(63, 'a') + "\n", std::string(64, 'g') + "\n",
                                  std::string(64, 'a'), std::string(65, 'a') + "\n"}) {
    std::ofstream(file) << text;
    ::chmod(file.c_str(), 0600);
    EXPECT_THAT(refusal(step_of_four_nodes()), HasSubstr("is not a line of 64 hexadecimal digits; remove it"))
        << text;
  }
  fs::remove(file);
  fs::create_symlink("/etc/hostname", file);
  EXPECT_THAT(refusal(step_of_four_nodes()), HasSubstr("cannot be read"));
}

TEST_F(Place, WithoutAFolderForTheSecretAsksForAWord) {
  write("occupied", "");
  EXPECT_THAT(refusal(changed(step_of_four_nodes(), {{"XDG_STATE_HOME", folder_ + "/occupied"}})),
              AllOf(HasSubstr("'" + folder_ + "/occupied/tenon/job_secret', which cannot be "),
                    HasSubstr("export TENON_TOKEN")));
  const Environment homeless = step_of_four_nodes();
  EXPECT_THAT(error_of([&] { process_place(variables_of(homeless), "socket"); }),
              HasSubstr("without HOME there is no secret"));
}

TEST_F(Place, TasksThatStartTogetherMakeOneSecret) {
  constexpr int kTasks = 16;
  for (int round = 0; round < 20; ++round) {
    const Environment environment = with_home(step_of_four_nodes());
    std::vector<std::string> words(kTasks);
    std::vector<std::thread> tasks;
    for (std::string& word : words)
      tasks.emplace_back([&] { word = process_place(variables_of(environment), "socket").token; });
    for (std::thread& task : tasks) task.join();
    EXPECT_EQ(std::set<std::string>(words.begin(), words.end()).size(), 1u);
    fs::remove_all(folder_ + "/.local");
  }
}

TEST_F(Place, IsToldToPeopleInALine) {
  const auto text = [](const Environment& environment) { return place_text(variables_of(environment)); };
  EXPECT_EQ(text(step_of_four_nodes()),
            "task 5 of 8 in Slurm's step 4711.3, 2 of them on this machine; control plane at n07:21103");
  EXPECT_EQ(text({{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}}),
            "Slurm's job 4711, outside of a step of several tasks; a run is one process");
  EXPECT_EQ(text({}), "none; a run is one process unless tenon launch, srun or mpirun starts more");
  EXPECT_EQ(text({{"TENON_RANK", "1"}, {"TENON_RANKS", "2"}, {"TENON_CONTROL", "a:1"}, {"TENON_TOKEN", "w"}}),
            "rank 1 of 2, from TENON_RANK; control plane at a:1");
  EXPECT_THAT(text(changed(step_of_four_nodes(), {{"SLURM_PROCID", "9"}})),
              HasSubstr("is no task of the step"));
  EXPECT_FALSE(fs::exists(folder_ + "/.local"));
}

}  // namespace
}  // namespace tenon::cli
