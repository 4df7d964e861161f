// Writing the files of a run folder, and the readers of its JSON files.
#include "record/run_files.hpp"

#include "base/json_writer.hpp"
#include "base/process_facts.hpp"
#include "record/metrics.hpp"

#include <tenon/config.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

namespace tenon {

// Filling in and writing manifest.json.

namespace {

constexpr std::int64_t kLargestRecord = std::int64_t{16} << 20;

void write_texts(JsonWriter& json, std::string_view key, const NamedTexts& texts) {
  json.begin_object(key);
  for (const auto& [name, value] : texts) json.member(name, value);
  json.end_object();
}

}  // namespace

Manifest begin_manifest(std::string command_line, std::int64_t first_step) {
  Manifest manifest;
  manifest.build = build_info();
  manifest.cpu_model = cpu_model();
  manifest.cpu_cores = usable_cores();
  manifest.environment = relevant_environment();
  manifest.segments.push_back({.command_line = std::move(command_line),
                               .first_step = first_step,
                               .start = utc_now(),
                               .end = {},
                               .exit_reason = {}});
  return manifest;
}

void write_manifest(FileSystem& files, const std::string& folder, const Manifest& manifest) {
  JsonWriter json;
  json.begin_object();
  json.begin_object("program");
  json.member("version", manifest.build.version);
  json.member("git", manifest.build.git);
  json.member("git_dirty", manifest.build.git_dirty);
  json.member("compiler", manifest.build.compiler);
  json.member("compiler_flags", manifest.build.flags);
  json.member("build_type", manifest.build.build_type);
  json.end_object();
  json.begin_object("cpu");
  json.member("model", manifest.cpu_model);
  json.member("features", manifest.cpu_features);
  json.member("cores", manifest.cpu_cores);
  json.end_object();
  json.member("kernels", manifest.kernels);
  if (!manifest.device_choice.empty()) json.member("device_choice", manifest.device_choice);
  json.member("ranks", manifest.ranks);
  json.member("threads", manifest.threads);
  json.begin_object("seeds");
  json.member("seed", manifest.seed);
  json.member("seed_init", manifest.seed_init);
  json.member("seed_order", manifest.seed_order);
  json.member("seed_rounding", manifest.seed_rounding);
  json.end_object();
  json.member("rng", manifest.rng);
  json.member("config_sha256", manifest.config_sha256);
  json.objects("data", manifest.data, [&](const DataSource& source) {
    json.member("path", source.path);
    json.member("sha256", source.sha256);
  });
  json.objects("data_attributes", manifest.attributes, [&](const DataAttribute& attribute) {
    json.member("name", attribute.name);
    json.member("value", attribute.value);
  });
  if (!manifest.calibration.empty()) {
    json.begin_object("calibration");
    for (const auto& [name, seconds] : manifest.calibration) json.member(name, seconds);
    json.end_object();
  }
  write_texts(json, "libraries", manifest.libraries);
  write_texts(json, "environment", manifest.environment);
  // The short answers are at the top level; `segments` has the whole history of a resumed attempt.
  const ManifestSegment none;
  const ManifestSegment& first = manifest.segments.empty() ? none : manifest.segments.front();
  const ManifestSegment& last = manifest.segments.empty() ? none : manifest.segments.back();
  json.member("command_line", last.command_line);
  json.member("start", first.start);
  json.member("end", last.end);
  json.member("exit_reason", last.exit_reason);
  json.member("parent_run", manifest.init.from);
  if (!manifest.init.from.empty()) {
    json.begin_object("init");
    json.member("step", manifest.init.step);
    json.member("digest", manifest.init.digest);
    json.member("what", manifest.init.what);
    json.member("loaded", manifest.init.loaded);
    json.member("drawn", manifest.init.drawn);
    json.member("dropped", manifest.init.dropped);
    json.end_object();
  }
  json.objects("segments", manifest.segments, [&](const ManifestSegment& segment) {
    json.member("command_line", segment.command_line);
    json.member("first_step", segment.first_step);
    json.member("start", segment.start);
    json.member("end", segment.end);
    json.member("exit_reason", segment.exit_reason);
  });
  json.end_object();
  files.write_text_atomically(folder + "/manifest.json", json.take());
}

// Text of plugins.lock.

void write_plugin_lock(FileSystem& files, const std::string& folder, std::vector<LockedPlugin> plugins) {
  std::ranges::sort(plugins, {}, [](const LockedPlugin& p) { return std::tie(p.id, p.first_step); });
  std::string text = "# Plugins that this run loaded.\n";
  const auto line = [&](std::string_view key, std::string_view value) {
    text += key;
    text += " = ";
    append_json_text(text, value);  // every JSON string is a TOML basic string of the same value
    text += '\n';
  };
  for (const LockedPlugin& plugin : plugins) {
    text += "\n[[plugin]]\n";
    line("id", plugin.id);
    line("version", plugin.version);
    line("file", plugin.file);
    line("sha256", plugin.sha256);
    line("abi", plugin.abi);
    text += fmt::format("first_step = {}\n", plugin.first_step);
  }
  files.write_text_atomically(folder + "/plugins.lock", text);
}

std::vector<LockedPlugin> read_plugin_lock(FileSystem& files, const std::string& folder) {
  const std::string path = folder + "/plugins.lock";
  if (!files.exists(path)) return {};
  std::vector<LockedPlugin> plugins;
  try {
    const Config lock = Config::parse(read_text(files, path, kLargestRecord), path, {});
    const Value* list = lock.find("plugin");
    if (list == nullptr) return {};
    for (const Value& entry : list->array()) {
      const auto text = [&](std::string_view key) {
        const Value* value = entry.find(key);
        return value == nullptr ? std::string() : value->text();
      };
      const Value* step = entry.find("first_step");
      plugins.push_back({text("id"), text("version"), text("file"), text("sha256"), text("abi"),
                         step == nullptr ? 0 : step->integer()});
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kConfig)
      fail_run(fmt::format("{}: no record of plugins: {}", path, error.what()));
    throw;
  }
  return plugins;
}

std::vector<LockedPlugin> continued_plugins(std::vector<LockedPlugin> had,
                                            const std::vector<LockedPlugin>& now, std::int64_t step,
                                            std::vector<std::string>& replaced) {
  std::vector<LockedPlugin> all = std::move(had);
  for (LockedPlugin plugin : now) {
    const LockedPlugin* before = nullptr;
    for (const LockedPlugin& old : all) {
      if (old.id == plugin.id && (before == nullptr || old.first_step >= before->first_step)) before = &old;
    }
    if (before != nullptr && before->version == plugin.version && before->sha256 == plugin.sha256) continue;
    if (before != nullptr) {
      replaced.push_back(
          fmt::format("plugin {} was version {} (SHA-256 {}, {}) and is version {} (SHA-256 {}, {})",
                      plugin.id, before->version, before->sha256.substr(0, 16), before->file, plugin.version,
                      plugin.sha256.substr(0, 16), plugin.file));
    }
    plugin.first_step = step;
    all.push_back(std::move(plugin));
  }
  return all;
}

// Text of summary.json.

namespace {

void write_communication(JsonWriter& json, const RunResult& result) {
  json.objects("communication", result.communication, [&](const RankTime& rank) {
    json.member("compute_s", rank.compute_s);
    json.member("exposed_s", rank.exposed_s);
    json.member("late_s", rank.late_s);
    json.member("data_s", rank.data_s);
    json.member("evaluate_s", rank.evaluate_s);
    json.member("save_s", rank.save_s);
    json.member("generate_s", rank.generate_s);
    json.member("other_s", rank.other_s);
    json.member("total_s", rank.total_s);
    json.member("overlapped_s", rank.overlapped_s);
    json.begin_object("purposes");
    for (const auto& [name, counts] : rank.purposes) {
      json.begin_object(name);
      json.member("bytes_sent", counts.bytes_sent);
      json.member("messages_sent", counts.messages_sent);
      json.member("operations", counts.operations);
      json.member("blocked_s", counts.blocked_seconds);
      json.member("late_s", counts.late_seconds);
      json.member("transfer_s", counts.transfer_seconds);
      json.end_object();
    }
    json.end_object();
  });
}

void write_distributions(JsonWriter& json, const RunResult& result) {
  json.begin_object("distributions");
  for (const auto& [name, d] : result.distributions) {
    json.begin_object(name);
    json.member("count", d.count);
    json.member("mean", d.mean);
    json.member("min", d.least);
    json.member("max", d.most);
    json.member("not_positive", d.not_positive);
    // Keys are lower ends: "4" counts what is in [4, 8).
    json.begin_object("histogram");
    for (const auto& [octave, count] : d.octaves)
      json.member(fmt::format("{:.17g}", std::ldexp(1.0, octave)), count);
    json.end_object();
    json.end_object();
  }
  json.end_object();
}

}  // namespace

void write_summary(FileSystem& files, const RunResult& result) {
  JsonWriter json;
  json.begin_object();
  json.member("status", result.status);
  json.member("steps", result.steps);
  json.member("samples", result.samples);
  json.member("tokens", result.tokens);
  json.member("wall_s", result.wall_s);
  json.member("bytes_sent", result.bytes_sent);
  json.begin_object("metrics");
  for (const auto& [name, value] : result.metrics) json.member(name, value);
  json.end_object();
  json.member("weights_hash", result.weights_hash);
  json.member("state_hash", result.state_hash);
  json.member("deterministic", result.nondeterminism.empty());
  if (!result.nondeterminism.empty()) json.member("nondeterminism", result.nondeterminism);
  json.member("peak_rss_mb", result.peak_rss_mb);
  json.member("peak_anonymous_mb", result.peak_anonymous_mb);
  json.member("stall_s", result.stall_s);
  json.member("hidden_comm_share", result.hidden_comm_share);
  json.begin_object("quantized_operands");
  for (const auto& [format, count] : result.quantized_operands) json.member(format, count);
  json.end_object();
  json.begin_object("bytes_by_purpose");
  for (const auto& [purpose, bytes] : result.bytes_by_purpose) json.member(purpose, bytes);
  json.end_object();
  if (!result.communication.empty()) write_communication(json, result);
  if (!result.distributions.empty()) write_distributions(json, result);
  if (!result.error.empty()) json.member("error", result.error);
  json.end_object();
  files.write_text_atomically(result.folder + "/summary.json", json.take());
}

// The readers of a run folder's JSON files (recovery.jsonl reads its own lines). Bytes from
// disk are treated as foreign: every type and range is checked before use.

namespace {

using Json = nlohmann::json;

std::optional<std::int64_t> integer_of(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return std::nullopt;
}

std::optional<std::uint64_t> unsigned_of(const Json& value) {
  return value.is_number_unsigned() ? std::optional(value.get<std::uint64_t>()) : std::nullopt;
}

std::optional<double> real_of(const Json& value) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

/// Typed members of one object of one file; what is missing or of another type is an error that names file
/// and key.
class Members {
 public:
  Members(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail_run(where_ + ": expected an object, found " + object_.type_name());
  }

  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail_run(where_ + ": '" + key + "' is missing");
    return *found;
  }
  Members object(const char* key) const { return {at(key), where_ + ": " + key}; }
  bool has(const char* key) const { return object_.contains(key); }

