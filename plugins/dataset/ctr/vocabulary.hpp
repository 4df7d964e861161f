// Numbers 32-bit values in order of first appearance, up to a limit. Open addressing, 16 to 32 bytes per
// value. Lookup is thread-safe once no more values are added.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace tenon::ctr {

class Vocabulary {
 public:
  explicit Vocabulary(std::int64_t limit) : limit_(limit), slots_(16) {}

  std::int64_t size() const { return size_; }
  /// Numbers `value` unless it already has a number or the limit is reached.
  void add(std::uint32_t value) {
    if (size_ == limit_) return;
    if (2 * size_ == static_cast<std::int64_t>(slots_.size())) grow();
    Slot& slot = slots_[place(slots_, value)];
    if (slot.number_plus_one == 0) slot = {value, static_cast<std::uint32_t>(++size_)};
  }
  /// Returns the number of a value, from 0; -1 for a value without a number.
  std::int64_t find(std::uint32_t value) const {
    return std::int64_t{slots_[place(slots_, value)].number_plus_one} - 1;
  }

 private:
  struct Slot {
    std::uint32_t value = 0, number_plus_one = 0;
  };

  /// Returns the slot of a value, or the empty slot where it belongs. The table size is a power of two, half
  /// of it empty.
  static std::size_t place(const std::vector<Slot>& slots, std::uint32_t value) {
    // Fibonacci hashing: the top bits of value times 2^64 / golden ratio.
    const std::size_t mask = slots.size() - 1;
    auto i = static_cast<std::size_t>((value + std::uint64_t{1}) * 0x9E3779B97F4A7C15u >>
                                      (64 - std::countr_zero(slots.size())));
    while (slots[i].number_plus_one != 0 && slots[i].value != value) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Slot> larger(2 * slots_.size());
    for (const Slot& slot : slots_) {
      if (slot.number_plus_one != 0) larger[place(larger, slot.value)] = slot;
    }
    slots_ = std::move(larger);
  }

  std::int64_t limit_, size_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace tenon::ctr
