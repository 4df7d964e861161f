// The kernel set of processors with tiles (AMX): all of avx512, and attention on bfloat16 by products of
// tiles. Compiled with the flags of both, and loaded nowhere else. Tests compile it once more under another
// name, with vectors in place of tiles and loops in place of vectors (avx512_by_loops.hpp).
#include <tenon/kernels/table.hpp>

#include "isa/attention_tiles.inc.hpp"

namespace tenon::kernels {

#ifdef TENON_TILES_BY_VECTORS
#define TENON_TILES_GETTER kernels_tiles_by_loops
#else
#define TENON_TILES_GETTER kernels_amx
#define TENON_VECTOR_TABLE kernels_avx512
#endif

const KernelTable& TENON_VECTOR_TABLE();
const KernelTable& TENON_TILES_GETTER();

const KernelTable& TENON_TILES_GETTER() {
  static const KernelTable table = [] {
    KernelTable all = TENON_VECTOR_TABLE();
    all.name = "amx";
    all.bf16.attention = {.workspace = attention_tiles_workspace,
                          .forward = attention_tiles_forward,
                          .backward = attention_tiles_backward};
    return all;
  }();
  return table;
}

}  // namespace tenon::kernels
