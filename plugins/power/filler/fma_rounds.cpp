#include "fma_rounds.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenon::filler {
namespace {

constexpr float kFactor = 0.999f, kTerm = 0.001f;

/// Groups of lanes that fit the registers of any processor, one after the other.
void plain(FmaState& state, std::int64_t rounds) {
  constexpr int kGroup = 32;
  for (int from = 0; from < FmaState::kLanes; from += kGroup) {
    float x[kGroup];
    for (int i = 0; i < kGroup; ++i) x[i] = state.lanes[from + i];
    for (std::int64_t round = 0; round < rounds; ++round)
      for (int i = 0; i < kGroup; ++i) x[i] = x[i] * kFactor + kTerm;
    for (int i = 0; i < kGroup; ++i) state.lanes[from + i] = x[i];
  }
}

#if defined(__x86_64__)

// Eight chains hide the latency of four cycles of two units.

__attribute__((target("avx2,fma"))) void avx2(FmaState& state, std::int64_t rounds) {
  const __m256 a = _mm256_set1_ps(kFactor), b = _mm256_set1_ps(kTerm);
  for (int from = 0; from < FmaState::kLanes; from += 64) {
    float* const at = state.lanes + from;
    __m256 x0 = _mm256_load_ps(at), x1 = _mm256_load_ps(at + 8), x2 = _mm256_load_ps(at + 16),
           x3 = _mm256_load_ps(at + 24), x4 = _mm256_load_ps(at + 32), x5 = _mm256_load_ps(at + 40),
           x6 = _mm256_load_ps(at + 48), x7 = _mm256_load_ps(at + 56);
    for (std::int64_t round = 0; round < rounds; ++round) {
      x0 = _mm256_fmadd_ps(x0, a, b), x1 = _mm256_fmadd_ps(x1, a, b);
      x2 = _mm256_fmadd_ps(x2, a, b), x3 = _mm256_fmadd_ps(x3, a, b);
      x4 = _mm256_fmadd_ps(x4, a, b), x5 = _mm256_fmadd_ps(x5, a, b);
      x6 = _mm256_fmadd_ps(x6, a, b), x7 = _mm256_fmadd_ps(x7, a, b);
    }
    _mm256_store_ps(at, x0), _mm256_store_ps(at + 8, x1), _mm256_store_ps(at + 16, x2);
    _mm256_store_ps(at + 24, x3), _mm256_store_ps(at + 32, x4), _mm256_store_ps(at + 40, x5);
    _mm256_store_ps(at + 48, x6), _mm256_store_ps(at + 56, x7);
  }
}

__attribute__((target("avx512f"))) void avx512(FmaState& state, std::int64_t rounds) {
  const __m512 a = _mm512_set1_ps(kFactor), b = _mm512_set1_ps(kTerm);
  float* const at = state.lanes;
  __m512 x0 = _mm512_load_ps(at), x1 = _mm512_load_ps(at + 16), x2 = _mm512_load_ps(at + 32),
         x3 = _mm512_load_ps(at + 48), x4 = _mm512_load_ps(at + 64), x5 = _mm512_load_ps(at + 80),
         x6 = _mm512_load_ps(at + 96), x7 = _mm512_load_ps(at + 112);
  for (std::int64_t round = 0; round < rounds; ++round) {
    x0 = _mm512_fmadd_ps(x0, a, b), x1 = _mm512_fmadd_ps(x1, a, b);
    x2 = _mm512_fmadd_ps(x2, a, b), x3 = _mm512_fmadd_ps(x3, a, b);
    x4 = _mm512_fmadd_ps(x4, a, b), x5 = _mm512_fmadd_ps(x5, a, b);
    x6 = _mm512_fmadd_ps(x6, a, b), x7 = _mm512_fmadd_ps(x7, a, b);
  }
  _mm512_store_ps(at, x0), _mm512_store_ps(at + 16, x1), _mm512_store_ps(at + 32, x2);
  _mm512_store_ps(at + 48, x3), _mm512_store_ps(at + 64, x4), _mm512_store_ps(at + 80, x5);
  _mm512_store_ps(at + 96, x6), _mm512_store_ps(at + 112, x7);
}

#endif

constexpr FmaRounds kForms[] = {
#if defined(__x86_64__)
    {"avx512", avx512},
    {"avx2", avx2},
#endif
    {"plain", plain},
};

}  // namespace

std::span<const FmaRounds> fma_rounds() {
  std::span<const FmaRounds> forms(kForms);
#if defined(__x86_64__)
  const bool narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!narrow) return forms.subspan(2);
  if (!__builtin_cpu_supports("avx512f")) return forms.subspan(1);
#endif
  return forms;
}

}  // namespace tenon::filler
