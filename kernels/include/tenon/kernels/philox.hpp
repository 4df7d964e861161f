// Counter-based random words: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). Word i of a stream depends on (key, i) alone, so a draw does not depend on thread count, rank count
// or layout. The vector kernels (dropout.hpp) produce the same words; this scalar form, by Random123, is the
// definition.
#pragma once

#include <Random123/philox.h>

#include <cstdint>

namespace tenon::kernels {

/// Word `index` of stream `key`: element index % 4 of the block whose counter is index / 4.
inline std::uint32_t philox_word(std::uint64_t key, std::uint64_t index) {
  const std::uint64_t block = index / 4;
  const r123::Philox4x32::ctr_type counter{
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0u, 0u}};
  const r123::Philox4x32::key_type words{
      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)}};
  return r123::Philox4x32{}(counter, words)[index % 4];
}

}  // namespace tenon::kernels
