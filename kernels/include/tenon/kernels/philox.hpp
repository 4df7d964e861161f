// Counter-based random words: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). Word i of a stream depends on (key, i) alone, so a draw does not depend on thread count, rank count
// or layout. The vector kernels (elementwise.inc.hpp) produce the same words; this scalar form, by Random123,
// is the definition.
#pragma once

#include <Random123/philox.h>

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// The four words of stream `key` whose counter is `block`.
TENON_BOTH inline r123::Philox4x32::ctr_type philox_block(std::uint64_t key, std::uint64_t block) {
  const r123::Philox4x32::ctr_type counter{
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0u, 0u}};
  const r123::Philox4x32::key_type words{
      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)}};
  return r123::Philox4x32{}(counter, words);
}

/// Word `index` of stream `key`: element index % 4 of the block whose counter is index / 4.
TENON_BOTH inline std::uint32_t philox_word(std::uint64_t key, std::uint64_t index) {
  return philox_block(key, index / 4)[index % 4];
}

}  // namespace tenon::kernels
