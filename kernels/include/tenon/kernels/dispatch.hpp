// The features of this processor, the kernel sets of this build and the choice among them.
// The choice follows a table from best to plainest by CPU features alone, never by timing, so that it can be
// recorded and repeated.
#pragma once

#include <string_view>
#include <tenon/kernels/table.hpp>
#include <vector>

namespace tenon::kernels {

// Features of this CPU and its operating system that kernels require. Read from the processor once per call;
// no state is kept. On other machines than x86-64 all is false.

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

const KernelTable& reference_kernels();
const DoubleTable& reference_double_kernels();

/// Names of the sets in this build that `features` can run, best first; "reference" is always last, and
/// "portable" before it in builds of all sets.
std::vector<std::string_view> kernel_names(const CpuFeatures& features);

/// The set called `name`, or the best one when `name` is "" or "auto". Null if `name` is unknown or needs
/// features that are absent: the caller words the error with kernel_names.
const KernelTable* select_kernels(std::string_view name, const CpuFeatures& features);

}  // namespace tenon::kernels