  void get(const char* key, std::string& out) const {
    if (!at(key).is_string()) wrong(key, "a string");
    out = at(key).get<std::string>();
  }
  void get(const char* key, bool& out) const {
    if (!at(key).is_boolean()) wrong(key, "true or false");
    out = at(key).get<bool>();
  }
  void get(const char* key, std::int64_t& out) const {
    out = checked(key, integer_of(at(key)), "a 64-bit integer");
  }
  void get(const char* key, std::uint64_t& out) const {
    out = checked(key, unsigned_of(at(key)), "a non-negative 64-bit integer");
  }
  void get(const char* key, double& out) const { out = checked(key, real_of(at(key)), "a number or null"); }
  void get(const char* key, int& out) const {
    const std::int64_t number = checked(key, integer_of(at(key)), "an integer");
    if (number != static_cast<int>(number)) wrong(key, "a 32-bit integer");
    out = static_cast<int>(number);
  }
  const Json& array(const char* key) const {
    if (!at(key).is_array()) wrong(key, "an array");
    return at(key);
  }
  /// use(name, value of this object) for each member, in the order of the names.
  template <typename Use>
  void for_each(Use use) const {
    for (auto member = object_.begin(); member != object_.end(); ++member) use(member.key());
  }

 private:
  [[noreturn]] void wrong(const char* key, const char* expected) const {
    fail_run(where_ + ": '" + key + "': expected " + expected + ", found " + at(key).type_name());
  }
  template <typename Number>
  Number checked(const char* key, std::optional<Number> number, const char* expected) const {
    if (!number) wrong(key, expected);
    return *number;
  }

