// Reads a run folder; see run_record.hpp. JSON numbers that should be numbers but are null stand for NaN,
// because JSON has no NaN and a diverged loss must survive.
#include "ab/run_record.hpp"

#include "base/file_descriptor.hpp"
#include "record/run_folder.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string text_of_run(const fs::path& path, const std::string& folder, const char* what) {
  std::optional<std::string> text = base::read_file(path);
  if (!text) {
    fail_run(fmt::format("{}: cannot read {} ({}); the run did not get far enough to write it, see {}",
                         folder, path.filename().string(), what,
                         (fs::path(folder) / "log.rank0.txt").string()));
  }
  return std::move(*text);
}

json parse_json(const std::string& text, const std::string& where) {
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded())
    fail_run(fmt::format("{}: not valid JSON; the file is damaged or was cut short", where));
  return value;
}

// Writers spell a non-finite number as null or as text.
double number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_null()) return kNaN;
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (text == "Infinity" || text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity" || text == "-inf") return -std::numeric_limits<double>::infinity();
    if (text == "NaN" || text == "nan") return kNaN;
  }
  throw std::invalid_argument(std::string("expected a number, found ") + value.type_name());
}

double number_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument(fmt::format("\"{}\" is missing", key));
  return number_of(*found);
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    throw std::invalid_argument(fmt::format("\"{}\" is missing or no text", key));
  }
  return found->get<std::string>();
}

