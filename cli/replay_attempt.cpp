// A resumed run writes into its attempt, and puts damaged checkpoints aside: hence the links in a folder of
// its own. Files of checkpoints are never written again, so a link is as good as a copy.
#include "replay_attempt.hpp"

#include "record/run_files.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>
#include <vector>

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

/// In the order in which a resume prefers them: a later timeline first, then a later step.
template <typename PassOver>
std::vector<std::pair<std::int64_t, std::int64_t>> preferred(const CheckpointStore& store,
                                                             PassOver&& pass_over) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (const std::int64_t step : store.generations()) {
    try {
      all.emplace_back(store.open(step).timeline(), step);
    } catch (const Error& error) {
      pass_over(step, error);
    }
  }
  std::sort(all.rbegin(), all.rend());
  return all;
}

void link_or_copy(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    std::error_code unlinked;
    fs::create_hard_link(entry.path(), to / entry.path().filename(), unlinked);
    if (unlinked) fs::copy_file(entry.path(), to / entry.path().filename());
  }
}

}  // namespace

std::int64_t replay_start(FileSystem& files, const std::string& attempt, std::int64_t step,
                          std::optional<std::int64_t> from) {
  const CheckpointStore store(files, attempt + "/checkpoints", {});
  const std::vector<std::int64_t> there = store.generations();
  if (from && *from > step)
    fail_config(
        fmt::format("tenon replay: --from {} is after slot {}, which it should lead to", *from, step));
  if (from && *from == 0 && std::ranges::find(there, 0) == there.end()) return 0;
  if (from) {
    if (std::ranges::find(there, *from) == there.end())
      fail_config(fmt::format("tenon replay: {} has no checkpoint of slot {}; it has {}", attempt, *from,
                              there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))));
    store.verify(*from);
    return *from;
  }
  const auto pass_over = [](std::int64_t at, const Error& error) {
    std::cerr << fmt::format("tenon replay: checkpoint step-{} is passed over: {}\n", at, error.what());
  };
  for (const auto& candidate : preferred(store, pass_over)) {
    const std::int64_t at = candidate.second;
    if (at > step) continue;
    try {
      store.verify(at);
      return at;
    } catch (const Error& error) {
      pass_over(at, error);
    }
  }
  fail_config(fmt::format(
      "tenon replay: {} has no whole checkpoint at or before slot {}{}; --from 0 begins with "
      "the initial weights",
      attempt, step, there.empty() ? "" : fmt::format("; the nearest is that of slot {}", there.front())));
}

ReplayAttempt::ReplayAttempt(FileSystem& files, const std::string& attempt, std::int64_t start) {
  std::string pattern = (fs::temp_directory_path() / "tenon-replay-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    fail_run(fmt::format("tenon replay: no temporary folder {}: {}; TMPDIR names another place", pattern,
                         std::generic_category().message(errno)));
  folder_ = pattern;
  try {
    fill(files, attempt, start);
  } catch (const std::system_error& error) {
    remove();
    fail_run(
        fmt::format("tenon replay: the checkpoint cannot be linked or copied: {}; TMPDIR names a folder "
                    "with room for it",
                    error.what()));
  } catch (...) {
    remove();
    throw;
  }
}

void ReplayAttempt::fill(FileSystem& files, const std::string& attempt, std::int64_t start) {
  const CheckpointStore store(files, attempt + "/checkpoints", {});
  const auto all = preferred(store, [](std::int64_t, const Error&) {});
  const auto chosen = std::ranges::find(all, start, &std::pair<std::int64_t, std::int64_t>::second);
  if (chosen == all.end()) return;
  resumes_ = true;
  const fs::path to = fs::path(folder_) / "1";
  // Those that it was built on come after it.
  for (auto one = chosen; one != all.end(); ++one) {
    const std::string name = fmt::format("checkpoints/step-{}", one->second);
    link_or_copy(fs::path(attempt) / name, to / name);
  }
  for (const char* name : {"config.resolved.toml", "plugins.lock"}) {
    if (fs::exists(fs::path(attempt) / name)) fs::copy_file(fs::path(attempt) / name, to / name);
  }
  // The replay says itself where other kernels computed it.
  Manifest manifest = read_manifest(files, attempt);
  manifest.kernels.clear();
  write_manifest(files, to.string(), manifest);
}

void ReplayAttempt::remove() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

ReplayAttempt::~ReplayAttempt() {
  remove();
}

}  // namespace tenon::cli
