// Translates the contract's pointwise maps to the kernels' names.
#pragma once

#include <tenon/kernels/cuda/maps.hpp>
#include <tenon/ops/dense.hpp>

namespace tenon::cuda {

static_assert(static_cast<int>(kernels::cuda::Map::kNone) == static_cast<int>(Epilogue::kNone) &&
              static_cast<int>(kernels::cuda::Map::kGeluTanh) == static_cast<int>(Epilogue::kGeluTanh) &&
              static_cast<int>(kernels::cuda::Map::kGeluExact) == static_cast<int>(Epilogue::kGeluExact) &&
              static_cast<int>(kernels::cuda::Map::kRelu) == static_cast<int>(Epilogue::kRelu) &&
              static_cast<int>(kernels::cuda::Map::kSilu) == static_cast<int>(Epilogue::kSilu) &&
              static_cast<int>(kernels::cuda::Map::kSquaredRelu) == static_cast<int>(Epilogue::kSquaredRelu));

constexpr kernels::cuda::Map map_of(Epilogue map) {
  return static_cast<kernels::cuda::Map>(map);
}

}  // namespace tenon::cuda
