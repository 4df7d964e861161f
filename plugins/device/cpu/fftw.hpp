// One interface to FFTW's two precisions, and a plan that frees itself. Plans are estimated, never measured:
// a measured plan may differ in the next process, with other bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

enum class PlanKind : std::uint8_t { kRealToComplex, kComplexToReal, kForward, kBackward };

/// One transform of `length` points between two buffers of a caller, packed and aligned as `from` and `to`
/// are. Complex numbers are pairs of T (float, double). Complex to real overwrites its input.
template <class T>
class FftwPlan {
 public:
  FftwPlan(PlanKind kind, int length, T* from, T* to);
  ~FftwPlan();
  FftwPlan(const FftwPlan&) = delete;
  FftwPlan& operator=(const FftwPlan&) = delete;

  /// Thread-safe; allocates nothing.
  void run(T* from, T* to) const;

 private:
  PlanKind kind_;
  void* plan_;
};

/// Alignment in bytes of every buffer, on which FFTW may rely.
inline constexpr std::size_t kFftAlignment = 64;

}  // namespace tenon::cpu
