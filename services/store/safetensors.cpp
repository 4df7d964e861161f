// Files in the safetensors format: headers, layout, streaming write, bounds-checked reads.
#include "store/safetensors.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <numeric>

namespace tenon {

// Headers. Parsing by events rather than into a tree: duplicate keys are seen, memory stays proportional to
// what is kept, and depth is bounded by the few shapes that the format knows.

namespace {

using Json = nlohmann::json;

// The reference's order of types: "increasing alignment".
constexpr SafetensorsType kTypes[] = {
    {"BOOL", 8, 0, DType::kBool},
    {"F4", 4, 1, DType::kF4E2M1},
    {"F6_E2M3", 6, 2, DType::kF6E2M3},
    {"F6_E3M2", 6, 3, DType::kF6E3M2},
    {"U8", 8, 4, DType::kU8},
    {"I8", 8, 5, DType::kI8},
    {"F8_E5M2", 8, 6, DType::kF8E5M2},
    {"F8_E4M3", 8, 7, DType::kF8E4M3},
    {"F8_E8M0", 8, 8, DType::kF8E8M0},
    {"F8_E4M3FNUZ", 8, 9, std::nullopt},
    {"F8_E5M2FNUZ", 8, 10, std::nullopt},
    {"I16", 16, 11, DType::kI16},
    {"U16", 16, 12, DType::kU16},
    {"F16", 16, 13, DType::kF16},
    {"BF16", 16, 14, DType::kBF16},
    {"I32", 32, 15, DType::kI32},
    {"U32", 32, 16, DType::kU32},
    {"F32", 32, 17, DType::kF32},
    {"C64", 64, 18, DType::kC64},
    {"F64", 64, 19, DType::kF64},
    {"I64", 64, 20, DType::kI64},
    {"U64", 64, 21, DType::kU64},
};

// Follows the header's grammar: { "__metadata__": {text: text}, name: {dtype, shape, data_offsets}, ... }
class HeaderEvents {
 public:
  explicit HeaderEvents(const std::string& label) : label_(label) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(std::int64_t value) { return unexpected(fmt::format("the number {}", value)); }
  bool number_float(double, const std::string& text) { return unexpected("the number " + text); }
  bool binary(Json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(fmt::format("{} is out of range in {}", value, where()));
    }
    if (state_ == State::kShape) {
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (state_ == State::kOffsets) {
      offsets_.push_back(static_cast<std::int64_t>(value));
    } else {
      unexpected(fmt::format("the number {}", value));
    }
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::kMetadata) {
      if (!metadata_.emplace(key_, value).second) fail("duplicate key '" + key_ + "' in __metadata__");
    } else if (state_ == State::kTensor && key_ == "dtype") {
      entry_.file_dtype = value;
    } else {
      unexpected("the text '" + value.substr(0, 64) + "'");
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (state_ == State::kBegin) {
      state_ = State::kTop;
    } else if (state_ == State::kTop && key_ == "__metadata__") {
      if (metadata_seen_) fail("duplicate key '__metadata__'");
      metadata_seen_ = true;
      state_ = State::kMetadata;
    } else if (state_ == State::kTop) {
      entry_ = {};
      entry_.name = key_;
      offsets_.clear();
      fields_ = 0;
      state_ = State::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& value) {
    key_ = value;
    if (state_ != State::kTensor) return true;
    const unsigned field = value == "dtype" ? 1u : value == "shape" ? 2u : value == "data_offsets" ? 4u : 0u;
    if (field == 0) fail("tensor '" + entry_.name + "' has an unknown field '" + value.substr(0, 64) + "'");
    if ((fields_ & field) != 0) fail("duplicate key '" + value + "' in tensor '" + entry_.name + "'");
    fields_ |= field;
    return true;
  }

  bool end_object() {
    if (state_ == State::kTensor) {
      finish_tensor();
      state_ = State::kTop;
    } else {
      state_ = state_ == State::kMetadata ? State::kTop : State::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (state_ == State::kTensor && key_ == "shape") {
      state_ = State::kShape;
    } else if (state_ == State::kTensor && key_ == "data_offsets") {
      state_ = State::kOffsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() {
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    fail(fmt::format("the header is not valid JSON at byte {}: {}", position, error.what()));
  }

  SafetensorsHeader take() { return {std::move(entries_), std::move(metadata_)}; }

 private:
  enum class State { kBegin, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  [[noreturn]] void fail(const std::string& what) const { fail_run(label_ + ": " + what); }

  std::string where() const {
    switch (state_) {
      case State::kMetadata:
        return "__metadata__";
      case State::kTensor:
      case State::kShape:
      case State::kOffsets:
        return "'" + key_ + "' of tensor '" + entry_.name + "'";
      default:
        return "the header";
    }
  }

  bool unexpected(const std::string& what) const { fail("unexpected " + what + " in " + where()); }

  void finish_tensor() {
    const std::string name = "tensor '" + entry_.name + "'";
    if (fields_ != 7u) fail(name + " lacks dtype, shape or data_offsets");
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      fail(name + ": data_offsets must be two ascending numbers");
    }
    const SafetensorsType* type = find_safetensors_type(entry_.file_dtype);
    if (type == nullptr) fail(name + " has an unknown dtype '" + entry_.file_dtype.substr(0, 64) + "'");
    const std::optional<std::int64_t> bytes = safetensors_bytes(type->bits, entry_.shape);
    if (!bytes) fail(name + ": its shape overflows or does not end on a byte");
    if (*bytes != offsets_[1] - offsets_[0]) {
      fail(fmt::format("{}: shape and dtype need {} bytes, data_offsets give {}", name, *bytes,
                       offsets_[1] - offsets_[0]));
    }
    entry_.dtype = type->dtype;
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    entries_.push_back(std::move(entry_));
  }

  const std::string& label_;
  State state_ = State::kBegin;
  std::string key_;
  SafetensorsEntry entry_;
  std::vector<std::int64_t> offsets_;
  unsigned fields_ = 0;
  bool metadata_seen_ = false;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail_run("a name or value of a safetensors file must be UTF-8 text");
  }
}

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) noexcept {
  const auto found = std::ranges::find(kTypes, name, &SafetensorsType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

std::optional<std::int64_t> safetensors_bytes(int bits, std::span<const std::int64_t> shape) noexcept {
  std::int64_t total = bits;
  bool empty = false;
  for (const std::int64_t extent : shape) empty = empty || extent == 0;
  if (empty) return 0;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(total, extent, &total)) return std::nullopt;
  }
  return total % 8 == 0 ? std::optional(total / 8) : std::nullopt;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const std::string& label) {
  if (json.empty() || json.front() != '{') fail_run(label + ": the header must begin with '{'");
  HeaderEvents events(label);
  Json::sax_parse(json.begin(), json.end(), &events);
  SafetensorsHeader header = events.take();

  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : header.entries) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) fail_run(label + ": duplicate key '" + std::string(*twice) + "'");

