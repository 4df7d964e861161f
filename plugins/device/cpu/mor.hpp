// Mixture of representations on this device (contract: MorKernel of <tenon/ops/quant.hpp>). Results equal
// kernels/reference/mor.hpp bit for bit, whatever the number of threads.
#pragma once

#include "common.hpp"

#include <tenon/ops/quant.hpp>

#include <memory>

namespace tenon::cpu {

/// Throws Error(kConfig) with the reason for a combination that is not defined.
std::unique_ptr<MorKernel> make_mor(const Kernels& kernels, const MorSpec& spec);

}  // namespace tenon::cpu
