#include "fuzz/fuzzer.hpp"

#include "ab/format.hpp"
#include "base/digests.hpp"
#include "fuzz/bases.hpp"
#include "fuzz/shrink.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

namespace tenon::fuzz {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;

/// Cases that are shrunk; more findings than this are one bug more often than many.
constexpr int kMostShrunk = 12;

double seconds_since(Steady::time_point begin) {
  return std::chrono::duration<double>(Steady::now() - begin).count();
}

std::string digest_of(const std::string& text) {
  Xxh3Stream digest;
  digest.update(std::as_bytes(std::span(text)));
  return digest.hex().substr(0, 12);
}

void write_or_fail(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file)
    fail_config(fmt::format("tenon fuzz: {} cannot be written; choose another --out", path.string()));
}

/// What the runs of a judgement wrote, but for checkpoints and long files: a failure that does not come again
/// can only be read there.
void keep_records(const fs::path& from, const fs::path& to) {
  constexpr std::uintmax_t kLongest = 1 << 20;
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(from, ignored), end; at != end; at.increment(ignored)) {
    if (at->path().filename() == "checkpoints") at.disable_recursion_pending();
    if (at->is_symlink(ignored) || !at->is_regular_file(ignored) || at->file_size(ignored) > kLongest)
      continue;
    const fs::path copy = to / fs::relative(at->path(), from, ignored);
    fs::create_directories(copy.parent_path(), ignored);
    fs::copy_file(at->path(), copy, fs::copy_options::overwrite_existing, ignored);
  }
}

/// The bases that consist of data and a model, those of the fewest lines: a failure that needs no model of
/// its own is easiest to read with one of them.
std::vector<Value> smallest_models() {
  constexpr std::size_t kMost = 3;
  std::vector<Value> models;
  for (Base& base : small_bases(""))
    if (base.root.table().size() == 2) models.push_back(std::move(base.root));
  std::ranges::stable_sort(models, {}, lines_of);
  models.resize(std::min(models.size(), kMost));
  return models;
}

/// The threads of one fuzz.
class Fuzzer {
 public:
  explicit Fuzzer(const FuzzRequest& request) : request_(request) {
    std::error_code failure;
    fs::create_directories(work(), failure);
    if (failure) fail_config(fmt::format("tenon fuzz: --out {}: {}", request.out, failure.message()));
    if (!request.replay.empty()) old_ = old_cases(request.replay);
    run_.seed = request.seed;
    run_.components = request.components;
  }

  FuzzRun run() {
    std::vector<std::thread> threads;
    for (int job = 0; job < std::max(1, request_.jobs); ++job) threads.emplace_back([this] { work_on(); });
    for (std::thread& thread : threads) thread.join();
    if (failed_) std::rethrow_exception(failed_);
    std::sort(run_.judged.begin(), run_.judged.end(), [](const Judged& a, const Judged& b) {
      return std::pair(!a.is_old, a.index) < std::pair(!b.is_old, b.index);
    });
    run_.seconds = seconds_since(begin_);
    tell(true);
    std::error_code ignored;
    fs::remove_all(work(), ignored);
    write_or_fail(fs::path(request_.out) / "report.html", html_report(run_));
    return std::move(run_);
  }

 private:
  std::string work() const { return (fs::absolute(request_.out) / "work").string(); }
  std::size_t planned() const { return old_.size() + static_cast<std::size_t>(request_.count); }

  void work_on() {
    try {
      while (const auto number = next()) judge(*number - 1);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failed_ = std::current_exception();
    }
  }

  /// One more than the number of what is judged next; nothing when all is done.
  std::optional<std::size_t> next() {
    const std::lock_guard lock(mutex_);
    const bool late = request_.seconds > 0 && seconds_since(begin_) >= request_.seconds;
    const bool enough = request_.failures > 0 && findings_ >= request_.failures;
    if (failed_ || late || enough || taken_ >= planned() ||
        (request_.stopped != nullptr && *request_.stopped))
      return std::nullopt;
    return ++taken_;
  }

