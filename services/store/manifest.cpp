// Joining what ranks wrote into one manifest, the geometry that makes its parts whole tensors, and the text
// of manifests and rank reports.
#include "store/manifest.hpp"

#include "base/digests.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace tenon::checkpoint {

bool PartRecord::operator==(const PartRecord& other) const {
  return file == other.file && key == other.key && box.offset == other.box.offset &&
         box.extents == other.box.extents && encoding == other.encoding && rows_key == other.rows_key;
}

bool TensorRecord::operator==(const TensorRecord& other) const {
  return dtype == other.dtype && shape == other.shape && parts == other.parts;
}

Manifest join_reports(std::span<const RankReport> reports) {
  if (reports.empty()) fail_run("a checkpoint needs the report of at least one rank");
  Manifest joined = reports.front().part;
  joined.files.clear();
  joined.tensors.clear();
  joined.meta.clear();
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const RankReport& report = reports[i];
    const Manifest& part = report.part;
    if (report.rank != static_cast<int>(i))
      fail_run(fmt::format("report {} comes from rank {}", i, report.rank));
    if (part.step != joined.step || part.timeline != joined.timeline || part.base != joined.base ||
        part.consistent != joined.consistent || part.world_size != static_cast<int>(reports.size())) {
      fail_run(fmt::format(
          "rank {} saves step {} (timeline {}, base {}, world of {}), rank 0 saves step {} (timeline {}, "
          "base {}, world of {})",
          i, part.step, part.timeline, part.base, part.world_size, joined.step, joined.timeline, joined.base,
          reports.size()));
    }
    for (const auto& [name, value] : part.meta) {
      const auto [entry, added] = joined.meta.emplace(name, value);
      if (!added && entry->second != value) {
        fail_run(fmt::format(
            "ranks disagree about meta '{}'; put the rank into its name if it differs per rank", name));
      }
    }
    const int first_file = static_cast<int>(joined.files.size());
    joined.files.insert(joined.files.end(), part.files.begin(), part.files.end());
    for (const auto& [name, tensor] : part.tensors) {
      TensorRecord& target =
          joined.tensors.try_emplace(name, TensorRecord{tensor.dtype, tensor.shape, {}}).first->second;
      if (target.dtype != tensor.dtype || !(target.shape == tensor.shape)) {
        fail_run(fmt::format("tensor '{}' is {} {} on rank {}, {} {} on a rank before", name,
                             dtype_name(tensor.dtype), tensor.shape.text(), i, dtype_name(target.dtype),
                             target.shape.text()));
      }
      for (PartRecord record : tensor.parts) {
        record.file += first_file;
        target.parts.push_back(std::move(record));
      }
    }
  }
  return joined;
}

namespace {

void check_tensor(const std::string& name, const TensorRecord& tensor, bool complete,
                  const std::string& label) {
  const auto fail = [&](const std::string& what) { fail_run(label + ": tensor '" + name + "' " + what); };
  std::int64_t covered = 0;
  std::size_t row_parts = 0;
  for (const PartRecord& part : tensor.parts) {
    const bool rows = !part.rows_key.empty();
    row_parts += rows ? 1 : 0;
    if (!box_fits(part.box, tensor.shape) ||
        (rows && (tensor.shape.rank() == 0 || part.box.offset[0] != 0))) {
      fail(fmt::format("has a part {} at {} outside its shape {}", part.box.extents.text(),
                       part.box.offset.text(), tensor.shape.text()));
    }
    if (__builtin_add_overflow(covered, part.box.extents.elements(), &covered)) fail("has overlapping parts");
  }
  if (row_parts != 0 && row_parts != tensor.parts.size()) fail("mixes slices and rows in one generation");
  if (row_parts == 0) {
    // Sorted by their first dimension, only neighbours can overlap in the common case of row-wise shards.
    std::vector<Box> boxes;
    for (const PartRecord& part : tensor.parts) boxes.push_back(part.box);
    const auto first = [](const Box& box) { return box.offset.rank() == 0 ? 0 : box.offset[0]; };
    std::ranges::sort(boxes, {}, first);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      const std::int64_t end = first(boxes[i]) + (boxes[i].extents.rank() == 0 ? 1 : boxes[i].extents[0]);
      for (std::size_t j = i + 1; j < boxes.size() && first(boxes[j]) < end; ++j) {
        if (shared_elements(boxes[i], boxes[j]) > 0) {
          fail(fmt::format("has overlapping parts {} at {} and {} at {}", boxes[i].extents.text(),
                           boxes[i].offset.text(), boxes[j].extents.text(), boxes[j].offset.text()));
        }
      }
    }
  }
  if (complete && covered != tensor.shape.elements()) {
    fail(fmt::format(
        "{}: its parts hold {} of {} elements; a rank did not give its part, or two gave the same",
        tensor.shape.text(), covered, tensor.shape.elements()));
  }
}

}  // namespace

