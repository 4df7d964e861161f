// Specs of weights and biases, and chunks.
#include "filters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::distdl {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;

}  // namespace

ParameterSpec filter_weight(const InferContext& context, const Options& options, const Shape& shape,
                            std::int64_t fan) {
  ParameterSpec weight;
  weight.name = options.has("weight") ? options.text("weight") : fmt::format("{}.weight", context.name());
  weight.dtype = context.parameters();
  weight.shape = shape;
  const bool normal = options.has("init_scale");
  weight.init = normal ? Initializer::kNormal : Initializer::kUniform;
  weight.init_scale = normal ? options.real("init_scale") : 1.0 / std::sqrt(static_cast<double>(fan));
  return weight;
}

ParameterSpec filter_bias(const InferContext& context, std::int64_t features) {
  ParameterSpec bias;
  bias.name = fmt::format("{}.bias", context.name());
  bias.dtype = context.parameters();
  bias.shape = Shape{features};
  bias.decay = false;
  bias.init = Initializer::kZero;
  return bias;
}

std::int64_t samples_at_a_time(const Options& options, std::int64_t samples, std::int64_t elements) {
  const std::int64_t wanted = options.integer("chunk");
  return std::min(samples, wanted > 0 ? wanted : std::max<std::int64_t>(1, kChunkElements / elements));
}

}  // namespace tenon::distdl
