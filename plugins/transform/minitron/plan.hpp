// Targets of a cut against the extents that a model has: what the result will be, as extents of its layers
// and as a table [model]. It knows no weights and no importance.
#pragma once

#include "shape.hpp"

#include <tenon/config.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::minitron {

/// Extents of the result, for all layers alike; absent: as the source has them.
struct Targets {
  using Extent = std::optional<std::int64_t>;
  Extent width = {}, hidden = {}, heads = {}, kv_heads = {}, mamba_heads = {}, mamba_head_width = {};
  std::optional<std::vector<std::int64_t>> layers = {};  ///< numbers of those that stay
  Extent keep_layers = {};                               ///< how many stay; importance says which

  bool cuts_depth() const { return layers || keep_layers; }
};

struct PlannedLayer {
  LayerShape from, to;
};

struct Plan {
  std::int64_t width = 0;
  std::vector<PlannedLayer> layers;  ///< of the result's pattern, skipped ones among them
  bool renumbered = false;           ///< layers went, so that others have new numbers
};

/// Throws Error(kConfig), with a line per problem, for targets that the model cannot be cut to. `folder`: of
/// the model.
void require_possible(const Targets& targets, const DecoderShape& shape, std::string_view folder);

/// `kept`: numbers of the layers that stay, ascending; null: all of them, skipped ones too.
Plan make_plan(const DecoderShape& shape, const Targets& targets, const std::vector<std::int64_t>* kept);

/// Whether anything but whole layers is cut, so that scores of parts are needed.
bool cuts_inside(const DecoderShape& shape, const Plan& plan);

/// The description of the result.
ModelDescription planned_model(const ModelDescription& source, const DecoderShape& shape, const Plan& plan,
                               const Targets& targets);

}  // namespace tenon::minitron
