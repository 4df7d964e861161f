// Totals of a model by its shapes alone: parameters, bytes of the key-value cache, operations per token. By
// part: nodes whose names agree where both have numbers. Written as a table and as JSON; knows no layer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::report {

struct ModelShapes {
  struct Part {
    std::string name;                      ///< "model.layers.*.self_attn", "lm_head"
    std::int64_t layers = 0;               ///< numbered ones that have it; 1 for a part without a number
    std::int64_t parameters = 0;           ///< tied ones once, in the part that comes first
    std::int64_t cache_bytes = 0;          ///< of keys and values, per token
    std::int64_t context_cache_bytes = 0;  ///< of a whole context, of which a window keeps its own length
    double flops = 0;                      ///< forward, per token of a whole context
    std::int64_t state_bytes = 0;          ///< of a sequence, whatever its length
  };

  std::string model;         ///< type of [model]
  std::int64_t context = 0;  ///< tokens
  std::string activations;   ///< dtype, "bf16"
  std::vector<Part> parts;   ///< in the order of the graph
  std::int64_t trained = 0;  ///< parameters that are trained, tied ones once

  /// The sum over the parts; its name is "total" and its layers are 0.
  Part total() const;
};

/// Forward, and both backward products of each: nothing is computed twice.
inline constexpr double kTrainingOverForward = 3;

/// "model.layers.*.self_attn" of "model.layers.3.self_attn.q_proj"; a name without a number is its own part.
std::string part_of_node(std::string_view node);
/// "model.layers.3" of it: which layer of the part it is; "" without a number.
std::string layer_of_node(std::string_view node);

/// Mean over the positions of a context of the keys that each sees; window 0: all earlier ones and itself.
double mean_keys(std::int64_t context, std::int64_t window);

std::string shapes_text(const ModelShapes& shapes);
std::string shapes_json(const ModelShapes& shapes);

}  // namespace tenon::report
