// Shared by the tests of this folder: the kernel sets of this machine, reproducible inputs, storage
// conversion, and the comparison of a result with an exact value under a bound per element.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tenon/kernels/dispatch.hpp>
#include <tenon/kernels/reference/scalar.hpp>
#include <vector>

namespace tenon::kernels {
const KernelTable& kernels_avx512_by_loops();
const KernelTable& kernels_tiles_by_loops();
}  // namespace tenon::kernels

namespace tenon::kernels::testing {

inline constexpr double kFloatRoundoff = 0x1p-24;
inline constexpr double kBf16Roundoff = 0x1p-8;

template <class S>
constexpr double roundoff() {
  return sizeof(S) == sizeof(Bf16) ? kBf16Roundoff : kFloatRoundoff;
}

/// The sets that this processor runs, and avx512 by loops where it is not among them.
inline std::vector<const KernelTable*> all_sets() {
  std::vector<const KernelTable*> sets;
  const CpuFeatures features = detect_cpu_features();
#ifdef TENON_HAS_AVX512_BY_LOOPS
  if (features.avx2 && !features.avx512) sets.push_back(&kernels_avx512_by_loops());
#endif
  for (const std::string_view name : kernel_names(features)) sets.push_back(select_kernels(name, features));
  return sets;
}

/// Sets that must agree bit for bit wherever they use fused multiply-adds.
inline bool fuses(const KernelTable& set) {
  return set.name[0] == 'a';
}

template <class S>
const Ops<S>& ops(const KernelTable& set) {
  if constexpr (std::is_same_v<S, float>)
    return set.f32;
  else
    return set.bf16;
}

template <class S>
std::vector<S> random_values(std::size_t n, unsigned seed, double low = -1.0, double high = 1.0) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<S> values(n);
  for (S& value : values) value = reference::put<S>(static_cast<Arith<S>>(draw(generator)));
  return values;
}

template <class S>
std::vector<double> to_double(const std::vector<S>& values) {
  std::vector<double> wide;
  for (const S value : values) wide.push_back(static_cast<double>(reference::get(value)));
  return wide;
}

/// Same length and the same bytes: NaN payloads and signs of zero count.
template <class S>
::testing::AssertionResult same_bits(const std::vector<S>& a, const std::vector<S>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " against " << b.size() << " elements";
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(S)) != 0)
      return ::testing::AssertionFailure()
             << "element " << i << ": " << std::hexfloat << static_cast<double>(reference::get(a[i]))
             << " against " << static_cast<double>(reference::get(b[i]));
  return ::testing::AssertionSuccess();
}

/// |value - exact| <= bound(i) for each element; NaN fails.
template <class S, class Bound>
::testing::AssertionResult within(const std::vector<S>& values, const std::vector<double>& exact,
                                  Bound bound) {
  if (values.size() != exact.size()) return ::testing::AssertionFailure() << "lengths differ";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(reference::get(values[i]));
    if (!(std::abs(value - exact[i]) <= bound(i)))
      return ::testing::AssertionFailure()
             << "element " << i << ": " << value << ", exact " << exact[i] << ", off by "
             << std::abs(value - exact[i]) << ", bound " << bound(i);
  }
  return ::testing::AssertionSuccess();
}

/// Checks that every fusing set has the bits of the first one that was shown.
template <class S>
class SameAcrossFusingSets {
 public:
  void see(const KernelTable& set, const std::vector<S>& values) {
    if (!fuses(set)) return;
    if (first_.empty()) first_ = values;
    EXPECT_TRUE(same_bits(values, first_)) << set.name;
  }

 private:
  std::vector<S> first_;
};

using Storages = ::testing::Types<float, Bf16>;

}  // namespace tenon::kernels::testing
