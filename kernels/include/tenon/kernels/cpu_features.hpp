// Features of this CPU and its operating system that kernels require.
// Read from the processor once per call; no state is kept. On other machines than x86-64 all is false.
#pragma once

namespace tenon::kernels {

struct CpuFeatures {
  bool avx2 = false;         ///< AVX2 and FMA, with OS support for 256-bit state
  bool avx512 = false;       ///< AVX-512 F, BW, DQ, VL, and OS support for 512-bit state
  bool avx512_bf16 = false;  ///< conversions to bfloat16 and dot products of them
  bool amx_bf16 =
      false;  ///< tile products of bfloat16, processor and OS state; the process must still request it
};

/// Requests the state of tiles from the system, which a process must do before it uses them; for all its
/// threads and for good. Returns whether it was granted.
bool request_amx_tiles();

/// The features of this machine.
CpuFeatures detect_cpu_features();

}  // namespace tenon::kernels
