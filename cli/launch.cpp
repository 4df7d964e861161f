// tenon launch: the ranks of one run as processes, on this machine or as this machine's share of a larger
// run.
#include "command_line.hpp"
#include "launched_run.hpp"

#include "base/child_process.hpp"
#include "base/signals.hpp"
#include "control/control_endpoint.hpp"
#include "control/control_server.hpp"

#include <tenon/control.hpp>
#include <tenon/error.hpp>

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
#include <optional>
#include <thread>

namespace tenon::cli {
namespace {

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

int run_launch(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == kBecome) return become(arguments);
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
