// Random numbers of one composition of `tenon fuzz`: a sequence that depends on the seed, a purpose and the
// number of the composition alone, so a composition is the same whatever was drawn or run before it.
#pragma once

#include <tenon/random.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::fuzz {

class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view purpose, std::uint64_t index)
      : key_(random_key(seed, purpose)), index_(index) {}

  /// Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) { return random_below(key_, index_, count_++, bound); }
  /// Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }
  double uniform() { return random_uniform(key_, index_, count_++); }
  bool chance(double probability) { return uniform() < probability; }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  /// The numbers 0 ... count - 1 in a random order.
  std::vector<std::size_t> order(std::size_t count) {
    std::vector<std::size_t> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = i;
    for (std::size_t i = count; i > 1; --i) std::swap(all[i - 1], all[below(i)]);
    return all;
  }

 private:
  RandomKey key_;
  std::uint64_t index_ = 0, count_ = 0;
};

}  // namespace tenon::fuzz
