// Files in the safetensors format: layout, streaming write, bounds-checked reads.
#include "store/safetensors.hpp"

#include "store/safetensors_header.hpp"

#include <algorithm>
#include <numeric>

namespace tenon {

namespace {

constexpr std::int64_t kPrefixBytes = 8;

std::string length_prefix(std::uint64_t length) {
  std::string prefix(kPrefixBytes, '\0');
  for (int i = 0; i < kPrefixBytes; ++i)
    prefix[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
  return prefix;
}

SafetensorsEntry entry_of(const SafetensorsItem& item) {
  SafetensorsEntry entry;
  entry.name = item.name;
  entry.file_dtype = safetensors_dtype(item.dtype);
  entry.dtype = item.dtype;
  entry.shape.assign(item.shape.extents().begin(), item.shape.extents().end());
  if (dtype_is_complex(item.dtype)) entry.shape.push_back(2);
  const std::optional<std::int64_t> bytes =
      safetensors_bytes(find_safetensors_type(entry.file_dtype)->bits, entry.shape);
  if (!bytes) fail_run("tensor '" + item.name + "' " + item.shape.text() + " does not end on a byte");
  if (*bytes != static_cast<std::int64_t>(item.data.size())) {
    fail_run("tensor '" + item.name + "' " + item.shape.text() + " needs " + std::to_string(*bytes) +
             " bytes, got " + std::to_string(item.data.size()));
  }
  entry.end = *bytes;
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

SafetensorsLayout plan_safetensors(std::span<const SafetensorsItem> items,
                                   const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  entries.reserve(items.size());
  for (const SafetensorsItem& item : items) {
    if (item.name == "__metadata__")
      fail_run("a tensor cannot be named '__metadata__' in a safetensors file");
    entries.push_back(entry_of(item));
  }

  SafetensorsLayout layout;
  layout.order.resize(items.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::ranges::sort(layout.order, [&](std::size_t a, std::size_t b) {
    const int rank_a = find_safetensors_type(entries[a].file_dtype)->rank;
    const int rank_b = find_safetensors_type(entries[b].file_dtype)->rank;
    return rank_a != rank_b ? rank_a > rank_b : entries[a].name < entries[b].name;
  });

  std::vector<SafetensorsEntry> ordered;
  ordered.reserve(entries.size());
  std::int64_t position = 0;
  for (const std::size_t index : layout.order) {
    SafetensorsEntry entry = std::move(entries[index]);
    const std::int64_t bytes = entry.bytes();
    entry.begin = position;
    entry.end = position += bytes;
    ordered.push_back(std::move(entry));
  }
  std::string json = safetensors_header_text(ordered, metadata);
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > static_cast<std::size_t>(kMaxSafetensorsHeader)) {
    fail_run("a safetensors header of " + std::to_string(json.size()) +
             " bytes; at most 100000000 are allowed");
  }
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : ordered) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end())
    fail_run("two tensors are named '" + std::string(*twice) + "' in one safetensors file");

  layout.header = length_prefix(json.size()) + json;
  layout.file_bytes = static_cast<std::int64_t>(layout.header.size()) + position;
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
  std::string json(static_cast<std::size_t>(header_bytes), '\0');
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
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.bytes()));
  read(entry, 0, bytes);
  return bytes;
}

}  // namespace tenon
