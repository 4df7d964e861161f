// tenon launch: the ranks of one run as processes, on this machine or as this machine's share of a larger
// run.
#include "command_line.hpp"
#include "rank_processes.hpp"

#include "comm/control_endpoint.hpp"
#include "comm/control_server.hpp"
#include "train/signals.hpp"

#include <tenon/control.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

namespace tenon::cli {
namespace {

using Steady = std::chrono::steady_clock;

/// How long the control plane may take to say why a process ended.
constexpr std::chrono::milliseconds kSaidWithin{1500};

void declare_launch(po::options_description& options) {
  options.add_options()("ranks,n", po::value<int>()->default_value(0),
                        "N  ranks to start on this machine; short: -n N");
  options.add_options()("transport", po::value<std::string>()->default_value("socket"),
                        "TYPE  socket; or mpi, openmpi, mpich (then their mpirun starts the ranks)");
  options.add_options()("world", po::value<int>()->default_value(0),
                        "W  ranks of the whole run, when other machines start the rest");
  options.add_options()("first", po::value<int>()->default_value(0),
                        "F  number of the first rank started here");
  options.add_options()(
      "control", po::value<std::string>()->default_value(""),
      "HOST:PORT  the control plane, on the machine that starts rank 0; needed with --world");
  options.add_options()(
      "restarts", po::value<int>()->default_value(0),
      "R  times that all ranks are started again, from the newest checkpoint, when one dies");
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

[[noreturn]] void start_mpirun(const std::string& vendor, int ranks, const std::vector<std::string>& train) {
  const std::string mpirun = mpirun_of(vendor);
  std::vector<std::string> line{mpirun, "-n", std::to_string(ranks)};
  // Open MPI counts cores and refuses root; MPICH does neither.
  if (std::system((mpirun + " --version 2>/dev/null | grep -qE 'Open MPI|OpenRTE'").c_str()) == 0) {
    line.insert(line.end(), {"--oversubscribe", "--bind-to", "none"});
    if (::geteuid() == 0) line.push_back("--allow-run-as-root");
  }
  line.push_back(this_program());
  line.insert(line.end(), train.begin(), train.end());
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  fail_run(fmt::format("{} cannot be started; install Open MPI or MPICH (openmpi-bin or mpich on Debian)",
                       mpirun));
}

struct Share {
  int here = 0, world = 0, first = 0;
  std::string control, token;
  double kill_after = 30;
  int restarts = 0;
};

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
  return share;
}

std::unique_ptr<ControlServer> serve(Share& share, std::function<std::string(int)> how_it_ended) {
  if (share.first != 0) return nullptr;
  ControlServerSpec spec;
  spec.ranks = share.world;
  spec.token = share.token;
  spec.how_it_ended = std::move(how_it_ended);
  if (!share.control.empty()) {
    spec.address = "0.0.0.0";
    spec.port = control_endpoint(share.control).port;
  }
  auto server = std::make_unique<ControlServer>(std::move(spec));
  if (share.control.empty()) share.control = fmt::format("127.0.0.1:{}", server->port());
  return server;
}

std::vector<RankProcess> rank_processes(const Share& share) {
  std::vector<RankProcess> processes;
  for (int i = 0; i < share.here; ++i) {
    const int rank = share.first + i;
    processes.push_back(
        {rank,
         {fmt::format("TENON_RANK={}", rank), fmt::format("TENON_RANKS={}", share.world),
          fmt::format("TENON_LOCAL_RANKS={}", share.here), fmt::format("TENON_CONTROL={}", share.control),
          fmt::format("TENON_TOKEN={}", share.token), "TENON_LAUNCHED=1"}});
  }
  return processes;
}

/// Until all have ended; after a failure what still runs is killed when its time is over.
void watch(RankProcesses& processes, ControlServer* server, double kill_after) {
  std::optional<Steady::time_point> bad_since;
  while (!processes.poll(std::chrono::milliseconds(20))) {
    const int bad = processes.first_bad_rank();
    if (bad < 0 && (server == nullptr || !server->failed())) continue;
    if (!bad_since) bad_since = Steady::now();
    const auto passed = Steady::now() - *bad_since;
    if (server != nullptr && bad >= 0 && !server->failed() && passed > kSaidWithin)
      server->fail(bad, 1, processes.how_it_ended(bad) + " without a word to the others");
    if (std::chrono::duration<double>(passed).count() > kill_after) processes.kill_all();
  }
}

/// A death that ended everything may not have been looked into yet.
void await_reason(const ControlServer* server, int bad) {
  const auto until = Steady::now() + kSaidWithin;
  while (server != nullptr && bad >= 0 && !server->failed() && Steady::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

/// How all ranks together ended, once.
struct LaunchEnd {
  int status = 0;
  int bad = -1;         ///< the first rank that ended badly
  std::string how;      ///< that rank
  std::string failure;  ///< as the control plane heard it
  bool spoke = false;   ///< rank 0 has said why
  bool bad_spoke = false;
  std::string last_words;
};

/// Of the process's signals, whatever runs at the moment.
struct LaunchListeners {
  std::atomic<ControlServer*> server = nullptr;
  std::atomic<RankProcesses*> processes = nullptr;  // the server may ask before they are all started
  std::atomic<bool> interrupted = false;
};

LaunchEnd run_once(Share share, const std::vector<std::string>& train, LaunchListeners& listeners) {
  auto server = serve(share, [&listeners](int rank) {
    const RankProcesses* processes = listeners.processes.load();
    return processes == nullptr ? std::string() : processes->how_it_ended(rank);
  });
  listeners.server = server.get();
  LaunchEnd outcome;
  {
    RankProcesses processes(this_program(), train, rank_processes(share));
    listeners.processes = &processes;
    watch(processes, server.get(), share.kill_after);
    outcome.bad = processes.first_bad_rank();
    await_reason(server.get(), outcome.bad);
    outcome.failure = server ? server->failure() : std::string();
    outcome.status = std::max(server ? server->failure_status() : 0, processes.exit_status());
    outcome.spoke = processes.spoke_for_itself(0);
    if (outcome.bad >= 0) {
      outcome.how = processes.how_it_ended(outcome.bad);
      outcome.bad_spoke = processes.spoke_for_itself(outcome.bad);
      outcome.last_words = processes.last_words(outcome.bad);
    }
    listeners.server = nullptr;
    server.reset();
    listeners.processes = nullptr;
  }
  return outcome;
}

/// What no rank has said on the terminal.
void report(const LaunchEnd& outcome, int first) {
  if (!outcome.failure.empty() && !outcome.spoke) std::cerr << "tenon launch: " << outcome.failure << "\n";
  if (outcome.bad >= first && outcome.failure.empty() && (outcome.bad > first || !outcome.bad_spoke)) {
    std::cerr << fmt::format("tenon launch: rank {}: {}. It wrote:\n{}", outcome.bad, outcome.how,
                             outcome.last_words);
  }
}

/// A run that failed may be continued; one that was refused (configuration, plugins) would be refused again.
bool may_restart(const LaunchEnd& outcome, const LaunchListeners& listeners) {
  return outcome.status == 1 && !listeners.interrupted;
}

int run_launch(const std::vector<std::string>& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const Parsed parsed = parse(kLaunch, {}, {arguments.begin(), dashes});
  if (parsed.helped) return 0;
  std::vector<std::string> train(dashes == arguments.end() ? dashes : dashes + 1, arguments.end());
  if (train.empty() || train[0] != "train") {
    fail_config("tenon launch: what to start? e.g. tenon launch -n 2 -- train CONFIG [options]");
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
    start_mpirun(transport, share.here, train);
  }

  // Before any thread: it blocks the signals for all that are started after it.
  LaunchListeners listeners;
  std::optional<train::SignalWatcher> signals;
  signals.emplace([&](const std::string& name) {
    listeners.interrupted = true;
    if (ControlServer* server = listeners.server.load())
      return server->request(kControlStop | kControlInterrupt, name);
    // Another machine runs the server; a rank passes the wish on.
    if (RankProcesses* processes = listeners.processes.load()) processes->signal_all(SIGTERM);
  });
  LaunchEnd outcome = run_once(share, train, listeners);
  for (int restart = 1; restart <= share.restarts && may_restart(outcome, listeners); ++restart) {
    std::cerr << fmt::format(
        "tenon launch: {}; all ranks start again from the newest checkpoint ({} of {})\n",
        !outcome.failure.empty() ? outcome.failure : fmt::format("rank {}: {}", outcome.bad, outcome.how),
        restart, share.restarts);
    if (std::find(train.begin(), train.end(), "--resume") == train.end()) train.push_back("--resume");
    outcome = run_once(share, train, listeners);
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