  const Json& object_;
  std::string where_;
};

Json read_object(FileSystem& files, const std::string& path) {
  Json json = Json::parse(read_text(files, path, kLargestRecord), nullptr, false);
  if (json.is_discarded()) fail_run(path + ": not valid JSON");
  return json;
}

NamedTexts named_texts(const Members& members) {
  NamedTexts texts;
  members.for_each(
      [&](const std::string& name) { members.get(name.c_str(), texts.emplace_back(name, "").second); });
  return texts;
}

template <typename Number>
void numbers_of(const Members& members, std::map<std::string, Number>& numbers) {
  members.for_each([&](const std::string& name) { members.get(name.c_str(), numbers[name]); });
}

}  // namespace

bool parse_metric_line(std::string_view text, MetricLine& line) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return false;
  const auto find = [&](const char* key) -> const Json& {
    static const Json absent = Json::value_t::discarded;
    const auto found = json.find(key);
    return found == json.end() ? absent : *found;
  };
  const auto step = integer_of(find("step")), samples = integer_of(find("samples")),
             tokens = integer_of(find("tokens"));
  const auto value = real_of(find("value")), wall_s = real_of(find("wall_s"));
  const auto bytes_sent = unsigned_of(find("bytes_sent"));
  const Json& split = find("split");
  const Json& name = find("name");
  if (!step || !samples || !tokens || !value || !wall_s || !bytes_sent || !split.is_string() ||
      !name.is_string()) {
    return false;
  }
  line = {.step = *step,
          .split = split.get<std::string>(),
          .name = name.get<std::string>(),
          .value = *value,
          .wall_s = *wall_s,
          .samples = *samples,
          .tokens = *tokens,
          .bytes_sent = *bytes_sent};
  return true;
}

