// A child process with a time limit: what it wrote to descriptor 3, its last words, and how it ended. The
// probe and the conformance kit run plugins in it, so that a crash, an exit or a hang costs nothing. Spawned,
// never forked: threads may exist.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace tenon::plugin {

/// Descriptor that the child answers on; its standard output belongs to the plugin.
inline constexpr int kAnswerFd = 3;

struct ChildRequest {
  std::filesystem::path program;
  std::vector<std::string> arguments;    ///< without the program's name
  std::vector<std::string> environment;  ///< "NAME=value", beside or in place of this process's own
  std::chrono::milliseconds time_limit{10000};
};

struct ChildResult {
  bool ended = false;  ///< false: the time limit passed first, and it was killed with all that it started
  int status = 0;      ///< of waitpid, when ended
  std::string answer;  ///< what it wrote to kAnswerFd
  std::string words;   ///< what it wrote to standard output and standard error
};

/// Error(kRun) when no child can be started.
ChildResult run_child(const ChildRequest& request);

/// "ended the process with signal 11 (Segmentation fault)", "did not end within 10 s, it was killed", ...
std::string how_it_ended(const ChildResult& result, std::chrono::milliseconds time_limit);
/// " Its last words: TEXT" on one line, cut; "" when there were none.
std::string last_words(const std::string& words);

}  // namespace tenon::plugin
