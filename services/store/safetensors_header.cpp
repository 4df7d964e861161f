// Parsing by events rather than into a tree: duplicate keys are seen, memory stays proportional to what is
// kept, and depth is bounded by the few shapes that the format knows.
#include "store/safetensors_header.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace tenon {

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

}  // namespace tenon
