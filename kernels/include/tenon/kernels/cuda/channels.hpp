// Maps over channels, as sets of part_norm.hpp: biases of convolutions, and the maps after them.
#pragma once

#include <tenon/kernels/cuda/maps.hpp>
#include <tenon/kernels/cuda/part_norm.hpp>

namespace tenon::kernels::cuda {

/// The value of the channel.
template <class A>
struct ChannelValues {
  const A* values;
  TENON_BOTH A of(std::int64_t channel) const { return values[channel]; }
  TENON_BOTH A operator()(A value, std::int64_t, std::int64_t) const { return value; }
};

/// map(x + bias of the channel); a null bias is none.
template <class A>
struct BiasAndMap {
  const A *x, *bias;
  Map map;
  TENON_BOTH A of(std::int64_t channel) const { return bias == nullptr ? A{0} : bias[channel]; }
  TENON_BOTH A operator()(A value, std::int64_t i, std::int64_t) const {
    return mapped(map, bias == nullptr ? x[i] : x[i] + value);
  }
};

}  // namespace tenon::kernels::cuda
