// The extents of a stored decoder that can be cut, layer by layer. They are read from its graph, where blocks
// and defaults are resolved, so that they hold whatever tables the model was written with.
#pragma once

#include <tenon/model.hpp>
#include <tenon/stored_model.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::minitron {

enum class LayerKind : std::uint8_t { kAttention, kFfn, kMamba };

/// A layer of the pattern. Members of other kinds are 0.
struct LayerShape {
  std::int64_t number = 0;  ///< over the repeated pattern, as in names of parameters
  LayerKind kind = LayerKind::kFfn;
  bool skipped = false;  ///< [[model.block]] leaves it out: it has no nodes and no parameters
  std::int64_t heads = 0, kv_heads = 0, head_width = 0;
  std::int64_t hidden = 0;
  std::int64_t mamba_heads = 0, mamba_head_width = 0, mamba_state = 0, mamba_groups = 1;

  /// "model.layers.3."
  std::string prefix() const;
  char letter() const;
  /// Rows of a Mamba layer's in_proj of one group: z, x, B, C, dt.
  std::int64_t in_rows() const;
  /// Channels of the convolution of one group: x, B, C.
  std::int64_t conv_rows() const { return mamba_heads / mamba_groups * mamba_head_width + 2 * mamba_state; }
};

struct DecoderShape {
  std::int64_t width = 0;
  std::vector<LayerShape> layers;  ///< all of the pattern

  bool has(LayerKind kind) const;
  /// Those that are not skipped.
  std::vector<const LayerShape*> present() const;
};

/// Throws Error(kConfig) for a model that is no decoder, or that has edits of its graph.
DecoderShape read_shape(StoredModel& source);

/// An option that a blueprint wrote; `fallback` where it is absent.
std::int64_t integer_option(const NodeSpec& node, std::string_view name, std::int64_t fallback);
std::string text_option(const NodeSpec& node, std::string_view name);

/// Null where the graph has no such node.
const NodeSpec* find_node(const GraphSpec& graph, std::string_view name);

}  // namespace tenon::minitron