Manifest read_manifest(FileSystem& files, const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  const Json json = read_object(files, path);
  const Members top(json, path);
  Manifest manifest;
  const Members program = top.object("program");
  program.get("version", manifest.build.version);
  program.get("git", manifest.build.git);
  program.get("git_dirty", manifest.build.git_dirty);
  program.get("compiler", manifest.build.compiler);
  program.get("compiler_flags", manifest.build.flags);
  program.get("build_type", manifest.build.build_type);
  const Members cpu = top.object("cpu");
  cpu.get("model", manifest.cpu_model);
  cpu.get("features", manifest.cpu_features);
  cpu.get("cores", manifest.cpu_cores);
  top.get("kernels", manifest.kernels);
  top.get("ranks", manifest.ranks);
  top.get("threads", manifest.threads);
  const Members seeds = top.object("seeds");
  seeds.get("seed", manifest.seed);
  seeds.get("seed_init", manifest.seed_init);
  seeds.get("seed_order", manifest.seed_order);
  seeds.get("seed_rounding", manifest.seed_rounding);
  top.get("rng", manifest.rng);
  top.get("config_sha256", manifest.config_sha256);
  for (const Json& item : top.array("data")) {
    const Members source(item, path + ": data");
    DataSource& data = manifest.data.emplace_back();
    source.get("path", data.path);
    source.get("sha256", data.sha256);
  }
  if (top.has("data_attributes")) {  // earlier versions wrote none
    for (const Json& item : top.array("data_attributes")) {
      const Members members(item, path + ": data_attributes");
      DataAttribute& attribute = manifest.attributes.emplace_back();
      members.get("name", attribute.name);
      members.get("value", attribute.value);
    }
  }
  if (top.has("calibration")) {
    std::map<std::string, double> seconds;
    numbers_of(top.object("calibration"), seconds);
    manifest.calibration.assign(seconds.begin(), seconds.end());
  }
  manifest.libraries = named_texts(top.object("libraries"));
  manifest.environment = named_texts(top.object("environment"));
  top.get("parent_run", manifest.init.from);
  if (top.has("init")) {
    const Members init = top.object("init");
    init.get("step", manifest.init.step);
    init.get("digest", manifest.init.digest);
    init.get("what", manifest.init.what);
    init.get("loaded", manifest.init.loaded);
    init.get("drawn", manifest.init.drawn);
    init.get("dropped", manifest.init.dropped);
  }
  for (const Json& item : top.array("segments")) {
    const Members members(item, path + ": segments");
    ManifestSegment& segment = manifest.segments.emplace_back();
    members.get("command_line", segment.command_line);
    members.get("first_step", segment.first_step);
    members.get("start", segment.start);
    members.get("end", segment.end);
    members.get("exit_reason", segment.exit_reason);
  }
  if (manifest.segments.empty())
    fail_run(path + ": 'segments' is empty; at least the first start belongs there");
  return manifest;
}

RunResult read_summary(FileSystem& files, const std::string& folder) {
  const std::string path = folder + "/summary.json";
  const Json json = read_object(files, path);
  const Members top(json, path);
  RunResult result;
  result.folder = folder;
  top.get("status", result.status);
  if (result.status != "completed" && result.status != "interrupted" && result.status != "failed") {
    fail_run(path + ": 'status': expected completed, interrupted or failed, found '" + result.status + "'");
  }
  result.exit_status = result.status == "failed" ? 1 : 0;
  top.get("steps", result.steps);
  top.get("samples", result.samples);
  top.get("tokens", result.tokens);
  top.get("wall_s", result.wall_s);
  top.get("bytes_sent", result.bytes_sent);
  numbers_of(top.object("metrics"), result.metrics);
  top.get("weights_hash", result.weights_hash);
  top.get("state_hash", result.state_hash);
  top.get("peak_rss_mb", result.peak_rss_mb);
  top.get("peak_anonymous_mb", result.peak_anonymous_mb);
  top.get("stall_s", result.stall_s);
  top.get("hidden_comm_share", result.hidden_comm_share);
  numbers_of(top.object("quantized_operands"), result.quantized_operands);
  if (top.has("bytes_by_purpose")) numbers_of(top.object("bytes_by_purpose"), result.bytes_by_purpose);
  if (top.has("nondeterminism")) top.get("nondeterminism", result.nondeterminism);
  if (top.has("error")) top.get("error", result.error);
  return result;
}

}  // namespace tenon