std::string text_or_empty(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::optional<double> optional_number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// The numbers of an inner object; a bare number is kept under "total".
std::map<std::string, double> numbers_of(const json& object, const char* key) {
  std::map<std::string, double> out;
  const auto found = object.find(key);
  if (found == object.end()) return out;
  if (found->is_number()) out["total"] = found->get<double>();
  if (found->is_object()) {
    for (const auto& [name, value] : found->items()) {
      if (value.is_number()) out[name] = value.get<double>();
    }
  }
  return out;
}

void add_rank_bytes(const json& ranks, RunRecord& run) {
  for (const json& rank : ranks) {
    const auto purposes = rank.is_object() ? rank.find("purposes") : rank.end();
    if (!rank.is_object() || purposes == rank.end() || !purposes->is_object()) continue;
    for (const auto& [name, counts] : purposes->items()) {
      const auto bytes = counts.is_object() ? optional_number(counts, "bytes_sent") : std::nullopt;
      if (bytes) run.rank_bytes[name] += *bytes / static_cast<double>(ranks.size());
    }
  }
}

void read_distributions(const json& summary, RunRecord& run) {
  const auto all = summary.find("distributions");
  if (all == summary.end() || !all->is_object()) return;
  for (const auto& [name, d] : all->items()) {
    if (!d.is_object()) continue;
    const auto number = [&d = d](const char* key) { return optional_number(d, key).value_or(kNaN); };
    run.distributions[name] = {number("count"), number("mean"), number("min"), number("max")};
  }
}

// Deeper than any file of ours; hostile nesting must not use up the stack.
constexpr int kDeepest = 64;

void flatten_into(const json& value, const std::string& prefix, int depth,
                  std::map<std::string, std::string>& out) {
  if (depth < kDeepest && value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) {
      flatten_into(inner, prefix.empty() ? key : prefix + "." + key, depth + 1, out);
    }
  } else if (depth < kDeepest && value.is_array() && !value.empty()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      flatten_into(value[i], fmt::format("{}[{}]", prefix, i), depth + 1, out);
  } else if (value.is_structured() && !value.empty()) {
    out[prefix] = "...";
  } else {
    out[prefix] = value.is_string() ? value.get<std::string>()
                                    : value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
}

MetricPoint point_of(const json& line) {
  MetricPoint p;
  const double step = number_at(line, "step");
  if (!(std::abs(step) < 9e15)) throw std::invalid_argument("\"step\" is not a count");
  p.step = static_cast<std::int64_t>(step);
  p.value = number_at(line, "value");
  p.wall_s = number_at(line, "wall_s");
  p.samples = number_at(line, "samples");
  p.tokens = number_at(line, "tokens");
  p.bytes_sent = number_at(line, "bytes_sent");
  return p;
}

/// A metric line as the writer of runs spells it: one flat object of numbers and plain texts. Studies have
/// hundreds of thousands of them, and this reads ten times as fast as a general reader of JSON, which takes
/// every line that is spelt otherwise.
class PlainLine {
 public:
  explicit PlainLine(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  /// False, and nothing is said about the line, if it is another.
  bool read(std::string& metric, MetricPoint& p) {
    std::string_view split, name;
    double step = kNaN;
    std::uint32_t seen = 0;
    if (!take('{')) return false;
    do {
      std::string_view key;
      if (!text(key) || !take(':')) return false;
      const auto number_into = [&](std::uint32_t bit, double& out) {
        return (std::exchange(seen, seen | bit) & bit) == 0 && number(out);
      };
      const auto text_into = [&](std::uint32_t bit, std::string_view& out) {
        return (std::exchange(seen, seen | bit) & bit) == 0 && text(out);
      };
      const bool known = key == "step"         ? number_into(1, step)
                         : key == "split"      ? text_into(2, split)
                         : key == "name"       ? text_into(4, name)
                         : key == "value"      ? number_into(8, p.value)
                         : key == "wall_s"     ? number_into(16, p.wall_s)
                         : key == "samples"    ? number_into(32, p.samples)
                         : key == "tokens"     ? number_into(64, p.tokens)
                         : key == "bytes_sent" ? number_into(128, p.bytes_sent)
                                               : false;
      if (!known) return false;
    } while (take(','));
    if (!take('}') || seen != 255 || !(std::abs(step) < 9e15)) return false;
    blanks();
    if (at_ != end_) return false;
    p.step = static_cast<std::int64_t>(step);
    metric.assign(split).append("/").append(name);
    return true;
  }

 private:
  void blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool take(char wanted) {
    blanks();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool text(std::string_view& out) {
    if (!take('"')) return false;
    const char* const begin = at_;
    while (at_ != end_ && *at_ != '"') {
      if (*at_ < ' ' || *at_ > '~' || *at_ == '\\') return false;
      ++at_;
    }
    out = {begin, static_cast<std::size_t>(at_ - begin)};
    return take('"');
  }
  std::size_t digits() {
    const char* const begin = at_;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return static_cast<std::size_t>(at_ - begin);
  }
  // from_chars alone would take what is no number of JSON: 01, 1., .5.
  bool number(double& out) {
    blanks();
    const char* const begin = at_;
    if (at_ != end_ && *at_ == '-') ++at_;
    const bool zero = at_ != end_ && *at_ == '0';
    const std::size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return false;
    if (at_ != end_ && *at_ == '.') {
      ++at_;
      if (digits() == 0) return false;
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (digits() == 0) return false;
    }
    return std::from_chars(begin, at_, out).ec == std::errc();
  }

  const char* at_;
  const char* end_;
};

// A run that was resumed may repeat steps; the later line is the one that led to the final weights.
void keep_latest(Series& series) {
  std::stable_sort(series.begin(), series.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  Series out;
  for (const MetricPoint& p : series) {
    if (!out.empty() && out.back().step == p.step) {
      out.back() = p;
    } else {
      out.push_back(p);
    }
  }
  series = std::move(out);
}

// TOML, or JSON if it opens like an object.
std::map<std::string, std::string> flatten_file(const fs::path& path, const std::string& folder,
                                                const char* what) {
  const std::string text = text_of_run(path, folder, what);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return flatten_json(text, path.string());
  return flatten(Config::parse(text, path.string(), {}).root());
}

// plugin[3].sha256 -> plugin.vendor.name.sha256: a plugin's place in the list has no meaning.
std::map<std::string, std::string> named_by_plugin(const std::map<std::string, std::string>& lock) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : lock) {
    const std::size_t dot = key.find("].");
    const auto id = dot == std::string::npos ? lock.end() : lock.find(key.substr(0, dot) + "].id");
    if (id == lock.end()) {
      out[key] = value;
      continue;
    }
    std::string name = id->second;
    std::erase(name, '"');
    // One that came when the run was resumed has a name of its own, beside the one that it replaced.
    const auto step = lock.find(key.substr(0, dot) + "].first_step");
    if (key.substr(dot + 2) == "first_step") continue;
    if (step != lock.end() && step->second != "0") name += "@" + step->second;
    out["plugin." + name + key.substr(dot + 1)] = value;
  }
  return out;
}

// Sums of an unfinished run, taken from its last line of metrics.
void sums_of_metrics(RunRecord& run) {
  run.status = "unfinished";
  for (const auto& [name, series] : run.series) {
    if (series.empty()) continue;
    const MetricPoint& last = series.back();
    run.steps = std::max(run.steps, static_cast<double>(last.step));
    run.samples = std::max(run.samples, last.samples);
    run.tokens = std::max(run.tokens, last.tokens);
    run.wall_s = std::max(run.wall_s, last.wall_s);
    run.bytes_sent = std::max(run.bytes_sent, last.bytes_sent);
  }
}

}  // namespace

double TimeSplit::gap() const {
  return total > 0 ? std::abs(total - (compute + exposed + late + data + other)) / total : 0;
}

std::optional<TimeSplit> mean_of(const std::vector<TimeSplit>& splits) {
  if (splits.empty()) return std::nullopt;
  TimeSplit sum;
  for (double TimeSplit::*part :
       {&TimeSplit::total, &TimeSplit::compute, &TimeSplit::exposed, &TimeSplit::late, &TimeSplit::data,
        &TimeSplit::other, &TimeSplit::overlapped}) {
    for (const TimeSplit& one : splits) sum.*part += one.*part / static_cast<double>(splits.size());
  }
  return sum;
}

double MetricPoint::at(Axis axis) const {
  switch (axis) {
    case Axis::kSteps:
      return static_cast<double>(step);
    case Axis::kSamples:
      return samples;
    case Axis::kTokens:
      return tokens;
    case Axis::kSeconds:
      return wall_s;
    case Axis::kBytes:
      return bytes_sent;
  }
  return static_cast<double>(step);
}

double RunRecord::consumed(Axis axis) const {
  const MetricPoint p{static_cast<std::int64_t>(steps), 0, wall_s, samples, tokens, bytes_sent};
  return p.at(axis);
}

std::optional<double> RunRecord::final_value(const std::string& metric) const {
  if (const auto found = final_metrics.find(metric); found != final_metrics.end()) return found->second;
  if (const auto found = series.find(metric); found != series.end() && !found->second.empty()) {
    return found->second.back().value;
  }
  return std::nullopt;
}

double bytes_of(const std::map<std::string, double>& purposes, const std::string& purpose) {
  const auto found = purposes.find(purpose);
  return found == purposes.end() ? 0 : found->second;
}

int newest_attempt(const std::string& parent) {
  try {
    return tenon::newest_attempt(*make_posix_files(), parent);
  } catch (const FileError&) {
    return 0;
  }
}

void parse_metrics(const std::string& text, const std::string& where, RunRecord& run) {
  std::size_t begin = 0;
  std::string metric;
  for (int line = 1; begin < text.size(); ++line) {
    const std::size_t newline = text.find('\n', begin);
    const bool torn = newline == std::string::npos;
    const std::string_view bytes =
        std::string_view(text).substr(begin, torn ? std::string::npos : newline - begin);
    begin = torn ? text.size() : newline + 1;
    if (bytes.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    MetricPoint point;
    if (!torn && PlainLine(bytes).read(metric, point)) {
      run.series[metric].push_back(point);
      continue;
    }
    try {
      const json value = json::parse(bytes);
      if (!value.is_object()) throw std::invalid_argument("expected an object");
      run.series[text_at(value, "split") + "/" + text_at(value, "name")].push_back(point_of(value));
    } catch (const std::exception& error) {
      if (torn) {
        run.notes.push_back(fmt::format("{}:{}: the last line is cut short and was dropped", where, line));
        break;
      }
      fail_run(fmt::format("{}:{}: not a metric line: {}", where, line, error.what()));
    }
  }
  for (auto& [name, series] : run.series) keep_latest(series);
}

void parse_summary(const std::string& text, const std::string& where, RunRecord& run) {
  const json value = parse_json(text, where);
  if (!value.is_object()) fail_run(fmt::format("{}: expected an object", where));
  try {
    run.status = text_at(value, "status");
    run.steps = number_at(value, "steps");
    run.samples = number_at(value, "samples");
    run.tokens = number_at(value, "tokens");
    run.wall_s = number_at(value, "wall_s");
    run.bytes_sent = number_at(value, "bytes_sent");
    if (const auto metrics = value.find("metrics"); metrics != value.end()) {
      if (!metrics->is_object()) throw std::invalid_argument("\"metrics\" is no object");
      for (const auto& [name, number] : metrics->items()) run.final_metrics[name] = number_of(number);
    }
  } catch (const std::invalid_argument& error) {
    fail_run(fmt::format("{}: {}", where, error.what()));
  }
  run.weights_hash = value.contains("weights_hash") ? text_or_empty(value["weights_hash"]) : "";
  run.state_hash = value.contains("state_hash") ? text_or_empty(value["state_hash"]) : "";
  run.peak_rss_mb = optional_number(value, "peak_rss_mb");
  run.stall_s = optional_number(value, "stall_s");
  run.hidden_comm_share = optional_number(value, "hidden_comm_share");
  if (const auto ranks = value.find("communication"); ranks != value.end() && ranks->is_array()) {
    const auto mean = [&](const char* key) {
      std::optional<double> sum;
      for (const json& rank : *ranks) {
        const auto seconds = rank.is_object() ? optional_number(rank, key) : std::nullopt;
        if (seconds) sum = sum.value_or(0) + *seconds / static_cast<double>(ranks->size());
      }
      return sum;
    };
    run.exposed_comm_s = mean("exposed_s");
    run.late_s = mean("late_s");
    if (const auto total = mean("total_s")) {
      const auto part = [&](const char* key) { return mean(key).value_or(0); };
      run.time = TimeSplit{.total = *total,
                           .compute = part("compute_s"),
                           .exposed = part("exposed_s"),
                           .late = part("late_s"),
                           .data = part("data_s"),
                           .other = part("evaluate_s") + part("save_s") + part("other_s"),
                           .overlapped = part("overlapped_s")};
    }
    add_rank_bytes(*ranks, run);
  }
  read_distributions(value, run);
  run.quantized_operands = numbers_of(value, "quantized_operands");
  run.bytes_by_purpose = numbers_of(value, "bytes_by_purpose");
}

std::map<std::string, std::string> flatten_json(const std::string& text, const std::string& where) {
  std::map<std::string, std::string> out;
  flatten_into(parse_json(text, where), "", 0, out);
  return out;
}

RunRecord read_run(const std::string& folder, RunState state) {
  const fs::path root(folder);
  if (!fs::is_directory(root)) fail_run(fmt::format("{}: no such run folder", folder));
  RunRecord run;
  run.folder = folder;
  const std::string name = root.filename().string();
  std::from_chars(name.data(), name.data() + name.size(), run.attempt);
  const bool unfinished = state == RunState::kAny && !fs::exists(root / "summary.json");
  if (!unfinished) {
    parse_summary(text_of_run(root / "summary.json", folder, "end of the run"),
                  (root / "summary.json").string(), run);
  }
  parse_metrics(text_of_run(root / "metrics.jsonl", folder, "curves"), (root / "metrics.jsonl").string(),
                run);
  if (unfinished) sums_of_metrics(run);
  run.manifest = flatten_file(root / "manifest.json", folder, "provenance");
  run.config = flatten_file(root / "config.resolved.toml", folder, "configuration");
  if (fs::exists(root / "plugins.lock")) {
    run.plugins_lock = named_by_plugin(flatten_file(root / "plugins.lock", folder, "plugins"));
  } else {
    run.notes.push_back(fmt::format("{}: no plugins.lock; the plugins cannot be verified", folder));
  }
  return run;
}

}  // namespace tenon::ab
