// Runs under a real Slurm, of one node and of two: the place of each task from Slurm's variables, a job that
// is requeued after a death and after a limit of time, and both MPIs. Scripts and lines are those of
// docs/processes.md.
#include "run_program.hpp"
#include "slurm_cluster.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace tenon::schedulers::slurm_test {
namespace {

using integration::Ended;
using integration::hashes_of;
using integration::read_file;
using integration::replaced;
using integration::Scratch;
using integration::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

/// Four replicas that hold each slot for `seconds` until the file `go` is in their folder: 400 slots are more
/// than pass before Slurm's signal.
std::string four_replicas(int steps, const std::string& seconds = "0.2") {
  std::string toml =
      replaced(Scratch::kRun, "steps = 6", "steps = " + std::to_string(steps) + "\ndeadline = 30");
  toml = replaced(toml, "log_every = 1", "log_every = 10");
  toml = replaced(toml, "every = 2", "every = 5");
  return toml + "\n[parallel]\nranks = 4\n\n[transport]\ntype = \"thread\"\n\n[sync]\ntype = \"ddp\"\n" +
         "\n[[observe]]\ntype = \"held\"\nseconds = " + seconds + "\n";
}

/// The fenced block of docs/processes.md that contains `words`.
std::string block_of_page(const std::string& words) {
  const std::string page = read_file(fs::path(TENON_SOURCE_DIR) / "docs/processes.md");
  const std::size_t at = page.find(words);
  const std::size_t fence = page.rfind("```bash\n", at);
  if (at == std::string::npos || fence == std::string::npos)
    throw std::runtime_error("docs/processes.md has no block with '" + words + "'");
  const std::size_t begin = fence + 8;
  return page.substr(begin, page.find("```", begin) - begin);
}

bool holds_within(double seconds, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

/// Process of task `task` that runs in the folder of `scratch`; -1 without one.
pid_t process_of_task(int task, const Scratch& scratch) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    std::error_code gone;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (fs::read_symlink(entry.path() / "cwd", gone) != scratch.folder()) continue;
    if (fs::read_symlink(entry.path() / "exe", gone) != fs::canonical(TENON_PROGRAM)) continue;
    const std::string environment = read_file(entry.path() / "environ");
    if (environment.find("SLURM_PROCID=" + std::to_string(task) + '\0') != std::string::npos)
      return std::stoi(name);
  }
  return -1;
}

class Slurm : public ::testing::Test {
 protected:
  /// One cluster for both suites; it ends with the program.
  static void SetUpTestSuite() {
    if (!cluster_) cluster_.emplace();
  }

  void TearDown() override {
    if (HasFailure()) std::printf("%s", cluster_->logs().c_str());
    for (const std::string& id : jobs_) cluster_->bash("scancel " + id, scratch_.folder());
  }

  /// Hashes of the same run as threads of one process, which nothing disturbs.
  std::pair<std::string, std::string> hashes_of_threads(int steps) const {
    const Scratch threads;
    write_file(threads / "run.toml", four_replicas(steps, "0"));
    const Ended ended = cluster_->bash("tenon train run.toml --quiet", threads.folder());
    EXPECT_EQ(ended.status, 0) << ended.err;
    return hashes_of(threads);
  }
  void prepare(int steps, const std::string& seconds = "0.2") const { prepare(scratch_, steps, seconds); }
  static void prepare(const Scratch& scratch, int steps, const std::string& seconds) {
    write_file(scratch / "run.toml", four_replicas(steps, seconds));
    write_file(scratch / "train.sbatch", block_of_page("#SBATCH"));
  }
  std::string submit(const std::string& options) { return submit(scratch_, options); }
  std::string submit(const Scratch& scratch, const std::string& options) {
    const std::string id = cluster_->submit(options, "train.sbatch", scratch.folder());
    jobs_.push_back(id);
    return id;
  }
  std::string output() const { return read_file(scratch_ / "job.out"); }
  static bool has_checkpoint(const Scratch& scratch) {
    const fs::path folder = scratch / "runs/tiny/latest/checkpoints";
    return fs::exists(folder) && !fs::is_empty(folder);
  }

  static std::optional<SlurmCluster> cluster_;
  const Scratch scratch_;
  std::vector<std::string> jobs_;
};

std::optional<SlurmCluster> Slurm::cluster_;

TEST_F(Slurm, FourTasksOfSrunAreFourRanksWithTheBitsOfThreads) {
  prepare(40, "0");
  const Ended run =
      cluster_->bash("srun -n 4 tenon train run.toml --quiet --set transport.type=socket", scratch_.folder());
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("completed after 40 steps"));
  EXPECT_EQ(hashes_of(scratch_), hashes_of_threads(40));
  EXPECT_FALSE(fs::exists(scratch_ / "runs/tiny/2")) << "one run, not one for each task";
}

