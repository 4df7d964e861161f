// log.rank<r>.txt: messages of a rank and its plugins, one line each with time, level, rank, step and
// component.
#pragma once

#include <tenon/host.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tenon {

/// Returns the level in `TENON_LOG`: debug, info, warning, error; info when unset or empty. Throws
/// Error(kConfig) on anything else.
LogLevel log_level_from_environment();

/// Thread-safe: actors and workers of the rank share it. It appends, so a resumed run continues the file.
/// Lines from warning up reach the file at once, others at the latest with flush() or destruction.
class RankLog {
 public:
  /// Throws Error(kRun) when `folder`/log.rank<rank>.txt cannot be opened.
  RankLog(const std::string& folder, int rank, LogLevel level);
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  bool enabled(LogLevel level) const;
  /// component: "sync.NAME", "core"; step: slot now running, -1 outside of slots. Further lines of a message
  /// are indented.
  void write(LogLevel level, std::string_view component, std::int64_t step, std::string_view message);
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon
