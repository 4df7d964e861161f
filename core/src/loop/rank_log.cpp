// The one file that includes spdlog. Its registry of global loggers stays unused: a log belongs to its rank.
#include "loop/rank_log.hpp"

#include <tenon/error.hpp>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <cstdlib>

namespace tenon {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

LogLevel log_level_from_environment() {
  const char* value = std::getenv("TENON_LOG");
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "info") return LogLevel::kInfo;
  if (text == "debug") return LogLevel::kDebug;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  fail_config("TENON_LOG: expected debug, info, warning or error, found '" + std::string(text) + "'");
}

struct RankLog::Impl {
  Impl(const std::string& path, int rank_number)
      : logger("tenon", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path)), rank(rank_number) {}

  spdlog::logger logger;
  int rank;
};

RankLog::RankLog(const std::string& folder, int rank, LogLevel level) {
  const std::string path = folder + "/log.rank" + std::to_string(rank) + ".txt";
  try {
    impl_ = std::make_unique<Impl>(path, rank);
  } catch (const spdlog::spdlog_ex& error) {
    fail_run("cannot open the log " + path + ": " + error.what());
  }
  impl_->logger.set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
  impl_->logger.set_level(spdlog_level(level));
  impl_->logger.flush_on(spdlog::level::warn);
}

RankLog::~RankLog() {
  flush();
}

bool RankLog::enabled(LogLevel level) const {
  return impl_->logger.should_log(spdlog_level(level));
}

void RankLog::write(LogLevel level, std::string_view component, std::int64_t step, std::string_view message) {
  if (!enabled(level)) return;
  std::string text = "rank " + std::to_string(impl_->rank);
  if (step >= 0) text += " step " + std::to_string(step);
  text += " [";
  text += component;
  text += "] ";
  for (const char c : message) {
    text += c;
    if (c == '\n') text += "    ";
  }
  impl_->logger.log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
}

void RankLog::flush() {
  impl_->logger.flush();
}

}  // namespace tenon