TEST_F(Slurm, TasksOfTwoNodesAreNumberedOverBoth) {
  prepare(40, "0");
  const Ended run =
      cluster_->bash("srun -N 2 --ntasks-per-node=2 tenon train run.toml --quiet --set transport.type=socket",
                     scratch_.folder());
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(hashes_of(scratch_), hashes_of_threads(40));
  const Ended place = cluster_->bash(
      "srun -N 2 --ntasks-per-node=2 bash -c 'if [ $SLURM_PROCID = 3 ]; then tenon doctor | grep ^place; fi'",
      scratch_.folder());
  EXPECT_THAT(place.out, AllOf(HasSubstr("place      task 3 of 4 in Slurm's step "),
                               HasSubstr(", 2 of them on this machine; control plane at node1:2")));
}

TEST_F(Slurm, ABatchScriptWithoutSrunIsOneProcess) {
  prepare(40, "0");
  write_file(scratch_ / "train.sbatch", "#!/bin/bash\ntenon train run.toml --quiet\n");
  EXPECT_EQ(cluster_->await_end(submit("--ntasks=4"), 60), "COMPLETED") << output();
  EXPECT_EQ(hashes_of(scratch_), hashes_of_threads(40));
}

TEST_F(Slurm, ARunOfThreadsIsRefusedInEveryTaskOfAStep) {
  prepare(40, "0");
  const Ended refused = cluster_->bash("srun -n 4 tenon train run.toml --quiet", scratch_.folder());
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("this is task 3 of the 4 tasks of Slurm's step "),
                                 HasSubstr("add --set transport.type=socket")));
  EXPECT_FALSE(fs::exists(scratch_ / "runs"));
  const Ended each = cluster_->bash(
      "TENON_SCHEDULER=none srun -n 2 bash -c 'tenon train run.toml --quiet --run-dir $SLURM_PROCID'",
      scratch_.folder());
  EXPECT_EQ(each.status, 0) << each.err;
  EXPECT_TRUE(fs::exists(scratch_ / "0/1") && fs::exists(scratch_ / "1/1"));
}

TEST_F(Slurm, APortThatIsTakenIsNamed) {
  prepare(40, "0");
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(29999);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(taken, reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
  ASSERT_EQ(::listen(taken, 8), 0);
  const Ended run = cluster_->bash(
      "TENON_CONTROL=127.0.0.1:29999 srun -n 4 tenon train run.toml --quiet --set transport.type=socket "
      "--set run.deadline=3",
      scratch_.folder());
  ::close(taken);
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("the control plane cannot listen on 127.0.0.1:29999: Address already in "
                              "use; choose another address or port"),
                    HasSubstr("TENON_CONTROL")));
}

TEST_F(Slurm, AJobIsRequeuedAfterAKilledTaskAndEndsWithTheSameBits) {
  prepare(400);
  const std::string id = submit("");
  ASSERT_TRUE(holds_within(60, [&] { return has_checkpoint(scratch_); })) << output();
  const pid_t victim = process_of_task(2, scratch_);
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  ASSERT_TRUE(holds_within(60, [&] { return scratch_.summary("status") == "\"failed\""; })) << output();
  EXPECT_THAT(scratch_.summary("error"), HasSubstr("rank 2"));
  write_file(scratch_ / "go", "");
  EXPECT_EQ(cluster_->await_end(id, 120), "COMPLETED") << output();
  EXPECT_EQ(cluster_->job(id, "Restarts"), "1");
  EXPECT_THAT(output(), HasSubstr("completed after 400 steps"));
  EXPECT_EQ(hashes_of(scratch_), hashes_of_threads(400));
  std::printf("killed task 2 of job %s; after one requeue: %s", id.c_str(),
              output().substr(output().rfind("completed after")).c_str());
}

TEST_F(Slurm, ALimitOfTimeStopsTheRunWhichGoesOnAfterARequeueToTheSameBits) {
  prepare(400);
  // Slurm counts limits in minutes.
  const std::string id = submit("--time=1 --signal=TERM@50");
  ASSERT_TRUE(holds_within(80, [&] { return scratch_.summary("status") == "\"interrupted\""; })) << output();
  write_file(scratch_ / "go", "");
  EXPECT_EQ(cluster_->await_end(id, 120), "COMPLETED") << output();
  EXPECT_EQ(cluster_->job(id, "Restarts"), "1");
  EXPECT_THAT(output(), AllOf(HasSubstr("interrupted after "), HasSubstr("completed after 400 steps")));
  EXPECT_EQ(hashes_of(scratch_), hashes_of_threads(400));
  std::printf("limit of job %s: %s", id.c_str(), output().substr(output().find("interrupted after")).c_str());
}

