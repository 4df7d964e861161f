// Checks of observers: training is unaffected, files are written only below the run's folder, nothing is
// thrown however the run ends, and two of one type work in one run.
#include "subject.hpp"

#include <tenon/observer.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cfenv>
#include <fstream>
#include <set>

namespace tenon::conformance {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNobody = "observe=[{type = \"conformance_ending\"}]";

/// [[observe]] of a run with the observer under test `times` times.
std::string observe(Subject& subject, int times, int stop_after = 0) {
  Value own = subject.given().options;
  own.set("type", Value(subject.type()), {});
  std::string list = fmt::format("observe=[{{type = \"conformance_ending\", stop_after = {}}}", stop_after);
  for (int i = 0; i < times; ++i) list += ", " + own.inline_toml();
  return list + "]";
}

void changes_nothing(Subject& subject) {
  for (const int ranks : {1, 2}) {
    const RunResult without = subject.train_well(
        {.ranks = ranks, .sets = {kNobody}, .folder = fmt::format("without{}", ranks)}, "a run without it");
    const RunResult with =
        subject.train_well({.ranks = ranks, .folder = fmt::format("with{}", ranks)}, "a run with it");
    if (with.weights_hash != without.weights_hash || with.state_hash != without.state_hash) {
      fail(fmt::format(
          "training on {} rank{} gives weights_hash {} and state_hash {} with the observer, {} and {} "
          "without: "
          "observers read what they are shown, and change no weights, gradients or rounding modes",
          ranks, ranks == 1 ? "" : "s", with.weights_hash, with.state_hash, without.weights_hash,
          without.state_hash));
    }
    if (with.bytes_sent != without.bytes_sent)
      fail(fmt::format("ranks sent {} bytes with the observer and {} without", with.bytes_sent,
                       without.bytes_sent));
  }
  if (std::fegetround() != FE_TONEAREST) fail("it left another rounding mode behind");
}

std::set<std::string> files_below(const fs::path& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) files.insert(entry.path().string());
  return files;
}

void writes_in_its_folder(Subject& subject) {
  const fs::path room = subject.scratch() / "room";
  for (const char* name : {"work", "home", "tmp"}) fs::create_directories(room / name);
  subject.registry();  // plugin paths are resolved before the working folder changes
  ::setenv("HOME", (room / "home").c_str(), 1);
  ::setenv("TMPDIR", (room / "tmp").c_str(), 1);
  ::setenv("XDG_CACHE_HOME", (subject.scratch() / "cache").c_str(), 1);  // runs keep digests there
  fs::current_path(room / "work");
  const std::set<std::string> before = files_below(room);
  subject.train_well({.ranks = 2}, "a run");
  for (const std::string& file : files_below(room)) {
    if (before.count(file) == 0) {
      fail(fmt::format(
          "it wrote {}; an observer writes below RunInfo::folder, unless an option names another place",
          fs::relative(file, room).string()));
    }
  }
}

/// Log text of a run about observers that threw.
std::string reported(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("log.rank")) continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      const std::size_t at = line.find("failed and is disabled");
      if (at != std::string::npos) return line.substr(at);
    }
  }
  return "";
}

void ends_well(Subject& subject) {
  struct Ending {
    const char* name;
    std::vector<std::string> sets;
    const char* status;
    int stop_after;
  };
  const Ending endings[] = {
      {"a run that completed", {}, "completed", 0},
      {"a run that was interrupted", {observe(subject, 1, 4)}, "interrupted", 4},
      {"a run that failed", {"optimizer.lr=1e30", "run.steps=20"}, "failed", 0},
  };
  for (const Ending& ending : endings) {
    for (const int ranks : {1, 2}) {
      RunRequest request{
          .ranks = ranks, .sets = ending.sets, .folder = fmt::format("{}{}", ending.status, ranks)};
      request.stop_after = ending.stop_after;
      const RunResult result = subject.train(request);
      if (result.status != ending.status) {
        fail(fmt::format("{} of {} ranks ended as {}: {}", ending.name, ranks, result.status, result.error));
      }
      const std::string text = reported(subject.scratch() / request.folder);
      if (!text.empty()) fail(fmt::format("in {} of {} ranks it {}", ending.name, ranks, text));
    }
  }
}

void bears_another(Subject& subject) {
  for (const int ranks : {1, 2}) {
    const std::string folder = fmt::format("run{}", ranks);
    subject.train_well({.ranks = ranks, .sets = {observe(subject, 2)}, .folder = folder},
                       "a run with two observers of this type");
    const std::string text = reported(subject.scratch() / folder);
    if (!text.empty()) fail("of two observers of this type in one run, one " + text);
  }
}

constexpr const char* kObserverKind = "observer/1";
constexpr Check kObserverChecks[] = {
    {"observer.changes_nothing", kObserverKind, "runs with and without it give the same bits and traffic",
     changes_nothing, 40},
    {"observer.writes_in_its_folder", kObserverKind, "it writes below the run's folder and nowhere else",
     writes_in_its_folder, 30},
    {"observer.ends_well", kObserverKind, "it throws nothing in runs that complete, are interrupted or fail",
     ends_well, 60},
    {"observer.bears_another", kObserverKind, "two of one type work in one run", bears_another, 40},
};

}  // namespace

std::span<const Check> observer_checks() {
  return kObserverChecks;
}

}  // namespace tenon::conformance
