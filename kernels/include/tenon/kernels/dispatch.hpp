// The kernel sets of this build and the choice among them.
// The choice follows a table from best to plainest by CPU features alone, never by timing, so that it can be
// recorded and repeated.
#pragma once

#include <string_view>
#include <tenon/kernels/cpu_features.hpp>
#include <tenon/kernels/table.hpp>
#include <vector>

namespace tenon::kernels {

const KernelTable& reference_kernels();
const DoubleTable& reference_double_kernels();

/// Names of the sets in this build that `features` can run, best first; "reference" is always last, and
/// "portable" before it in builds of all sets.
std::vector<std::string_view> kernel_names(const CpuFeatures& features);

/// The set called `name`, or the best one when `name` is "" or "auto". Null if `name` is unknown or needs
/// features that are absent: the caller words the error with kernel_names.
const KernelTable* select_kernels(std::string_view name, const CpuFeatures& features);

}  // namespace tenon::kernels
