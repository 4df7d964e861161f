// An attempt in a temporary folder that goes on from a checkpoint of another one, which stays untouched.
// Serves `tenon replay`.
#pragma once

#include <tenon/files.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace tenon::cli {

/// Checkpoint from which slot `step` of an attempt is computed again: `from`, or the newest at or before
/// `step` that is intact; damaged ones are named on standard error. 0 without a checkpoint of slot 0: from
/// the initial weights. Throws Error(kConfig) that names the nearest one.
std::int64_t replay_start(FileSystem& files, const std::string& attempt, std::int64_t step,
                          std::optional<std::int64_t> from);

class ReplayAttempt {
 public:
  /// Links or copies what a resume of `attempt` from the checkpoint of slot `start` reads; nothing where it
  /// has no such checkpoint. Throws Error(kRun).
  ReplayAttempt(FileSystem& files, const std::string& attempt, std::int64_t start);
  ~ReplayAttempt();
  ReplayAttempt(const ReplayAttempt&) = delete;
  ReplayAttempt& operator=(const ReplayAttempt&) = delete;

  /// For TrainRequest::run_dir.
  const std::string& folder() const { return folder_; }
  /// Whether there is an attempt to resume; else the run begins at slot 0.
  bool resumes() const { return resumes_; }

 private:
  void fill(FileSystem& files, const std::string& attempt, std::int64_t start);
  void remove();

  std::string folder_;
  bool resumes_ = false;
};

}  // namespace tenon::cli
