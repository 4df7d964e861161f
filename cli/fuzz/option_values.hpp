// Values of options by their specs alone: defaults, edges of ranges and what lies between; inner components
// to a given depth. Knows no component by name.
#pragma once

#include "fuzz/draws.hpp"

#include <tenon/config.hpp>
#include <tenon/registry.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace tenon::fuzz {

struct OptionRequest {
  Registry& registry;
  Draws& draws;
  double share = 0.5;       ///< of the options that are given a value; the others keep their defaults
  int depth = 2;            ///< of inner components
  std::string folder = {};  ///< an existing folder, for paths that have no default
};

/// A value of this option; nothing where the spec does not tell what is legal.
std::optional<Value> draw_value(const tenon_option_v1& spec, OptionRequest& request);

/// A table with `type` and drawn options. Options that `kept` has already are left as they are.
Value draw_component(std::string_view kind, std::string_view type, OptionRequest& request,
                     Value kept = Value());

}  // namespace tenon::fuzz