TEST_F(Slurm, ACancelledJobSavesAndIsNotRequeued) {
  prepare(400);
  const std::string id = submit("");
  ASSERT_TRUE(holds_within(60, [&] { return has_checkpoint(scratch_); })) << output();
  EXPECT_EQ(cluster_->bash("scancel " + id, scratch_.folder()).status, 0);
  EXPECT_EQ(cluster_->await_end(id, 60), "CANCELLED") << output();
  EXPECT_EQ(scratch_.summary("status"), "\"interrupted\"") << output();
  EXPECT_EQ(cluster_->job(id, "Restarts"), "0");
}

TEST_F(Slurm, TwoJobsOfOneNodeTrainSideBySide) {
  const Scratch other;
  prepare(400);
  prepare(other, 400, "0.2");
  const std::string one = submit("--nodelist=node1"), two = submit(other, "--nodelist=node1");
  ASSERT_TRUE(holds_within(60, [&] { return has_checkpoint(scratch_) && has_checkpoint(other); }))
      << output();
  for (const Scratch* scratch : {&scratch_, &other}) write_file(*scratch / "go", "");
  EXPECT_EQ(cluster_->await_end(one, 60), "COMPLETED") << output();
  EXPECT_EQ(cluster_->await_end(two, 60), "COMPLETED") << read_file(other / "job.out");
  EXPECT_EQ(hashes_of(scratch_), hashes_of(other));
}

TEST_F(Slurm, ASimulationOverTasksOfTwoNodesHasTheBytesOfOneProcess) {
  write_file(scratch_ / "sim.toml",
             "[simulate]\nsamples = 7\nworkers = 1\n[simulator]\ntype = \"buckley_leverett\"\n"
             "cells = 50\nsnapshots = 2\ninitial = 'random'\n");
  const std::string line = "tenon simulate sim.toml --quiet --set simulate.folder=";
  const Ended alone = cluster_->bash(line + "alone", scratch_.folder());
  ASSERT_EQ(alone.status, 0) << alone.err;
  const Ended tasks = cluster_->bash("srun -N 2 -n 4 " + line + "tasks", scratch_.folder());
  ASSERT_EQ(tasks.status, 0) << tasks.err;
  const auto expected = integration::tree(scratch_ / "alone");
  EXPECT_GT(expected.size(), 7u);
  EXPECT_EQ(integration::tree(scratch_ / "tasks"), expected);
}

/// A line of the page, run by a batch script in an allocation of four tasks.
class SlurmMpi : public Slurm, public ::testing::WithParamInterface<const char*> {};

TEST_P(SlurmMpi, TrainsToTheBitsOfThreads) {
  const std::string line = GetParam();
  const std::string vendor = line.substr(line.rfind('=') + 1);
  if (!fs::exists(fs::path(TENON_BINARY_DIR) / "lib/tenon/plugins" / ("tenon_transport_" + vendor + ".so")))
    GTEST_SKIP() << "no " << vendor << " on this machine";
  ASSERT_THAT("\n" + block_of_page("srun --mpi=pmix"), HasSubstr("\n" + line + "\n"));
  prepare(40, "0");
  write_file(scratch_ / "train.sbatch", "#!/bin/bash\n" + line + " --quiet\n");
  // Open MPI binds ranks to processors, of which a node claims more than there are, and refuses root.
  const std::string id = submit(
      "--ntasks=4 --export=ALL,OMPI_MCA_hwloc_base_binding_policy=none,OMPI_ALLOW_RUN_AS_ROOT=1,"
      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  EXPECT_EQ(cluster_->await_end(id, 60), "COMPLETED") << output();
  EXPECT_THAT(output(), HasSubstr("completed after 40 steps"));
  EXPECT_EQ(hashes_of(scratch_), hashes_of_threads(40));
  EXPECT_FALSE(fs::exists(scratch_ / "runs/tiny/2")) << "one run, not one for each task";
}

TEST_F(Slurm, RanksOfSrunWithoutAnInterfaceOfMpiAreToldTheRightWords) {
  prepare(40, "0");
  const Ended run = cluster_->bash("srun -n 2 tenon train run.toml --quiet --set transport.type=openmpi",
                                   scratch_.folder());
  if (run.err.find("no plugin") != std::string::npos) GTEST_SKIP() << "no openmpi on this machine";
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err,
              HasSubstr("under Slurm srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH) -n 4 tenon train"));
}

INSTANTIATE_TEST_SUITE_P(
    LinesOfThePage, SlurmMpi,
    ::testing::Values("srun --mpi=pmix tenon train run.toml --set transport.type=openmpi",
                      "srun --mpi=pmi2 tenon train run.toml --set transport.type=mpich",
                      "mpirun.openmpi tenon train run.toml --set transport.type=openmpi",
                      "mpirun.mpich tenon train run.toml --set transport.type=mpich"),
    [](const auto& instance) {
      const std::string line = instance.param;
      return line.substr(0, line.find_first_of(" .")) + "_" + line.substr(line.rfind('=') + 1);
    });

}  // namespace
}  // namespace tenon::schedulers::slurm_test
