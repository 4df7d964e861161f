// The costs of a stored model, before and after a transform: parameters and bytes of its tensors, and for a
// language model what a sequence keeps and what a token computes. By shapes: no weight is read.
#pragma once

#include <tenon/registry.hpp>
#include <tenon/stored_model.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tenon {
class JsonWriter;
}

namespace tenon::cli {

struct ModelCosts {
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t context = 0;      ///< tokens; 0: what follows is not known, and `unknown` says why
  std::int64_t cache_bytes = 0;  ///< keys and values of a sequence of `context` tokens
  std::int64_t state_bytes = 0;  ///< kept of a sequence whatever its length
  double flops = 0;              ///< forward, per token of such a sequence
  std::string activations;       ///< type of cache and products
  std::string unknown;
};

/// `context`: of the sequence; absent: the model's own.
ModelCosts costs_of(Registry& registry, const ModelDescription& model,
                    std::span<const StoredTensor> parameters, std::optional<std::int64_t> context);

/// Both side by side, with their ratio.
std::string costs_text(const ModelCosts& before, const ModelCosts& after);
/// Members of the open object.
void add_costs(JsonWriter& json, const ModelCosts& costs);

}  // namespace tenon::cli
