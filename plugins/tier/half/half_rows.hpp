// Rows stored as bf16 in the memory of another tier.
#pragma once

#include <tenon/random.hpp>
#include <tenon/tier.hpp>

#include <cstdint>
#include <memory>

namespace tenon::tier_half {

/// What a row of `width` floats becomes: each element one of the two bf16 beside it, with probabilities that
/// keep its mean. Draws depend on the key, the row's id and its new values. An element that is a bf16 stays
/// itself; finite ones stay finite; a NaN stays one.
void round_row(RandomKey key, std::int64_t id, const float* row, std::int64_t width, std::uint16_t* out);

class HalfRows final : public RowMemory, private TierCounts {
 public:
  /// `inner` holds the rows of inner_spec(spec).
  HalfRows(const RowMemorySpec& spec, std::unique_ptr<RowMemory> inner);
  static RowMemorySpec inner_spec(RowMemorySpec spec);

  void read(std::span<const std::int64_t> ids, std::byte* out) const override;
  void write(std::span<const std::int64_t> ids, const std::byte* values) override;
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override;
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override;
  void* query(std::string_view interface_id) override;

 private:
  void counts(const std::function<void(const TierCount&)>& visit) const override;
  /// Memory of this thread for that many rows.
  std::uint16_t* narrow(std::size_t rows) const;
  void widen(const std::uint16_t* from, std::size_t rows, std::byte* out) const;
  std::uint16_t* rounded(std::span<const std::int64_t> ids, const std::byte* values) const;

  std::int64_t width_;
  RandomKey key_;
  std::unique_ptr<RowMemory> inner_;
};

}  // namespace tenon::tier_half
