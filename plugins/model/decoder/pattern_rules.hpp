// The rules that `rules = "nemotron_h"` asks a decoder to obey: the order of its layers (Nemotron-H, arXiv
// 2504.03624) and the options that such models have in common.
#pragma once

#include "pattern_layer.hpp"

#include <tenon/options.hpp>

#include <span>

namespace tenon::decoder {

/// Throws one Error(kConfig) with every rule that is broken, each with layer and number. Skipped layers do
/// not count.
void require_nemotron_h(const Options& model, std::span<const PatternLayer> layers);

}  // namespace tenon::decoder
