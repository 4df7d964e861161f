// Stored weights as items of a safetensors file: renamed, scaled and converted on request. Serves `tenon
// export`, and is apart from it for a test that needs no run.
#pragma once

#include "run/evaluated_weights.hpp"
#include "store/safetensors.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <optional>
#include <string>
#include <vector>

namespace tenon::cli {

/// Elements of f64, f32, f16 or bf16 to f32 or bf16, each rounded once, to nearest even.
std::vector<std::byte> convert_elements(DType from, std::span<const std::byte> bytes, double factor,
                                        DType to);

struct ExportedWeights {
  std::vector<SafetensorsItem> items;  ///< views of `memory`
  std::vector<std::vector<std::byte>> memory;
  std::int64_t elements = 0;
  std::string hash;  ///< of the weights as they are stored: `weights_hash` of the run at that slot
};

/// Returns the weights of a replica. dtype: of floating-point tensors; absent = as stored. Throws
/// Error(kConfig) if the plan names a weight that does not exist.
ExportedWeights read_weights(CheckpointReader& reader, const train::StoredWeights& stored,
                             const ExportPlan& plan, std::optional<DType> dtype);

}  // namespace tenon::cli
