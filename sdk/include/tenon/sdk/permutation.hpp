// A permutation of [0, n) that needs no table: a Feistel network over the next even number of bits whose
// rounds draw from the counter-based generator, walked until it lands below n (Black and Rogaway, "Ciphers
// with arbitrary finite domains", CT-RSA 2002, cycle walking). Any element costs about as much as a few
// random numbers, at any epoch, in any order.
#pragma once

#include <tenon/random.hpp>

#include <bit>
#include <cstdint>

TENON_ABI_BEGIN

class Permutation {
 public:
  /// 0 < size < 2^62; every (key, epoch) selects another permutation.
  Permutation(std::uint64_t size, RandomKey key, std::uint64_t epoch)
      : size_(size),
        key_(key),
        epoch_(epoch),
        half_bits_(size <= 4 ? 1 : (std::bit_width(size - 1) + 1) / 2),
        mask_((std::uint64_t{1} << half_bits_) - 1) {}

  /// index < size.
  std::uint64_t operator()(std::uint64_t index) const noexcept {
    // The domain is at most four times the size, so this ends after four rounds on average, and always ends:
    // the walk follows a cycle that contains `index` itself.
    do {
      index = encrypt(index);
    } while (index >= size_);
    return index;
  }

 private:
  static constexpr std::uint64_t kRounds = 8;

  std::uint64_t encrypt(std::uint64_t block) const noexcept {
    std::uint64_t left = block >> half_bits_, right = block & mask_;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t drawn = random_words(key_, epoch_, round << 32 | right)[0];
      const std::uint64_t mixed = left ^ (drawn & mask_);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t size_;
  RandomKey key_;
  std::uint64_t epoch_;
  int half_bits_;
  std::uint64_t mask_;
};

TENON_ABI_END