  void judge(std::size_t number) {
    JudgingRequest asked;
    asked.seed = request_.seed;
    asked.kinds = request_.kinds;
    asked.base_file = request_.base_file;
    asked.program = request_.program;
    asked.seconds = request_.judgement_seconds;
    asked.folder = fmt::format("{}/{}", work(), number);
    const bool is_old = number < old_.size();
    if (is_old) {
      asked.seed = old_[number].seed;
      asked.index = old_[number].index;
      asked.file = (fs::absolute(old_[number].folder) / "case.toml").string();
      asked.identities = {old_[number].identity};
      if (old_[number].identity == "process") asked.identities.clear();
    } else {
      asked.index = number - old_.size();
    }
    std::error_code ignored;
    Judged judged = judged_in_process(asked);
    if (!judged.ended && !stopped()) {
      // On a busy machine it may only be slow. A hang that does not come again is told by what is kept.
      const std::string slow = fmt::format("{}/slow/{}", request_.out, number);
      keep_records(asked.folder, slow);
      fs::remove_all(asked.folder, ignored);
      asked.seconds *= 3;
      judged = judged_in_process(asked);
      judged.slow = slow;
    }
    judged.is_old = is_old;
    if (judged.verdict.finding) {
      // Shrinking takes longer than several judgements.
      const std::lock_guard lock(mutex_);
      ++findings_;
    }
    if (judged.verdict.finding && is_old) judged.folder = old_[number].folder;
    if (judged.verdict.finding && !is_old && !stopped()) keep(asked, judged);
    if (judged.verdict.finding && !judged.folder.empty())
      keep_records(asked.folder, fs::path(judged.folder) / "records");
    fs::remove_all(asked.folder, ignored);
    const std::lock_guard lock(mutex_);
    run_.judged.push_back(std::move(judged));
    tell(false);
  }

  bool stopped() const { return request_.stopped != nullptr && *request_.stopped; }

  /// Shrinks what fails and writes its folder.
  void keep(const JudgingRequest& asked, Judged& judged) {
    Value root;
    try {
      root = Config::load(asked.folder + "/case.toml", {}).root();
    } catch (const Error&) {
      return;  // nothing was drawn yet: the finding says what happened
    }
    const bool shrinks = [this] {
      const std::lock_guard lock(mutex_);
      return shrunk_++ < kMostShrunk;
    }();
    const std::string identity = judged.verdict.finding->identity;
    const std::string failure = failure_kind(*judged.verdict.finding);
    const Steady::time_point begin = Steady::now();
    int tries = 0;
    const auto judge_again = [&](const Value& form) {
      JudgingRequest again = asked;
      again.folder = fmt::format("{}/smaller{}", asked.folder, tries++);
      again.file = again.folder + "/form.toml";
      again.identities = {identity};
      if (identity == "process") again.identities = identities_of(asked.seed, asked.index);
      again.seconds = std::min(asked.seconds, std::max(10.0, 3 * judged.seconds));
      fs::create_directories(again.folder);
      write_or_fail(again.file, to_toml(form, false));
      Judged found = judged_in_process(again);
      std::error_code ignored;
      fs::remove_all(again.folder, ignored);
      return found;
    };
    if (shrinks) {
      root = shrink(std::move(root),
                    {.failure = failure,
                     .judge =
                         [&](const Value& form) {
                           Judged found = judge_again(form);
                           if (!found.verdict.finding) return std::string();
                           std::string kind = failure_kind(*found.verdict.finding);
                           if (kind == failure) {
                             judged.verdict.finding = found.verdict.finding;
                             if (!found.components.empty()) judged.components = found.components;
                           }
                           return kind;
                         },
                     .goes_on = [&] { return seconds_since(begin) < request_.shrink_seconds && !stopped(); },
                     // A user's run keeps its model.
                     .models = request_.base_file.empty() ? smallest_models() : std::vector<Value>()});
    }
    judged.lines = lines_of(root);
    const fs::path folder = fs::path(request_.out) / digest_of(identity + to_toml(root, false));
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    write_or_fail(folder / "case.toml", case_text(judged, request_.seed, root));
    const Finding& finding = *judged.verdict.finding;
    if (!finding.other.empty()) write_or_fail(folder / "other.toml", finding.other);
    if (!finding.own.empty()) write_or_fail(folder / "own.toml", finding.own);
    judged.folder = folder.string();
  }

