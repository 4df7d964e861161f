// Interface `tenon.quantizer/1` of the components: one matrix rounded outside training. The device rounds;
// codes are taken apart and decoded on the host.
#pragma once

#include "recipe.hpp"

#include <tenon/sdk/quantizer.hpp>

#include <memory>
#include <span>

namespace tenon::quantized {

/// `formats`: names with static lifetime, the default first; `recipe` gives the defaults of what a request
/// leaves open (scale rule, random bits, f32 block scales).
std::unique_ptr<Quantizer> make_quantizer(std::span<const std::string_view> formats, const Recipe& recipe);

}  // namespace tenon::quantized