void check_parts(const Manifest& manifest, const std::string& label) {
  for (const auto& [name, tensor] : manifest.tensors) check_tensor(name, tensor, manifest.base < 0, label);
  std::vector<std::string_view> names;
  for (const FileRecord& file : manifest.files) names.push_back(file.name);
  std::ranges::sort(names);
  if (std::ranges::adjacent_find(names) != names.end()) fail_run(label + ": names a file twice");
  if (manifest.base >= manifest.step) {
    fail_run(
        fmt::format("{}: step {} cannot be an increment of step {}", label, manifest.step, manifest.base));
  }
}

// Text of manifests and rank reports. Reading trusts nothing: types, ranges and names are checked before use,
// since a manifest may come from another machine, and a report from another process.

namespace {

using Json = nlohmann::json;

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr char kFormat[] = "tenon.checkpoint";
constexpr std::int64_t kVersion = 1;

// The end of a manifest, fixed so that no byte of the file is outside the CRC's reach.
std::string manifest_tail(std::uint32_t crc) {
  return fmt::format(",\n\"manifest_crc32c\": \"{:08x}\"\n}}\n", crc);
}

// Text stays readable; anything that JSON cannot carry unchanged goes as hexadecimal.
Json bytes_json(const std::string& value) {
  Json json = value;
  try {
    json.dump();
    return Json{{"text", value}};
  } catch (const Json::exception&) {
    return Json{{"hex", hex_of(std::as_bytes(std::span(value)))}};
  }
}

Json shape_json(const Shape& shape) {
  return Json(std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end()));
}

Json part_json(const PartRecord& part) {
  Json json{{"file", part.file},
            {"key", part.key},
            {"offset", shape_json(part.box.offset)},
            {"shape", shape_json(part.box.extents)}};
  if (part.encoding != kPlainEncoding) json["encoding"] = part.encoding;
  if (!part.rows_key.empty()) json["rows"] = part.rows_key;
  return json;
}

Json tensor_json(const std::string& name, const TensorRecord& tensor) {
  Json parts = Json::array();
  for (const PartRecord& part : tensor.parts) parts.push_back(part_json(part));
  return Json{{"name", name},
              {"dtype", dtype_name(tensor.dtype)},
              {"shape", shape_json(tensor.shape)},
              {"parts", parts}};
}

Json file_json(const FileRecord& file) {
  std::string crcs;
  crcs.reserve(8 * file.crcs.size());
  for (const std::uint32_t crc : file.crcs) crcs += fmt::format("{:08x}", crc);
  return Json{{"name", file.name}, {"bytes", file.bytes}, {"crc32c", crcs}};
}

// One list element per line: a manifest of thousands of tensors should still read well in a pager.
void append_list(std::string& text, const char* key, const std::vector<Json>& values) {
  text += fmt::format(",\n\"{}\": [", key);
  for (std::size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "\n " : ",\n ") + values[i].dump();
  text += "\n]";
}

std::string body_text(const Manifest& manifest) {
  std::string text = fmt::format("{{\n\"format\": \"{}\",\n\"version\": {}", kFormat, kVersion);
  const auto field = [&](const char* key, const Json& value) {
    text += fmt::format(",\n\"{}\": {}", key, value.dump());
  };
  field("step", manifest.step);
  field("timeline", manifest.timeline);
  field("world_size", manifest.world_size);
  field("consistent", manifest.consistent);
  field("base", manifest.base < 0
                    ? Json(nullptr)
                    : Json{{"step", manifest.base}, {"crc32c", fmt::format("{:08x}", manifest.base_crc)}});
  Json meta = Json::object();
  for (const auto& [name, value] : manifest.meta) meta[name] = bytes_json(value);
  field("meta", meta);
  std::vector<Json> files;
  for (const FileRecord& file : manifest.files) files.push_back(file_json(file));
  append_list(text, "files", files);
  std::vector<Json> tensors;
  for (const auto& [name, tensor] : manifest.tensors) tensors.push_back(tensor_json(name, tensor));
  append_list(text, "tensors", tensors);
  return text;
}