  /// Called with the lock, or by the last thread.
  void tell(bool finished) {
    if (!request_.progress) return;
    const std::size_t done = run_.judged.size();
    const std::size_t failures =
        std::count_if(run_.judged.begin(), run_.judged.end(),
                      [](const Judged& judged) { return judged.verdict.finding.has_value(); });
    const double passed = seconds_since(begin_);
    double left = done == 0 ? 0 : passed / static_cast<double>(done) * static_cast<double>(planned() - done);
    if (request_.seconds > 0) left = std::min(left, std::max(0.0, request_.seconds - passed));
    request_.progress(fmt::format("{} of {} compositions, {} failed, {}", done, planned(), failures,
                                  finished ? ab::duration_text(passed) : ab::duration_text(left) + " left"),
                      finished);
  }

  const FuzzRequest& request_;
  const Steady::time_point begin_ = Steady::now();
  std::vector<OldCase> old_;
  std::mutex mutex_;
  std::size_t taken_ = 0;
  int shrunk_ = 0;
  std::int64_t findings_ = 0;
  std::exception_ptr failed_;
  FuzzRun run_;
};

/// The text after "# NAME: " at the head of a case.
std::string note_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  const std::string mark = "# " + name + ": ";
  for (std::string line; std::getline(lines, line) && line.starts_with("#");)
    if (line.starts_with(mark)) return line.substr(mark.size());
  return "";
}

std::uint64_t number_of(const std::string& file, const std::string& text, const std::string& name) {
  const std::string note = note_of(text, name);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(note.data(), note.data() + note.size(), number);
  if (note.empty() || error != std::errc() || end != note.data() + note.size())
    fail_config(
        fmt::format("{}: expected a line '# {}: NUMBER' before the run, as tenon fuzz writes it; found '{}'",
                    file, name, note));
  return number;
}

}  // namespace

FuzzRun fuzz(const FuzzRequest& request) {
  return Fuzzer(request).run();
}

std::string case_text(const Judged& judged, std::uint64_t seed, const Value& root) {
  const Finding& finding = *judged.verdict.finding;
  std::string text =
      fmt::format("# identity: {}\n# seed: {}\n# composition: {}\n", finding.identity, seed, judged.index);
  std::istringstream lines(finding.text);
  for (std::string line; std::getline(lines, line);) text += "# found: " + line + "\n";
  for (const std::string& command : finding.commands) text += "# see: " + command + "\n";
  return text + to_toml(root, false);
}

std::vector<OldCase> old_cases(const std::string& folder) {
  std::vector<OldCase> cases;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string file = (entry.path() / "case.toml").string();
    std::ifstream in(file);
    if (!in) continue;
    std::stringstream text;
    text << in.rdbuf();
    OldCase old{entry.path().string(), note_of(text.str(), "identity")};
    if (old.identity.empty())
      fail_config(fmt::format(
          "{}: expected a line '# identity: NAME' before the run, as tenon fuzz writes it", file));
    old.seed = number_of(file, text.str(), "seed");
    old.index = number_of(file, text.str(), "composition");
    cases.push_back(std::move(old));
  }
  if (cases.empty())
    fail_config(fmt::format("tenon fuzz: --replay {}: there is no */case.toml in it{}", folder,
                            failure ? " (" + failure.message() + ")" : ""));
  std::sort(cases.begin(), cases.end(),
            [](const OldCase& a, const OldCase& b) { return a.folder < b.folder; });
  return cases;
}

}  // namespace tenon::fuzz
