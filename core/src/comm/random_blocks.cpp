#include "comm/random_blocks.hpp"

namespace tenon::comm {

const RandomBlocks* random_blocks_portable();
#ifdef TENON_HAS_RANDOM_AVX2
const RandomBlocks* random_blocks_avx2();
#endif
#ifdef TENON_HAS_RANDOM_AVX512
const RandomBlocks* random_blocks_avx512();
#endif

namespace {

struct BlockTables {
  BlockTables() {
    add(random_blocks_portable());
#ifdef TENON_HAS_RANDOM_AVX2
    if (__builtin_cpu_supports("avx2")) add(random_blocks_avx2());
#endif
#ifdef TENON_HAS_RANDOM_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) add(random_blocks_avx512());
#endif
  }
  void add(const RandomBlocks* table) {
    all[count++] = table;
  }

  const RandomBlocks* all[4] = {};
  int count = 0;
};

const BlockTables& block_tables() {
  static const BlockTables tables;
  return tables;
}

}  // namespace

const RandomBlocks& random_blocks() {
  return *block_tables().all[block_tables().count - 1];
}

const RandomBlocks* const* all_random_blocks() {
  return static_cast<const RandomBlocks* const*>(block_tables().all);
}

}  // namespace tenon::comm
