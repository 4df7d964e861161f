// Reading of runs.hpp.
#include "report/runs.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

namespace tenon::report {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestConfig = std::int64_t{16} << 20;
constexpr int kDeepest = 5;

bool is_attempt(const fs::path& folder) {
  return fs::exists(folder / "metrics.jsonl") && fs::exists(folder / "config.resolved.toml");
}

std::string unquoted(const std::string& text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return text;
  return text.substr(1, text.size() - 2);
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

/// Position of the comment in a TOML line: the first '#' outside quotes.
std::size_t comment_of(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0 && line[i] == '\\' && quote == '"') {
      ++i;
    } else if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#') {
      return i;
    }
  }
  return std::string_view::npos;
}

/// Links are followed after the folders beside them, so that a run reached by both has the folder's name.
void find(const fs::path& folder, int depth, std::set<fs::path>& seen, std::vector<std::string>& attempts) {
  std::error_code ignored;
  if (depth > kDeepest || !seen.insert(fs::canonical(folder, ignored)).second) return;
  if (is_attempt(folder)) {
    attempts.push_back(folder.string());
    return;
  }
  const int newest = ab::newest_attempt(folder.string());
  if (newest > 0 && is_attempt(folder / std::to_string(newest))) {
    attempts.push_back((folder / std::to_string(newest)).string());
    return;
  }
  std::vector<std::pair<bool, fs::path>> children;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored)) children.emplace_back(entry.is_symlink(ignored), entry.path());
  }
  std::sort(children.begin(), children.end());
  for (const auto& child : children) find(child.second, depth + 1, seen, attempts);
}

}  // namespace

std::vector<ConfigLine> config_lines(const std::string& toml) {
  std::vector<ConfigLine> lines;
  std::map<std::string, int> lists;
  std::string table;
  std::size_t begin = 0;
  while (begin < toml.size()) {
    const std::size_t end = std::min(toml.find('\n', begin), toml.size());
    const std::string_view line = std::string_view(toml).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t comment = comment_of(line);
    const std::string text = trimmed(line.substr(0, comment));
    if (text.empty()) continue;
    if (text.starts_with("[[") && text.ends_with("]]")) {
      const std::string name = text.substr(2, text.size() - 4);
      table = fmt::format("{}[{}]", name, lists[name]++);
      continue;
    }
    if (text.front() == '[' && text.back() == ']') {
      table = text.substr(1, text.size() - 2);
      continue;
    }
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = trimmed(std::string_view(text).substr(0, equals));
    lines.push_back({table.empty() ? key : table + "." + key,
                     trimmed(std::string_view(text).substr(equals + 1)),
                     comment == std::string_view::npos ? "" : trimmed(line.substr(comment + 1))});
  }
  return lines;
}

Run load_run(const std::string& attempt) {
  Run run;
  run.record = ab::read_run(attempt, ab::RunState::kAny);
  const auto files = make_posix_files();
  run.config = config_lines(read_text(*files, attempt + "/config.resolved.toml", kLargestConfig));
  const auto name = run.record.config.find("run.name");
  run.name = name == run.record.config.end() ? "" : unquoted(name->second);
  if (run.name.empty()) run.name = fs::path(attempt).parent_path().filename().string();
  return run;
}

std::vector<Run> load_runs(const std::string& folder, std::vector<std::string>& unreadable) {
  std::vector<std::string> attempts;
  std::set<fs::path> seen;
  find(folder, 0, seen, attempts);
  std::sort(attempts.begin(), attempts.end());
  std::vector<Run> runs;
  for (const std::string& attempt : attempts) {
    try {
      runs.push_back(load_run(attempt));
    } catch (const Error& error) {
      unreadable.push_back(error.what());
    }
  }
  // Folders distinguish runs of one name (seeds of an arm, copies).
  std::map<std::string, int> bearers;
  for (const Run& run : runs) ++bearers[run.name];
  for (Run& run : runs) {
    const int same = bearers[run.name];
    const fs::path below = fs::path(run.record.folder).parent_path().lexically_relative(folder);
    if (same > 1 && !below.empty()) run.name = below.string();
  }
  return runs;
}

bool may_change_training(const std::string& key) {
  return key != "run.name" && !key.starts_with("observe") && !key.starts_with("power.");
}

bool is_run(const std::string& folder) {
  if (is_attempt(folder)) return true;
  const int newest = ab::newest_attempt(folder);
  return newest > 0 && is_attempt(fs::path(folder) / std::to_string(newest));
}

MetricFacts facts_of(const ab::Series& series) {
  MetricFacts facts;
  facts.least = facts.most = facts.last = NAN;
  for (const ab::MetricPoint& point : series) {
    ++facts.lines;
    facts.last = point.value;
    facts.last_step = point.step;
    if (std::isnan(point.value)) continue;
    if (!(point.value >= facts.least)) {
      facts.least = point.value;
      facts.least_step = point.step;
    }
    if (!(point.value <= facts.most)) {
      facts.most = point.value;
      facts.most_step = point.step;
    }
  }
  return facts;
}

std::string manifest_text(const ab::RunRecord& run, const std::string& key) {
  const auto found = run.manifest.find(key);
  return found == run.manifest.end() ? "" : unquoted(found->second);
}

std::string main_metric(const ab::RunRecord& run) {
  for (const char* name : {"val/loss", "train/loss"}) {
    if (run.series.count(name) > 0) return name;
  }
  return run.series.empty() ? "" : run.series.begin()->first;
}

bool higher_is_better(const std::string& metric) {
  return metric.ends_with("/accuracy") || metric.ends_with("/auc");
}

}  // namespace tenon::report