  std::ranges::stable_sort(header.entries, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::int64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != position) {
      fail_run(fmt::format(
          "{}: tensor '{}' begins at byte {} of the data, {} byte {}", label, entry.name, entry.begin,
          entry.begin < position ? "inside the previous one that ends at" : "with a hole after", position));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    fail_run(fmt::format("{}: the tensors take {} bytes, the file holds {} after its header", label, position,
                         data_bytes));
  }
  return header;
}

std::string safetensors_header_text(std::span<const SafetensorsEntry> entries,
                                    const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += quoted(key) + ":" + quoted(value);
    }
    text += '}';
  }
  for (const SafetensorsEntry& entry : entries) {
    if (text.size() > 1) text += ',';
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(entry.name),
                        entry.file_dtype, fmt::join(entry.shape, ","), entry.begin, entry.end);
  }
  return text + '}';
}

// Files: layout, streaming write, bounds-checked reads.

namespace {

constexpr std::int64_t kPrefixBytes = 8;

std::string length_prefix(std::uint64_t length) {
  std::string prefix(kPrefixBytes, '\0');
  for (int i = 0; i < kPrefixBytes; ++i) prefix[i] = static_cast<char>(length >> (8 * i));
  return prefix;
}

SafetensorsEntry entry_of(const SafetensorsItem& item) {
  SafetensorsEntry entry = safetensors_entry(item.name, item.dtype, item.shape);
  if (entry.bytes() != static_cast<std::int64_t>(item.data.size())) {
    fail_run("tensor '" + item.name + "' " + item.shape.text() + " needs " + std::to_string(entry.bytes()) +
             " bytes, got " + std::to_string(item.data.size()));
  }
  return entry;
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kC64:
      return "F32";
    case DType::kF64:
    case DType::kC128:
      return "F64";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI16:
      return "I16";
    case DType::kU16:
      return "U16";
    case DType::kI32:
      return "I32";
    case DType::kU32:
      return "U32";
    case DType::kI64:
      return "I64";
    case DType::kU64:
      return "U64";
    case DType::kBool:
      return "BOOL";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E5M2:
      return "F8_E5M2";
    case DType::kF8E8M0:
      return "F8_E8M0";
    case DType::kF4E2M1:
      return "F4";
    case DType::kF6E2M3:
      return "F6_E2M3";
    case DType::kF6E3M2:
      return "F6_E3M2";
  }
  fail_run("an element type of value " + std::to_string(static_cast<int>(dtype)) +
           " has no name in safetensors");
}

