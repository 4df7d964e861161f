// Interface `tenon.quantizer/1` of the components: one matrix rounded outside training. The device rounds;
// the host unpacks and decodes the codes.
#pragma once

#include "recipe.hpp"

#include <tenon/sdk/quantizer.hpp>

#include <memory>
#include <span>

namespace tenon::quantized {

/// `formats`: names with static lifetime, the default first. `recipe` holds the defaults of a request (scale
/// rule, random bits, f32 block scales).
std::unique_ptr<Quantizer> make_quantizer(std::span<const std::string_view> formats, const Recipe& recipe);

}  // namespace tenon::quantized