// Reads fields of one JSON value; every failure names the label and the path of the field.
class Field {
 public:
  Field(const Json& json, const std::string& label, std::string path)
      : json_(json), label_(label), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& what) const { fail_run(label_ + ": " + path_ + " " + what); }

  Field at(const char* key) const {
    if (!json_.is_object()) fail("must be an object");
    const auto found = json_.find(key);
    if (found == json_.end()) fail(fmt::format("lacks '{}'", key));
    return Field(*found, label_, path_ + "." + key);
  }
  bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
  bool is_null() const { return json_.is_null(); }

  std::vector<Field> elements() const {
    if (!json_.is_array()) fail("must be a list");
    std::vector<Field> fields;
    for (std::size_t i = 0; i < json_.size(); ++i)
      fields.emplace_back(json_[i], label_, fmt::format("{}[{}]", path_, i));
    return fields;
  }
  std::vector<std::pair<std::string, Field>> members() const {
    if (!json_.is_object()) fail("must be an object");
    std::vector<std::pair<std::string, Field>> fields;
    for (const auto& [key, value] : json_.items())
      fields.emplace_back(key, Field(value, label_, path_ + "." + key));
    return fields;
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) const {
    if (!json_.is_number_integer()) fail("must be an integer");
    const bool huge =
        json_.is_number_unsigned() && json_.get<std::uint64_t>() > static_cast<std::uint64_t>(kInt64Max);
    const std::int64_t value = huge ? kInt64Max : json_.get<std::int64_t>();
    if (huge || value < low || value > high) fail(fmt::format("must be in [{}, {}]", low, high));
    return value;
  }
  bool boolean() const {
    if (!json_.is_boolean()) fail("must be true or false");
    return json_.get<bool>();
  }
  std::string text() const {
    if (!json_.is_string()) fail("must be text");
    return json_.get<std::string>();
  }
  std::uint32_t hex32() const {
    const std::vector<std::uint32_t> words = hex_words(text());
    if (words.size() != 1) fail("must have 8 hexadecimal digits");
    return words[0];
  }
  std::vector<std::uint32_t> hex_words(const std::string& digits) const {
    if (digits.size() % 8 != 0) fail("must have 8 hexadecimal digits per value");
    std::vector<std::uint32_t> words(digits.size() / 8);
    for (std::size_t i = 0; i < digits.size(); ++i) words[i / 8] = words[i / 8] << 4 | digit(digits[i]);
    return words;
  }
  std::string bytes() const {
    if (has("text")) return at("text").text();
    const std::string digits = at("hex").text();
    if (digits.size() % 2 != 0) fail("has an odd number of hexadecimal digits");
    std::string value(digits.size() / 2, '\0');
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] = static_cast<char>(digit(digits[2 * i]) << 4 | digit(digits[2 * i + 1]));
    }
    return value;
  }
  Shape shape() const {
    std::vector<std::int64_t> extents;
    for (const Field& extent : elements()) extents.push_back(extent.integer(0, kInt64Max));
    try {
      return Shape(extents);
    } catch (const Error& error) {
      fail(error.what());
    }
  }

 private:
  std::uint32_t digit(char c) const {
    if (c >= '0' && c <= '9') return static_cast<std::uint32_t>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<std::uint32_t>(c - 'a' + 10);
    fail("has a digit that is not lower-case hexadecimal");
  }

  const Json& json_;
  const std::string& label_;
  std::string path_;
};

// A file of a generation is in its folder: a name with a slash or a leading dot could point elsewhere.
bool plain_file_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

FileRecord file_of(const Field& field) {
  FileRecord file;
  file.name = field.at("name").text();
  if (!plain_file_name(file.name)) field.fail("has a file name that is not plain");
  file.bytes = field.at("bytes").integer(0, kInt64Max);
  file.crcs = field.at("crc32c").hex_words(field.at("crc32c").text());
  if (static_cast<std::int64_t>(file.crcs.size()) != block_count(file.bytes)) {
    field.fail(fmt::format("has {} block digests for {} bytes", file.crcs.size(), file.bytes));
  }
  return file;
}

