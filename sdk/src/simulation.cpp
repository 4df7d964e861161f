// A simulation's manifest and its text, the file names of a simulation, and the digest of a sample.
#include "base/json_writer.hpp"

#include <tenon/sdk/npy.hpp>
#include <tenon/sdk/simulation.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <set>

TENON_ABI_BEGIN

// Properties of a manifest that do not need its text.

namespace {

std::string described(std::span<const SimulatedField> fields) {
  std::string text;
  for (const SimulatedField& field : fields)
    text +=
        fmt::format("{} {} {} {}\n", field.name, dtype_name(field.dtype), field.shape.text(), field.target);
  return text;
}

}  // namespace

bool SimulationManifest::complete() const {
  return static_cast<std::int64_t>(finished.size() + failed.size()) >= samples;
}

std::string SimulationManifest::config_hash() const {
  const std::string text = fmt::format("{}\n{} {}\nseed {}\n{}\nfields\n{}shared\n{}", simulator, plugin,
                                       plugin_version, seed, config, described(fields), described(shared));
  return sha256_of(std::as_bytes(std::span(text)));
}

// Text of a simulation's manifest. Reading validates everything and skips nothing: an unknown key may change
// the meaning of the known ones.

namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "tenon.simulation";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostElements = std::int64_t{1} << 34;  // of one array of one sample
constexpr std::size_t kMostFields = 64;

/// One JSON value; every failure names the file and the path of the value.
class Node {
 public:
  Node(const Json& json, std::string_view where, std::string path)
      : json_(json), where_(where), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& what) const {
    fail_config(fmt::format("{}: {} {}", where_, path_, what));
  }
  /// Requires an object with exactly these keys.
  void has_keys(std::initializer_list<const char*> keys) const {
    if (!json_.is_object()) fail("must be an object");
    for (const char* key : keys) {
      if (!json_.contains(key)) fail(fmt::format("lacks '{}'", key));
    }
    for (const auto& [key, value] : json_.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        fail(fmt::format("has the key '{}', which this program does not know; was it written by a newer one?",
                         key));
      }
    }
  }
  Node at(const char* key) const { return Node(json_.at(key), where_, path_ + "." + key); }
  std::vector<Node> elements() const {
    if (!json_.is_array()) fail("must be a list");
    std::vector<Node> all;
    all.reserve(json_.size());
    for (std::size_t i = 0; i < json_.size(); ++i)
      all.emplace_back(json_[i], where_, fmt::format("{}[{}]", path_, i));
    return all;
  }
  std::uint64_t natural(std::uint64_t most) const {
    const bool fits = json_.is_number_unsigned() && json_.get<std::uint64_t>() <= most;
    if (!fits) fail(fmt::format("must be a whole number from 0 to {}", most));
    return json_.get<std::uint64_t>();
  }
  std::int64_t integer(std::int64_t least, std::int64_t most) const {
    const std::uint64_t value = natural(static_cast<std::uint64_t>(most));
    if (static_cast<std::int64_t>(value) < least) fail(fmt::format("must be at least {}", least));
    return static_cast<std::int64_t>(value);
  }
  std::string text() const {
    if (!json_.is_string()) fail("must be text");
    return json_.get<std::string>();
  }

 private:
  const Json& json_;
  std::string_view where_;
  std::string path_;
};

