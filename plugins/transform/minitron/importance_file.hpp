// Importance as a safetensors file, so that one measurement serves many cuts and other programs read it.
#pragma once

#include "importance.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::minitron {

/// Tensors in f64: "width", "layers.N.hidden", "layers.N.heads", "layers.N.kv_heads",
/// "layers.N.mamba_channels", "layers.N.mamba_heads", "layers.N.mamba_head_width", "depth.METHOD.layers",
/// ".scores" and, where it was iterative, ".removed". `facts`: its metadata.
std::string importance_bytes(const Importance& importance, const DecoderShape& shape,
                             const std::vector<std::pair<std::string, std::string>>& facts);

/// Throws Error(kConfig) that begins with `label` for bytes that are no such file.
Importance read_importance(std::string_view bytes, const std::string& label);

/// Throws Error(kConfig) that begins with `label` where scores are of a model of other extents.
void require_scores_of(const Importance& importance, const DecoderShape& shape, const std::string& label);

}  // namespace tenon::minitron