PartRecord part_of(const Field& field, std::size_t files) {
  PartRecord part;
  part.file = static_cast<int>(field.at("file").integer(0, static_cast<std::int64_t>(files) - 1));
  part.key = field.at("key").text();
  part.box = {field.at("offset").shape(), field.at("shape").shape()};
  if (field.has("encoding")) part.encoding = field.at("encoding").text();
  if (field.has("rows")) {
    part.rows_key = field.at("rows").text();
    if (part.rows_key.empty()) field.fail("has an empty rows key");
  }
  return part;
}

Manifest manifest_of(const Field& root) {
  if (root.at("format").text() != kFormat) root.fail("is not a checkpoint of Tenon");
  const std::int64_t version = root.at("version").integer(0, kInt64Max);
  if (version != kVersion) {
    root.fail(fmt::format("has format version {}; this program reads {}", version, kVersion));
  }
  Manifest manifest;
  manifest.step = root.at("step").integer(0, kInt64Max);
  manifest.timeline = root.at("timeline").integer(0, kInt64Max);
  manifest.world_size = static_cast<int>(root.at("world_size").integer(1, std::numeric_limits<int>::max()));
  manifest.consistent = root.at("consistent").boolean();
  if (const Field base = root.at("base"); !base.is_null()) {
    manifest.base = base.at("step").integer(0, kInt64Max);
    manifest.base_crc = base.at("crc32c").hex32();
  }
  for (const auto& [name, value] : root.at("meta").members()) manifest.meta[name] = value.bytes();
  for (const Field& file : root.at("files").elements()) manifest.files.push_back(file_of(file));
  for (const Field& field : root.at("tensors").elements()) {
    TensorRecord tensor;
    tensor.shape = field.at("shape").shape();
    const std::string dtype = field.at("dtype").text();
    try {
      tensor.dtype = dtype_from_name(dtype);
    } catch (const Error& error) {
      field.fail(error.what());
    }
    for (const Field& part : field.at("parts").elements())
      tensor.parts.push_back(part_of(part, manifest.files.size()));
    const std::string name = field.at("name").text();
    if (!manifest.tensors.emplace(name, std::move(tensor)).second)
      field.fail("repeats the tensor '" + name + "'");
  }
  return manifest;
}

Json parse_json(std::string_view text, const std::string& label) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    fail_run(label + ": not valid JSON: " + error.what());
  }
}

}  // namespace

std::string manifest_text(const Manifest& manifest, std::uint32_t* crc) {
  const std::string body = body_text(manifest);
  *crc = crc32c(std::as_bytes(std::span(body)));
  return body + manifest_tail(*crc);
}

Manifest parse_manifest(std::string_view text, const std::string& label, std::uint32_t* crc) {
  const std::size_t tail_size = manifest_tail(0).size();
  if (text.size() < tail_size) fail_run(label + ": cut short at " + std::to_string(text.size()) + " bytes");
  const std::string_view body = text.substr(0, text.size() - tail_size);
  *crc = crc32c(std::as_bytes(std::span(body)));
  if (text.substr(body.size()) != manifest_tail(*crc)) {
    fail_run(fmt::format(
        "{}: its CRC-32C is {:08x}, its last line says otherwise; the file is damaged or cut", label, *crc));
  }
  const Json json = parse_json(text, label);
  Manifest manifest = manifest_of(Field(json, label, "manifest"));
  check_parts(manifest, label);
  return manifest;
}

std::string report_text(const RankReport& report) {
  Json json{{"rank", report.rank}, {"error", bytes_json(report.error)}, {"bytes", report.bytes}};
  return json.dump() + "\n" + body_text(report.part) + "\n}\n";
}

RankReport parse_report(std::string_view text, const std::string& label) {
  const std::size_t line = std::min(text.find('\n'), text.size());
  const Json head = parse_json(text.substr(0, line), label);
  const Field field(head, label, "report");
  RankReport report;
  report.rank = static_cast<int>(field.at("rank").integer(0, std::numeric_limits<int>::max()));
  report.error = field.at("error").bytes();
  report.bytes = field.at("bytes").integer(0, kInt64Max);
  const Json body = parse_json(text.substr(line), label);
  report.part = manifest_of(Field(body, label, "report"));
  return report;
}

}  // namespace tenon::checkpoint