/// The name becomes part of a path.
bool is_field_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_digest(const std::string& text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Shape shape_of(const Node& node) {
  std::vector<std::int64_t> extents;
  std::int64_t elements = 1;
  for (const Node& extent : node.elements()) {
    extents.push_back(extent.integer(1, kMostElements));
    if (extents.back() > kMostElements / elements)
      node.fail(fmt::format("has more than {} elements", kMostElements));
    elements *= extents.back();
  }
  if (extents.empty() || extents.size() >= static_cast<std::size_t>(kMaxRank))
    node.fail(fmt::format("must have 1 to {} extents", kMaxRank - 1));
  return Shape(std::span<const std::int64_t>(extents));
}

std::vector<SimulatedField> fields_of(const Node& list) {
  std::vector<SimulatedField> fields;
  std::set<std::string> names;
  for (const Node& node : list.elements()) {
    node.has_keys({"name", "role", "dtype", "shape"});
    SimulatedField field;
    field.name = node.at("name").text();
    if (!is_field_name(field.name)) node.fail("has a name other than lower case, digits and '_'");
    if (!names.insert(field.name).second) node.fail(fmt::format("is a second '{}'", field.name));
    const std::string role = node.at("role").text();
    if (role != "input" && role != "target") node.at("role").fail("must be input or target");
    field.target = role == "target";
    const std::string dtype = node.at("dtype").text();
    constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8};
    const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                           [&](DType type) { return dtype_name(type) == dtype; });
    if (found == std::end(kTypes)) node.at("dtype").fail("must be f32, f64, i32, i64 or u8");
    field.dtype = *found;
    field.shape = shape_of(node.at("shape"));
    fields.push_back(std::move(field));
    if (fields.size() > kMostFields) list.fail(fmt::format("has more than {} elements", kMostFields));
  }
  return fields;
}

SimulationManifest manifest_of(const Node& root) {
  root.has_keys({"format", "version", "simulator", "plugin", "plugin_version", "seed", "samples",
                 "config_sha256", "config", "fields", "shared", "finished", "failed"});
  if (root.at("format").text() != kFormat) root.at("format").fail(fmt::format("must be {}", kFormat));
  const std::int64_t version = root.at("version").integer(0, kMost);
  if (version != kVersion)
    root.at("version").fail(fmt::format("is {}; this program reads {}", version, kVersion));
  SimulationManifest manifest;
  manifest.simulator = root.at("simulator").text();
  manifest.plugin = root.at("plugin").text();
  manifest.plugin_version = root.at("plugin_version").text();
  manifest.seed = root.at("seed").natural(std::numeric_limits<std::uint64_t>::max());
  manifest.samples = root.at("samples").integer(1, kMost);
  manifest.config = root.at("config").text();
  manifest.fields = fields_of(root.at("fields"));
  if (manifest.fields.empty()) root.at("fields").fail("must not be empty");
  manifest.shared = fields_of(root.at("shared"));
  const std::string hash = root.at("config_sha256").text(), expected = manifest.config_hash();
  if (hash != expected) {
    root.at("config_sha256")
        .fail(
            fmt::format("does not fit the rest, so the file was edited or is damaged: expected {}, found {}",
                        expected, hash.substr(0, 64)));
  }
  for (const Node& node : root.at("finished").elements()) {
    node.has_keys({"index", "xxh3"});
    const std::int64_t index = node.at("index").integer(0, manifest.samples - 1);
    const std::string digest = node.at("xxh3").text();
    if (!is_digest(digest, 32)) node.at("xxh3").fail("must have 32 hexadecimal digits");
    if (!manifest.finished.emplace(index, digest).second) node.fail(fmt::format("repeats sample {}", index));
  }
  for (const Node& node : root.at("failed").elements()) {
    node.has_keys({"index", "kind", "attempts", "cause"});
    const std::int64_t index = node.at("index").integer(0, manifest.samples - 1);
    FailedTask task{node.at("kind").text(), node.at("cause").text(), node.at("attempts").integer(1, kMost)};
    if (task.kind != "error" && task.kind != "time" && task.kind != "lost")
      node.at("kind").fail("must be error, time or lost");
    if (manifest.finished.count(index) > 0 || !manifest.failed.emplace(index, std::move(task)).second)
      node.fail(fmt::format("repeats sample {}", index));
  }
  return manifest;
}

std::string json_text(std::string_view text) {
  std::string out;
  append_json_text(out, text);
  return out;
}

/// One element per line: a manifest of thousands of samples should still read well in a pager.
template <typename List, typename Text>
void append_list(std::string& text, const char* key, const List& list, Text&& element) {
  text += fmt::format(",\n\"{}\": [", key);
  const char* separator = "\n ";
  for (const auto& item : list) {
    text += separator + element(item);
    separator = ",\n ";
  }
  text += "\n]";
}

std::string field_text(const SimulatedField& field) {
  return fmt::format(R"({{"name": {}, "role": "{}", "dtype": "{}", "shape": [{}]}})", json_text(field.name),
                     field.target ? "target" : "input", dtype_name(field.dtype),
                     fmt::join(field.shape.extents(), ", "));
}

}  // namespace

