// Configuration, start and end of the daemons (slurm_cluster.hpp).
#include "slurm_cluster.hpp"

#include <chrono>
#include <cstdlib>
#include <regex>
#include <stdexcept>
#include <thread>

namespace tenon::schedulers {

namespace fs = std::filesystem;
using integration::Child;
using integration::Ended;
using integration::read_file;
using integration::write_file;

namespace {

/// cred_expire is also the pause before a job that was requeued may start. No control groups, no binding to
/// processors: the nodes claim more of them than the machine has.
constexpr const char* kConfiguration = R"(ClusterName=tenon
SlurmctldHost=node0(127.0.0.1)
SlurmUser=root
SlurmctldPort=6817
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/munge/socket,cred_expire=5
StateSaveLocation={dir}/slurmctld/state
SlurmdSpoolDir={dir}/%n/spool
SlurmctldPidFile={dir}/slurmctld/pid
SlurmdPidFile={dir}/%n/pid
SlurmctldLogFile={dir}/slurmctld/log
SlurmdLogFile={dir}/%n/log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=1,sched_interval=2
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MinJobAge=600
KillWait=30
NodeName=node1 NodeHostname=node0 NodeAddr=127.0.0.1 Port=6821 CPUs=8 State=UNKNOWN
NodeName=node2 NodeHostname=node0 NodeAddr=127.0.0.1 Port=6822 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP
)";

constexpr std::chrono::milliseconds kAskEvery{100};

class Deadline {
 public:
  explicit Deadline(double seconds)
      : until_(std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds)) {}
  bool passed() const { return std::chrono::steady_clock::now() > until_; }

 private:
  std::chrono::time_point<std::chrono::steady_clock, std::chrono::duration<double>> until_;
};

}  // namespace

SlurmCluster::SlurmCluster() : folder_(fs::temp_directory_path() / "slurm") {
  char host[64] = "";
  ::gethostname(host, sizeof host - 1);
  if (std::string(host) != "node0")
    throw std::runtime_error("start this program by tests/schedulers/slurm.sh");
  for (const char* name : {"munge", "slurmctld/state", "node1/spool", "node2/spool"})
    fs::create_directories(folder_ / name);
  write_file(folder_ / "slurm.conf", integration::replaced(kConfiguration, "{dir}", folder_.string()));
  const fs::path key = folder_ / "munge/key";
  write_file(key, std::string(128, 'k'));
  fs::permissions(key, fs::perms::owner_read);
  const std::string munge = (folder_ / "munge").string();
  daemons_.push_back(start("munge", "munged -F --key-file=" + munge + "/key --socket=" + munge +
                                        "/socket --pid-file=" + munge + "/pid --log-file=" + munge +
                                        "/log --seed-file=" + munge + "/seed"));
  for (const Deadline deadline(20); !fs::exists(folder_ / "munge/socket");) {
    if (deadline.passed()) throw std::runtime_error("munged does not listen:\n" + logs());
    std::this_thread::sleep_for(kAskEvery);
  }
  daemons_.push_back(start("slurmctld", "slurmctld -D -i"));
  for (const char* node : {"node1", "node2"})
    daemons_.push_back(start(node, std::string("slurmd -D -N ") + node));
  for (const Deadline deadline(60); bash("sinfo -h -o %t", folder_).out != "idle\n";) {
    if (deadline.passed()) throw std::runtime_error("the nodes take no jobs:\n" + logs());
    std::this_thread::sleep_for(kAskEvery);
  }
}

SlurmCluster::~SlurmCluster() {
  while (!daemons_.empty()) daemons_.pop_back();
}

std::unique_ptr<Child> SlurmCluster::start(const std::string& name, const std::string& line) {
  return std::make_unique<Child>(integration::Command{.arguments = {},
                                                      .folder = folder_ / name,
                                                      .environment = environment(),
                                                      .through = {"bash", "-c", "exec " + line}});
}

std::map<std::string, std::string> SlurmCluster::environment() const {
  const char* path = std::getenv("PATH");
  return {{"SLURM_CONF", (folder_ / "slurm.conf").string()},
          {"PATH", fs::path(TENON_PROGRAM).parent_path().string() + ":" + (path == nullptr ? "" : path)},
          {"TENON_PLUGIN_PATH", TENON_HELD}};
}

Ended SlurmCluster::bash(const std::string& line, const fs::path& folder, double seconds) const {
  return Child({{}, folder, environment(), RLIM_INFINITY, false, {"bash", "-c", line}}).wait(seconds);
}

std::string SlurmCluster::submit(const std::string& options, const std::string& name,
                                 const fs::path& folder) const {
  const Ended queued = bash("sbatch --parsable --output=job.out " + options + " " + name, folder);
  EXPECT_EQ(queued.status, 0) << queued.err;
  return queued.out.substr(0, queued.out.find('\n'));
}

std::string SlurmCluster::job(const std::string& id, const std::string& key) const {
  const Ended told = bash("scontrol show job " + id, folder_);
  std::smatch found;
  const std::regex pattern("\\b" + key + "=(\\S*)");
  return std::regex_search(told.out, found, pattern) ? found[1].str() : "no " + key + ": " + told.err;
}

std::string SlurmCluster::await_end(const std::string& id, double seconds) const {
  std::string state;
  for (const Deadline deadline(seconds); !deadline.passed();) {
    state = job(id, "JobState");
    const bool goes_on = state == "PENDING" || state == "RUNNING" || state == "COMPLETING" ||
                         state == "REQUEUED" || state == "CONFIGURING";
    if (!goes_on) return state;
    std::this_thread::sleep_for(kAskEvery);
  }
  return state;
}

std::string SlurmCluster::logs() const {
  std::string text;
  for (const char* name : {"munge", "slurmctld", "node1", "node2"}) {
    for (const char* file : {"log", ".err"})
      text += std::string("--- ") + name + "/" + file + "\n" + read_file(folder_ / name / file);
  }
  return text;
}

}  // namespace tenon::schedulers
