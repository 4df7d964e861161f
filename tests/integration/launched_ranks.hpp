// Processes of `tenon launch`, as seen from outside by a test.
#pragma once

#include "run_program.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace tenon::integration {

/// Hashes of the weights and of the whole state.
inline std::pair<std::string, std::string> hashes_of(const Scratch& scratch) {
  return {scratch.summary("weights_hash"), scratch.summary("state_hash")};
}

/// Waits until the newest attempt has a checkpoint, so that the run has started.
inline void await_checkpoint(const Scratch& scratch) {
  for (int i = 0; i < 3000; ++i) {
    const fs::path folder = scratch / "runs/tiny/latest/checkpoints";
    if (fs::exists(folder) && !fs::is_empty(folder)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "no checkpoint within 15 s";
}

/// Process of rank `rank`, by its environment.
inline pid_t process_of(int rank, const Scratch& scratch) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (fs::read_symlink(entry.path() / "cwd", gone) != scratch.folder()) continue;
    const std::string environment = read_file(entry.path() / "environ");
    if (environment.find("TENON_RANK=" + std::to_string(rank) + '\0') != std::string::npos)
      return std::stoi(name);
  }
  return -1;
}

}  // namespace tenon::integration