std::string simulation_manifest_text(const SimulationManifest& manifest) {
  std::string text = fmt::format("{{\n\"format\": \"{}\",\n\"version\": {}", kFormat, kVersion);
  const auto member = [&](const char* key, const std::string& value) {
    text += fmt::format(",\n\"{}\": {}", key, value);
  };
  member("simulator", json_text(manifest.simulator));
  member("plugin", json_text(manifest.plugin));
  member("plugin_version", json_text(manifest.plugin_version));
  member("seed", fmt::format("{}", manifest.seed));
  member("samples", fmt::format("{}", manifest.samples));
  member("config_sha256", json_text(manifest.config_hash()));
  member("config", json_text(manifest.config));
  append_list(text, "fields", manifest.fields, field_text);
  append_list(text, "shared", manifest.shared, field_text);
  append_list(text, "finished", manifest.finished, [](const auto& entry) {
    return fmt::format(R"({{"index": {}, "xxh3": "{}"}})", entry.first, entry.second);
  });
  append_list(text, "failed", manifest.failed, [](const auto& entry) {
    const FailedTask& task = entry.second;
    return fmt::format(R"({{"index": {}, "kind": {}, "attempts": {}, "cause": {}}})", entry.first,
                       json_text(task.kind), task.attempts, json_text(task.cause));
  });
  return text + "\n}\n";
}

SimulationManifest parse_simulation_manifest(std::string_view text, std::string_view where) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    fail_config(fmt::format("{}: not valid JSON: {}", where, error.what()));
  }
  return manifest_of(Node(json, where, "manifest"));
}

// File names of a simulation, and the digest of a sample.

namespace {

constexpr DType kFieldTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8};

NpyFile open_array(FileSystem& files, const std::string& folder, const SimulatedField& field) {
  NpyFile file(files, simulation_array_path(folder, field), "simulated array", kFieldTypes);
  if (file.dtype() == field.dtype && file.shape() == field.shape) return file;
  fail_config(
      fmt::format("simulated array '{}': expected {} {}, found {} {}; remove the folder '{}', and `tenon "
                  "simulate` makes it again",
                  file.path(), dtype_name(field.dtype), field.shape.text(), dtype_name(file.dtype()),
                  file.shape().text(), folder));
}

}  // namespace

std::string simulation_manifest_path(const std::string& folder) {
  return folder + "/manifest.json";
}

std::string simulation_sample_folder(const std::string& folder, std::int64_t index) {
  return fmt::format("{}/samples/{:06}", folder, index);
}

std::string simulation_shared_folder(const std::string& folder) {
  return folder + "/shared";
}

std::string simulation_set_path(const std::string& folder, std::string_view set) {
  return fmt::format("{}/sets/{}.json", folder, set);
}

std::string simulation_array_path(const std::string& folder, const SimulatedField& field) {
  return fmt::format("{}/{}.npy", folder, field.name);
}

std::string simulation_digest(std::span<const TensorView> arrays) {
  std::vector<std::byte> all;
  for (const TensorView& array : arrays) all.insert(all.end(), array.raw().begin(), array.raw().end());
  return xxh3_128_of(all);
}

void check_simulation_arrays(FileSystem& files, const std::string& folder,
                             std::span<const SimulatedField> fields) {
  for (const SimulatedField& field : fields) open_array(files, folder, field);
}

void read_simulation_arrays(FileSystem& files, const std::string& folder,
                            std::span<const SimulatedField> fields, std::span<const TensorView> arrays) {
  for (std::size_t i = 0; i < fields.size(); ++i)
    open_array(files, folder, fields[i]).read(0, arrays[i].raw());
}

SimulationManifest read_simulation(FileSystem& files, const std::string& folder) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  const std::string path = simulation_manifest_path(folder);
  if (!files.exists(path)) {
    fail_config(
        fmt::format("there is no simulation in '{}': it has no manifest.json; make one with `tenon simulate "
                    "CONFIG`, where [simulate] folder is this folder",
                    folder));
  }
  return parse_simulation_manifest(read_text(files, path, kLargest), path);
}

TENON_ABI_END
