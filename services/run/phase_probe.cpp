// One write(2) per line, so that a killed process leaves every phase that it entered.
#include "run/phase_probe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>

namespace tenon::train {

PhaseProbe::PhaseProbe() {
  const char* rank = std::getenv("TENON_RANK");
  if (const char* log = std::getenv("TENON_PHASE_LOG")) {
    const std::string path = rank == nullptr ? log : std::string(log) + "." + rank;
    file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  if (const char* at = std::getenv("TENON_KILL_AT")) {
    std::string_view text = at;
    if (const auto who = text.find('@'); who != std::string_view::npos) {
      const char* generation = std::getenv("TENON_GENERATION");
      const bool replaced = generation != nullptr && std::string_view(generation) != "0";
      if (rank == nullptr || text.substr(who + 1) != rank || replaced) return;
      text = text.substr(0, who);
    }
    const auto colon = text.find(':');
    kill_phase_ = text.substr(0, colon);
    long count = 1;
    if (colon != std::string_view::npos)
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), count);
    kill_count_ = count;
  }
}

void PhaseProbe::enter(std::string_view phase) {
  if (!active()) return;
  if (file_) {
    const std::string line = std::string(phase) + "\n";
    [[maybe_unused]] const auto written = ::write(file_.get(), line.data(), line.size());
  }
  if (phase == kill_phase_ && --kill_count_ == 0) ::kill(::getpid(), SIGKILL);
}

}  // namespace tenon::train
