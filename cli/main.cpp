// The program `tenon`. Exit status: 0 ok, 1 failed run, 2 usage or configuration error, 3 plugin error, 4
// lost device.
#include "command_line.hpp"

#include "base/signals.hpp"
#include "base/standard_streams.hpp"
#include "plugin/guard.hpp"
#include "plugin/process_end.hpp"
#include "record/build_info.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <system_error>

namespace {

using tenon::cli::Command;

void print_help() {
  std::cout << "Tenon: training in which every decision is a plugin.\n\nUsage: tenon COMMAND "
               "[options]\n\nCommands:\n";
  for (const Command* command : tenon::cli::commands())
    std::cout << fmt::format("  {:<12} {}\n", command->name, command->summary);
  std::cout << "\n`tenon COMMAND --help` explains a command; `tenon --version` names this build.\n"
               "Exit status: 0 ok, 1 failed run, 2 usage or configuration error, 3 plugin error, 4 lost "
               "device.\n";
}

int run(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help();
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    const tenon::BuildInfo build = tenon::build_info();
    std::cout << fmt::format("tenon {} ({}{}, {}, {})\n", build.version, build.git,
                             build.git_dirty ? ", modified" : "", build.compiler, build.build_type);
    return 0;
  }
  return tenon::cli::find_command(words[0]).run({words.begin() + 1, words.end()});
}

/// The text of an exception: for a thread that the system does not start it says only that something is
/// unavailable.
std::string reason(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr || system->code() != std::errc::resource_unavailable_try_again) return error.what();
  return fmt::format(
      "no further thread can be started ({}); raise the limits of processes and of address space (ulimit -u, "
      "ulimit -v)",
      error.what());
}

int guarded_run(const std::vector<std::string>& words) {
  try {
    try {
      return run(words);
    } catch (...) {
      tenon::rethrow_noted_call();
    }
  } catch (const tenon::Error& error) {
    std::cerr << "tenon: " << error.what() << "\n";
    return error.exit_status();
  } catch (const std::exception& error) {
    std::cerr << "tenon: " << reason(error) << "\n";
    return 1;
  } catch (...) {
    std::cerr << "tenon: an object was thrown that is not a std::exception\n";
    return 1;
  }
}

/// Threads of OpenMP wait for the next piece of work by spinning, by default for milliseconds: on a machine
/// that does anything else, the spinning thread holds the processor that the late one needs, and a step takes
/// ten times as long. Starts the program again with a short spin (GOMP_SPINCOUNT=2000), since the runtime
/// reads its settings before main; does nothing where the user chose one (GOMP_SPINCOUNT, OMP_WAIT_POLICY) or
/// where the program cannot be started again.
void shorten_thread_waits(char** arguments) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // Set before exec, this is also what stops the second start from starting a third.
  if (::setenv("GOMP_SPINCOUNT", "2000", 1) == 0) ::execv("/proc/self/exe", arguments);
}

}  // namespace

int main(int argc, char** argv) {
  tenon::base::prepare();
  shorten_thread_waits(argv);
  try {
    // Lives until the process is gone: signals that come while it ends belong to the request that was obeyed.
    [[maybe_unused]] static const auto* const signals = new tenon::base::Signals(true);
    tenon::base::StandardOutput output;
    tenon::plugin::install_fatal_signal_handler();
    tenon::plugin::install_exit_handler();
    tenon::plugin::end_process_when_plugins_hang();
    const int status = guarded_run({argv + 1, argv + argc});
    const std::string failure = output.failure();
    if (failure.empty()) return status;
    std::cerr << "tenon: " << failure << "\n";
    return std::max(1, status);
  } catch (const std::exception& error) {  // no thread can be started
    std::cerr << "tenon: " << reason(error) << "\n";
    return 1;
  }
}
