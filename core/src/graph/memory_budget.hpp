// Compares the memory that a graph may take with its demand while it is built: a number that is far too large
// is refused with a message before anything is allocated. Sums are lower bounds of what is allocated at once.
// An allocation that fails all the same says for what it was.
#pragma once

#include "base/process_facts.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace tenon::graph {

/// Product that stops at the largest number.
inline std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}
inline std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

/// "12.5 GiB", "40 MiB", "more than 8589934591 GiB"
inline std::string memory_text(std::int64_t bytes) {
  if (bytes == std::numeric_limits<std::int64_t>::max()) return "more than 8589934591 GiB";
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? fmt::format("{:.4g} MiB", mebibytes)
                          : fmt::format("{:.2f} GiB", mebibytes / 1024);
}

class MemoryBudget {
 public:
  explicit MemoryBudget(const Device& device)
      : own_memory_(device.space() != MemorySpace::kHost),
        bytes_(own_memory_ ? kLargestDevice : usable_memory_bytes()) {}

  bool allows(std::int64_t bytes) const { return bytes_ <= 0 || bytes <= bytes_; }
  /// "and this process may use 23.5 GiB of this machine"
  std::string text() const {
    return own_memory_ ? std::string("and no device has as much")
                       : fmt::format("and this process may use {} of this machine", memory_text(bytes_));
  }

 private:
  /// A device with memory of its own refuses larger allocations by itself.
  static constexpr std::int64_t kLargestDevice = std::int64_t{1} << 40;

  bool own_memory_;
  std::int64_t bytes_;
};

/// As Device::allocate.
inline void* allocate_for(Device& device, std::size_t bytes, const std::string& what) {
  try {
    return device.allocate(bytes);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string(error.what()) + " (for " + what + ")");
  }
}

}  // namespace tenon::graph
