// tenon launch: the ranks of one run as processes, on this machine or as this machine's share of a larger
// run. First the run itself, which starts, watches and restarts rank processes; then the command.
#include "command_line.hpp"
#include "rank_processes.hpp"

#include "base/child_process.hpp"
#include "base/elapsed.hpp"
#include "base/signals.hpp"
#include "control/control_server.hpp"
#include "control/control_wire.hpp"

#include <tenon/control.hpp>
#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::cli {
namespace {

/// The part of a run's ranks that this machine starts.
struct Share {
  int here = 0, world = 0, first = 0;
  std::string program;  ///< program of each rank
  std::string control, token;
  double kill_after = 30;
  int restarts = 0;
};

/// Result of all ranks together.
struct LaunchEnd {
  int status = 0;
  int bad = -1;         ///< the first rank that ended badly
  std::string how;      ///< how that rank ended
  std::string failure;  ///< as reported to the control plane
  bool spoke = false;   ///< rank 0 has printed the reason
  bool bad_spoke = false;
  std::string last_words;
};

/// Targets of the process's signals: whatever runs at the moment.
struct LaunchListeners {
  std::atomic<ControlServer*> server = nullptr;
  std::atomic<RankProcesses*> processes = nullptr;  // the server may ask before they are all started
  std::atomic<bool> interrupted = false;
};

/// The rank processes of one run and the control plane that connects them, from start to end. When some die
/// and the others keep their state, the dead are started again and all ranks join a new control plane, which
/// knows nothing of the dead: a generation.
class LaunchedRun {
 public:
  /// `train`: arguments of each process. `restarts_used`: restarts of share.restarts used so far, earlier
  /// ones included; grows.
  LaunchedRun(const Share& share, const std::vector<std::string>& train, LaunchListeners& listeners,
              int& restarts_used);
  ~LaunchedRun();
  LaunchedRun(const LaunchedRun&) = delete;
  LaunchedRun& operator=(const LaunchedRun&) = delete;

  LaunchEnd run();

 private:
  using Steady = std::chrono::steady_clock;

  std::unique_ptr<ControlServer> serve(bool first);
  RankProcess process_of(int rank) const;
  void watch();
  void outlive();
  void begin_generation(const std::vector<int>& dead, const std::vector<int>& living);
  void await_reason(int bad) const;