SafetensorsEntry safetensors_entry(std::string name, DType dtype, const Shape& shape) {
  SafetensorsEntry entry;
  entry.name = std::move(name);
  entry.file_dtype = safetensors_dtype(dtype);
  entry.dtype = dtype;
  entry.shape.assign(shape.extents().begin(), shape.extents().end());
  if (dtype_is_complex(dtype)) entry.shape.push_back(2);
  const std::optional<std::int64_t> bytes =
      safetensors_bytes(find_safetensors_type(entry.file_dtype)->bits, entry.shape);
  if (!bytes) fail_run("tensor '" + entry.name + "' " + shape.text() + " does not end on a byte");
  entry.end = *bytes;
  return entry;
}

bool safetensors_before(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  const int rank_a = find_safetensors_type(a.file_dtype)->rank;
  const int rank_b = find_safetensors_type(b.file_dtype)->rank;
  return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
}

std::string safetensors_beginning(std::span<SafetensorsEntry> entries, const SafetensorsMetadata& metadata) {
  std::vector<std::string_view> names;
  std::int64_t position = 0;
  for (SafetensorsEntry& entry : entries) {
    if (entry.name == "__metadata__")
      fail_run("a tensor cannot be named '__metadata__' in a safetensors file");
    const std::int64_t bytes = entry.bytes();
    entry.begin = position;
    entry.end = position += bytes;
    names.push_back(entry.name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end())
    fail_run("two tensors are named '" + std::string(*twice) + "' in one safetensors file");
  std::string json = safetensors_header_text(entries, metadata);
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > static_cast<std::size_t>(kMaxSafetensorsHeader)) {
    fail_run("a safetensors header of " + std::to_string(json.size()) +
             " bytes; at most 100000000 are allowed");
  }
  return length_prefix(json.size()) + json;
}

SafetensorsLayout plan_safetensors(std::span<const SafetensorsItem> items,
                                   const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  entries.reserve(items.size());
  for (const SafetensorsItem& item : items) entries.push_back(entry_of(item));

  SafetensorsLayout layout;
  layout.order.resize(items.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::ranges::sort(layout.order,
                    [&](std::size_t a, std::size_t b) { return safetensors_before(entries[a], entries[b]); });
  std::vector<SafetensorsEntry> ordered;
  ordered.reserve(entries.size());
  for (const std::size_t index : layout.order) ordered.push_back(std::move(entries[index]));
  layout.header = safetensors_beginning(ordered, metadata);
  layout.file_bytes =
      static_cast<std::int64_t>(layout.header.size()) + (ordered.empty() ? 0 : ordered.back().end);
  return layout;
}

void write_safetensors(WritableFile& file, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata) {
  const SafetensorsLayout layout = plan_safetensors(items, metadata);
  file.append(std::as_bytes(std::span(layout.header)));
  for (const std::size_t index : layout.order) file.append(items[index].data);
}

SafetensorsReader::SafetensorsReader(std::unique_ptr<ReadableFile> file, std::string label)
    : file_(std::move(file)), label_(std::move(label)) {
  const std::int64_t size = file_->size();
  if (size < kPrefixBytes)
    fail_run(label_ + ": a safetensors file has at least 8 bytes, found " + std::to_string(size));
  unsigned char prefix[kPrefixBytes];
  file_->read(0, std::as_writable_bytes(std::span(prefix)));
  std::uint64_t length = 0;
  for (int i = 0; i < kPrefixBytes; ++i) length |= std::uint64_t{prefix[i]} << (8 * i);
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader)) {
    fail_run(label_ + ": header length " + std::to_string(length) +
             " is over the limit of 100000000; is this a " + "safetensors file?");
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > size - kPrefixBytes) {
    fail_run(label_ + ": header of " + std::to_string(header_bytes) + " bytes in a file of " +
             std::to_string(size));
  }
  std::string json(header_bytes, '\0');
  file_->read(kPrefixBytes, std::as_writable_bytes(std::span(json)));
  data_begin_ = kPrefixBytes + header_bytes;

  SafetensorsHeader header = parse_safetensors_header(json, size - data_begin_, label_);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const noexcept {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const SafetensorsEntry& SafetensorsReader::at(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    fail_run(label_ + " has no tensor '" + std::string(name) + "' among its " +
             std::to_string(entries_.size()));
  }
  return *entry;
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::int64_t offset,
                             std::span<std::byte> out) const {
  const std::int64_t size = entry.bytes();
  if (offset < 0 || offset > size || static_cast<std::int64_t>(out.size()) > size - offset) {
    fail_run(label_ + ": bytes [" + std::to_string(offset) + ", +" + std::to_string(out.size()) +
             ") are outside tensor '" + entry.name + "' of " + std::to_string(size) + " bytes");
  }
  if (!out.empty()) file_->read(data_begin_ + entry.begin + offset, out);
}

std::vector<std::byte> SafetensorsReader::read_all(const SafetensorsEntry& entry) const {
  std::vector<std::byte> bytes(entry.bytes());
  read(entry, 0, bytes);
  return bytes;
}

}  // namespace tenon
