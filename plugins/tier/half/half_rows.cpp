#include "half_rows.hpp"

#include <tenon/kernels/bf16.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace tenon::tier_half {
namespace {

constexpr std::uint32_t kSign = 0x80000000u, kInfinity = 0x7f800000u;
constexpr std::uint16_t kLargest = 0x7f7f;
/// Elements that one draw of four words serves: 16 bits each, as many as a bf16 lacks.
constexpr std::int64_t kElementsOfADraw = 8;

std::uint16_t round_element(float value, std::uint32_t draw) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) return kernels::to_bf16(value).bits;
  auto rounded = static_cast<std::uint16_t>((magnitude + (draw & 0xffffu)) >> 16);
  if (rounded > kLargest && magnitude < kInfinity) rounded = kLargest;
  return static_cast<std::uint16_t>(rounded | (bits & kSign) >> 16);
}

/// Covers all bits of a row: a change of any of them gives other draws to all of it.
std::uint64_t hash_of(const float* row, std::int64_t width) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  for (std::int64_t j = 0; j < width; ++j) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(row[j])) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

void round_row(RandomKey key, std::int64_t id, const float* row, std::int64_t width, std::uint16_t* out) {
  const std::uint64_t hash = hash_of(row, width);
  const std::int64_t draws = (width + kElementsOfADraw - 1) / kElementsOfADraw;
  for (std::int64_t block = 0; block < draws; ++block) {
    const auto words = random_words(key, hash, static_cast<std::uint64_t>(id * draws + block));
    const std::int64_t first = block * kElementsOfADraw;
    for (std::int64_t j = first; j < std::min(width, first + kElementsOfADraw); ++j)
      out[j] = round_element(row[j], words[(j - first) / 2] >> ((j - first) % 2 * 16));
  }
}

RowMemorySpec HalfRows::inner_spec(RowMemorySpec spec) {
  spec.dtype = DType::kBF16;
  return spec;
}

HalfRows::HalfRows(const RowMemorySpec& spec, std::unique_ptr<RowMemory> inner)
    : width_(spec.width), key_(random_key(spec.seed, "tier.half:" + spec.name())), inner_(std::move(inner)) {}

std::uint16_t* HalfRows::narrow(std::size_t rows) const {
  static thread_local std::vector<std::uint16_t> memory;
  const std::size_t elements = rows * static_cast<std::size_t>(width_);
  if (memory.size() < elements) memory.resize(elements);
  return memory.data();
}

void HalfRows::widen(const std::uint16_t* from, std::size_t rows, std::byte* out) const {
  const std::size_t elements = rows * static_cast<std::size_t>(width_);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = std::uint32_t{from[i]} << 16;
    std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
  }
}

void HalfRows::read(std::span<const std::int64_t> ids, std::byte* out) const {
  std::uint16_t* const rows = narrow(ids.size());
  inner_->read(ids, reinterpret_cast<std::byte*>(rows));
  widen(rows, ids.size(), out);
}

void HalfRows::scan(std::span<const std::int64_t> ids, std::byte* out) const {
  std::uint16_t* const rows = narrow(ids.size());
  inner_->scan(ids, reinterpret_cast<std::byte*>(rows));
  widen(rows, ids.size(), out);
}

std::uint16_t* HalfRows::rounded(std::span<const std::int64_t> ids, const std::byte* values) const {
  std::uint16_t* const rows = narrow(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t at = i * static_cast<std::size_t>(width_);
    round_row(key_, ids[i], reinterpret_cast<const float*>(values) + at, width_, rows + at);
  }
  return rows;
}

void HalfRows::write(std::span<const std::int64_t> ids, const std::byte* values) {
  inner_->write(ids, reinterpret_cast<const std::byte*>(rounded(ids, values)));
}

void HalfRows::fill(std::span<const std::int64_t> ids, const std::byte* values) {
  inner_->fill(ids, reinterpret_cast<const std::byte*>(rounded(ids, values)));
}

void* HalfRows::query(std::string_view interface_id) {
  // The ids are the same; rows on a device would be seen unwidened.
  if (interface_id == RowsAhead::kId || interface_id == KeptRows::kId) return inner_->query(interface_id);
  if (interface_id != TierCounts::kId || inner_->query(interface_id) == nullptr) return nullptr;
  return static_cast<TierCounts*>(this);
}

void HalfRows::counts(const std::function<void(const TierCount&)>& visit) const {
  static_cast<const TierCounts*>(inner_->query(TierCounts::kId))->counts([&](const TierCount& count) {
    TierCount named = count;
    named.tier = "half/" + count.tier;
    visit(named);
  });
}

}  // namespace tenon::tier_half