  Share share_;
  std::vector<std::string> train_;
  LaunchListeners& listeners_;
  int& restarts_used_;
  int generation_ = 0;
  bool began_ = false;  ///< some slot, in an earlier generation
  std::unique_ptr<ControlServer> server_;
  std::optional<RankProcesses> processes_;
  std::optional<Steady::time_point> bad_since_;
};

/// Time in which the control plane may report why a process ended.
constexpr std::chrono::milliseconds kSaidWithin{1500};
constexpr std::chrono::milliseconds kPollEvery{20};

LaunchedRun::LaunchedRun(const Share& share, const std::vector<std::string>& train,
                         LaunchListeners& listeners, int& restarts_used)
    : share_(share),
      train_(train),
      listeners_(listeners),
      restarts_used_(restarts_used),
      generation_(restarts_used) {
  if (share_.first == 0) server_ = serve(true);
  listeners_.server = server_.get();
  std::vector<RankProcess> all;
  for (int i = 0; i < share_.here; ++i) all.push_back(process_of(share_.first + i));
  processes_.emplace(share_.program, train_, all);
  listeners_.processes = &*processes_;
}

LaunchedRun::~LaunchedRun() {
  listeners_.server = nullptr;
  server_.reset();  // it may ask how a process ended
  listeners_.processes = nullptr;
}

std::unique_ptr<ControlServer> LaunchedRun::serve(bool first) {
  ControlServerSpec spec;
  spec.ranks = share_.world;
  spec.token = share_.token;
  spec.outlives_deaths = share_.restarts > 0;
  spec.describe_exit = [this](int rank) {
    const RankProcesses* processes = listeners_.processes.load();
    return processes == nullptr ? std::string() : processes->describe_exit(rank);
  };
  const bool given = first && !share_.control.empty();
  if (given) {
    spec.address = "0.0.0.0";
    spec.port = control_endpoint(share_.control).port;
  }
  auto server = std::make_unique<ControlServer>(std::move(spec));
  if (!given) share_.control = fmt::format("127.0.0.1:{}", server->port());
  return server;
}

RankProcess LaunchedRun::process_of(int rank) const {
  RankProcess process{
      rank,
      {fmt::format("TENON_RANK={}", rank), fmt::format("TENON_RANKS={}", share_.world),
       fmt::format("TENON_LOCAL_RANKS={}", share_.here), fmt::format("TENON_CONTROL={}", share_.control),
       fmt::format("TENON_TOKEN={}", share_.token), "TENON_LAUNCHED=1"}};
  if (share_.restarts > 0) process.environment.push_back(fmt::format("TENON_GENERATION={}", generation_));
  return process;
}

LaunchEnd LaunchedRun::run() {
  watch();
  LaunchEnd outcome;
  outcome.bad = processes_->first_bad_rank();
  await_reason(outcome.bad);
  if (server_) outcome.failure = server_->failed() ? server_->failure() : server_->interruption();
  outcome.status = std::max(server_ ? server_->failure_status() : 0, processes_->exit_status());
  outcome.spoke = processes_->spoke_for_itself(0);
  if (outcome.bad >= 0) {
    outcome.how = processes_->describe_exit(outcome.bad);
    outcome.bad_spoke = processes_->spoke_for_itself(outcome.bad);
    outcome.last_words = processes_->last_words(outcome.bad);
  }
  return outcome;
}

/// Runs until all have ended; after a failure the remaining processes are killed when their time is over.
void LaunchedRun::watch() {
  while (!processes_->poll(kPollEvery)) {
    const bool failed = server_ != nullptr && server_->failed();
    if (server_ != nullptr && !failed && !server_->interruption().empty()) {
      outlive();
      continue;
    }
    const int bad = processes_->first_bad_rank();
    if (bad < 0 && !failed) continue;
    if (!bad_since_) bad_since_ = Steady::now();
    const auto passed = Steady::now() - *bad_since_;
    if (server_ != nullptr && bad >= 0 && !failed && passed > kSaidWithin) {
      const std::string how = processes_->describe_exit(bad) + " without a word to the others";
      if (share_.restarts > 0) {
        server_->interrupt(bad, how);
      } else {
        server_->fail(bad, 1, how);
      }
    }
    if (base::seconds(passed) > share_.kill_after) processes_->kill_all();
  }
}

/// The run is interrupted: once every rank has ended or holds its state, the next generation begins.
void LaunchedRun::outlive() {
  if (restarts_used_ >= share_.restarts || listeners_.interrupted) return server_->give_up();
  if (!bad_since_) bad_since_ = Steady::now();
  const std::vector<int> held = server_->held();
  std::vector<int> dead, living, silent;
  for (int rank = share_.first; rank < share_.first + share_.here; ++rank) {
    const bool holds = std::find(held.begin(), held.end(), rank) != held.end();
    (processes_->ended(rank) ? dead : holds ? living : silent).push_back(rank);
  }
  if (silent.empty()) return living.empty() ? server_->give_up() : begin_generation(dead, living);
  // No rank may return later to a run that has continued without it.
  if (base::seconds_since(*bad_since_) <= share_.kill_after) return;
  for (const int rank : silent) processes_->kill(rank);
}

void LaunchedRun::begin_generation(const std::vector<int>& dead, const std::vector<int>& living) {
  ++restarts_used_;
  ++generation_;
  bad_since_.reset();
  began_ = began_ || server_->any_slot_begun();
  const std::string what =
      dead.empty() ? "no process has died"
                   : fmt::format("{} {} started again", ranks_text(dead), dead.size() == 1 ? "is" : "are");
  std::cerr << fmt::format("tenon launch: {}; {}, {} {} on ({} of {})\n", server_->interruption(), what,
                           ranks_text(living), living.size() == 1 ? "lives" : "live", restarts_used_,
                           share_.restarts);
  share_.token = random_control_token();
  std::unique_ptr<ControlServer> next = serve(false);
  listeners_.server = next.get();
  std::swap(next, server_);
  if (began_ && std::find(train_.begin(), train_.end(), "--resume") == train_.end())
    train_.emplace_back("--resume");
  next->resume_ranks({generation_, share_.control, share_.token, began_});
  for (const int rank : dead) processes_->start_again(process_of(rank), train_);
}

/// A death that ended the run may not have been examined yet.
void LaunchedRun::await_reason(int bad) const {
  const auto until = Steady::now() + kSaidWithin;
  const auto known = [&] { return server_->failed() || !server_->interruption().empty(); };
  while (server_ != nullptr && bad >= 0 && !known() && Steady::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void declare_launch(po::options_description& options) {
  options.add_options()("ranks,n", po::value<int>()->default_value(0),
                        "N  ranks to start on this machine; short: -n N");
  options.add_options()("transport", po::value<std::string>()->default_value("socket"),
                        "TYPE  socket; or nccl; or mpi, openmpi, mpich (then their mpirun starts the ranks)");
  options.add_options()("world", po::value<int>()->default_value(0),
                        "W  ranks of the whole run, when other machines start the rest");
  options.add_options()("first", po::value<int>()->default_value(0),
                        "F  number of the first rank started here");
  options.add_options()(
      "control", po::value<std::string>()->default_value(""),
      "HOST:PORT  the control plane, on the machine that starts rank 0; needed with --world");
  options.add_options()(
      "restarts", po::value<int>()->default_value(0),
      "R  times that ranks which die are started again, while the others keep what they have (or, where "
      "they cannot, all ranks from the newest checkpoint)");
  options.add_options()("kill-after", po::value<double>()->default_value(30),
                        "S  seconds that ranks have to end by themselves after a failure");
}

std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::string token() {
  if (const char* given = std::getenv("TENON_TOKEN")) return given;
  return random_control_token();
}

/// Debian installs each vendor's launcher under its own name, and one of them as mpirun.
std::string mpirun_of(const std::string& vendor) {
  const std::string named = "mpirun." + vendor;
  const bool there =
      vendor != "mpi" && std::system(("command -v " + named + " >/dev/null 2>&1").c_str()) == 0;
  return there ? named : "mpirun";
}

bool is_open_mpi(const std::string& mpirun) {
  return std::system((mpirun + " --version 2>/dev/null | grep -qE 'Open MPI|OpenRTE'").c_str()) == 0;
}

constexpr const char* kBecome = "--become";

/// `tenon launch --become PARENT PROGRAM WORDS...`: becomes that program, which ends with the process that
/// started it.
int become(const std::vector<std::string>& arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (arguments.size() < 3 || std::to_string(::getppid()) != arguments[1]) return 1;
  std::vector<std::string> line(arguments.begin() + 2, arguments.end());
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  base::restore_signals_for_exec();
  ::execvp(words[0], words.data());
  fail_run(fmt::format("{} cannot be started; install Open MPI or MPICH (openmpi-bin or mpich on Debian)",
                       line[0]));
}

/// Starts mpirun in a process group of its own, so that the terminal's signals do not reach it: Open MPI's
/// mpirun kills its ranks a second after SIGINT or SIGTERM, whatever they are writing. It passes SIGUSR1 on,
/// and the ranks stop by themselves.
int run_mpirun(const std::string& vendor, int ranks, const std::vector<std::string>& train) {
  base::ChildRequest request;
  request.program = this_program();
  const std::string program = mpirun_of(vendor);
  request.arguments = {"launch", kBecome, std::to_string(::getpid()), program, "-n", std::to_string(ranks)};
  // Open MPI counts cores and refuses root; MPICH does neither.
  const bool open_mpi = is_open_mpi(program);
  if (open_mpi) {
    request.arguments.insert(request.arguments.end(), {"--oversubscribe", "--bind-to", "none"});
    if (::geteuid() == 0) request.arguments.emplace_back("--allow-run-as-root");
  }
  request.arguments.push_back(this_program());
  request.arguments.insert(request.arguments.end(), train.begin(), train.end());
  std::atomic<bool> asked{false}, insisted{false};
  const base::StopListener signals([&](const std::string&, bool) { asked = true; }, [&] { insisted = true; });
  base::ChildFiles files;
  files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  base::ChildProcess mpirun;
  if (const int error = mpirun.start(request, files); error != 0)
    fail_run(fmt::format("cannot start '{}': {}", request.program.string(), std::strerror(error)));
  while (!mpirun.ended()) {
    if (asked.exchange(false)) mpirun.signal(open_mpi ? SIGUSR1 : SIGINT);
    if (insisted.exchange(false)) mpirun.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const int status = mpirun.status();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Share share_of(const Parsed& parsed) {
  Share share;
  share.here = parsed.values["ranks"].as<int>();
  share.world = parsed.values["world"].as<int>();
  share.first = parsed.values["first"].as<int>();
  share.control = parsed.values["control"].as<std::string>();
  share.kill_after = parsed.values["kill-after"].as<double>();
  share.restarts = parsed.values["restarts"].as<int>();
  if (share.restarts < 0) fail_config("tenon launch: --restarts counts from 0");
  if (share.here < 1) fail_config("tenon launch: how many ranks? e.g. tenon launch -n 2 -- train CONFIG");
  if (share.world == 0) share.world = share.here;
  if (share.first < 0 || share.first + share.here > share.world) {
    fail_config(fmt::format("tenon launch: ranks {} ... {} are not in a world of {}; see --first and --world",
                            share.first, share.first + share.here - 1, share.world));
  }
  const bool several = share.world > share.here;
  if (several && share.restarts > 0) {
    fail_config(
        "tenon launch: --restarts is for ranks of one machine; elsewhere the launcher of the machines starts "
        "them again, with --resume");
  }
  if (several && share.control.empty()) {
    fail_config("tenon launch: --world needs --control HOST:PORT, the same on every machine");
  }
  if (several && std::getenv("TENON_TOKEN") == nullptr) {
    fail_config(
        "tenon launch: --world needs the environment variable TENON_TOKEN, one secret word, the same on "
        "every machine");
  }
  share.token = token();
  share.program = this_program();
  return share;
}

/// Prints failures that no rank has reported on the terminal.
void report(const LaunchEnd& outcome, int first) {
  if (!outcome.failure.empty() && !outcome.spoke) std::cerr << "tenon launch: " << outcome.failure << "\n";
  if (outcome.bad >= first && outcome.failure.empty() && (outcome.bad > first || !outcome.bad_spoke)) {
    std::cerr << fmt::format("tenon launch: rank {}: {}. It wrote:\n{}", outcome.bad, outcome.how,
                             outcome.last_words);
  }
}

/// A run that failed, or lost a device, may be continued by new processes; one that was refused
/// (configuration, plugins) would be refused again.
bool may_restart(const LaunchEnd& outcome, const LaunchListeners& listeners) {
  const bool failed = outcome.status == static_cast<int>(ErrorKind::kRun);
  const bool lost = outcome.status == static_cast<int>(ErrorKind::kDeviceLost);
  return (failed || lost) && !listeners.interrupted;
}

/// The command line with `--` and `train` where they belong, for one that lacks them: its words up to the
/// first one that is `train` or a TOML file are those of launch, and -n may follow it.
std::string with_train(const std::vector<std::string>& arguments) {
  std::vector<std::string> launch, train;
  bool counted = false, began = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--" || (!began && word == "train")) {
      began = true;
      continue;
    }
    began = began || word.ends_with(".toml");
    const bool apart = word == "-n" || word == "--ranks";
    const bool count = apart || word.starts_with("--ranks=") || (word.starts_with("-n") && word.size() > 2);
    counted = counted || count;
    (count || !began ? launch : train).push_back(word);
    if (apart && i + 1 < arguments.size()) launch.push_back(arguments[++i]);
  }
  if (!counted) launch.insert(launch.begin(), {"-n", "2"});
  if (train.empty() || !train[0].ends_with(".toml")) train.insert(train.begin(), "CONFIG");
  launch.insert(launch.begin(), "launch");
  launch.insert(launch.end(), {"--", "train"});
  launch.insert(launch.end(), train.begin(), train.end());
  return quoted_command_line(launch);
}

int run_launch(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == kBecome) return become(arguments);
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const auto word = std::find_if(arguments.begin(), dashes, [](const std::string& argument) {
    return argument == "train" || argument.ends_with(".toml");
  });
  if (word != dashes) {
    fail_config(
        fmt::format("tenon launch: '{}' belongs after '--', with the command that each rank runs: "
                    "{}",
                    *word, with_train(arguments)));
  }
  const Parsed parsed = parse(kLaunch, {}, {arguments.begin(), dashes});
  if (parsed.helped) return 0;
  std::vector<std::string> train(dashes == arguments.end() ? dashes : dashes + 1, arguments.end());
  if (train.empty() || train[0] != "train") {
    fail_config(fmt::format("tenon launch: {}: {}",
                            train.empty() ? "what to start? write the command of each rank after '--'"
                                          : fmt::format("ranks run the command train, not '{}'", train[0]),
                            with_train(arguments)));
  }
  const std::string transport = parsed.values["transport"].as<std::string>();
  const bool vendor = transport == "openmpi" || transport == "mpich";
  train.insert(train.end(), {"--set", "transport.type=" + transport});
  const Share share = share_of(parsed);
  if (transport == "mpi" || vendor) {
    if (share.world != share.here)
      fail_config("tenon launch: with MPI several machines are the business of mpirun or the scheduler");
    if (share.restarts > 0) {
      fail_config(
          "tenon launch: --restarts needs the transport socket; with MPI the scheduler starts ranks again, "
          "with "
          "--resume");
    }
    return run_mpirun(transport, share.here, train);
  }

  LaunchListeners listeners;
  std::optional<base::StopListener> signals;
  signals.emplace(
      [&](const std::string& name, bool) {
        listeners.interrupted = true;
        if (ControlServer* server = listeners.server.load())
          return server->request(kControlStop | kControlInterrupt, name);
        // Another machine runs the server; a rank passes the request on.
        if (RankProcesses* processes = listeners.processes.load()) processes->signal_all(SIGTERM);
      },
      // The ranks received the signal from the terminal, too, and know whether they are saving: this process
      // ends after them.
      [] {});
  int used = 0;
  LaunchEnd outcome = LaunchedRun(share, train, listeners, used).run();
  while (used < share.restarts && may_restart(outcome, listeners)) {
    ++used;
    std::cerr << fmt::format(
        "tenon launch: {}; all ranks start again from the newest checkpoint ({} of {})\n",
        !outcome.failure.empty() ? outcome.failure : fmt::format("rank {}: {}", outcome.bad, outcome.how),
        used, share.restarts);
    if (std::find(train.begin(), train.end(), "--resume") == train.end()) train.push_back("--resume");
    outcome = LaunchedRun(share, train, listeners, used).run();
  }
  signals.reset();
  report(outcome, share.first);
  if (share.restarts > 0 && may_restart(outcome, listeners))
    std::cerr << fmt::format("tenon launch: {} restart(s) were allowed and used\n", share.restarts);
  return outcome.status;
}

}  // namespace

const Command kLaunch{"launch", "-n N [options] -- train CONFIG [options]",
                      "Start the ranks of a run as processes, on this machine or on several.", run_launch,
                      declare_launch};

}  // namespace tenon::cli
