// Lines of `inner` elements are weighted as a whole.
#include "resample.hpp"

#include <tenon/parallel.hpp>

#include <algorithm>

namespace tenon::distdl {
namespace {

constexpr std::int64_t kBlockElements = std::int64_t{1} << 14;

/// Lines per block of a parallel loop whose items have so many elements each.
std::int64_t items_per_block(std::int64_t elements) {
  return std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, elements));
}

template <class T>
void resample_lines(const Taps& taps, const T* x, T* y, std::int64_t outer, std::int64_t inner) {
  const std::int64_t outputs = taps.outputs();
  parallel_for(outer * outputs, items_per_block(inner), [&](std::int64_t begin, std::int64_t end) {
    std::int64_t j = begin % outputs;
    const T* plane = x + begin / outputs * taps.inputs * inner;
    for (T* line = y + begin * inner; line != y + end * inner; line += inner) {
      const auto at = static_cast<std::size_t>(j);
      const T* low = plane + taps.low[at] * inner;
      if (taps.share[at] == 0) {
        std::copy_n(low, inner, line);
      } else {
        const T share = static_cast<T>(taps.share[at]), rest = 1 - share;
        for (std::int64_t i = 0; i < inner; ++i) line[i] = rest * low[i] + share * low[inner + i];
      }
      if (++j == outputs) j = 0, plane += taps.inputs * inner;
    }
  });
}

template <class T>
void resample_lines_adjoint(const Taps& taps, const T* y, T* x, std::int64_t outer, std::int64_t inner) {
  const std::int64_t outputs = taps.outputs(), inputs = taps.inputs;
  parallel_for(outer, items_per_block(outputs * inner), [&](std::int64_t begin, std::int64_t end) {
    std::fill(x + begin * inputs * inner, x + end * inputs * inner, T{0});
    for (std::int64_t o = begin; o < end; ++o)
      for (std::int64_t j = 0; j < outputs; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const T share = static_cast<T>(taps.share[at]), rest = 1 - share;
        const T* line = y + (o * outputs + j) * inner;
        T* low = x + (o * inputs + taps.low[at]) * inner;
        for (std::int64_t i = 0; i < inner; ++i) low[i] += rest * line[i];
        if (share == 0) continue;
        for (std::int64_t i = 0; i < inner; ++i) low[inner + i] += share * line[i];
      }
  });
}

}  // namespace

Taps taps_of(Interpolation kind, std::int64_t all_inputs, std::int64_t all_outputs, ElementRange made,
             ElementRange read) {
  Taps taps;
  taps.inputs = read.size();
  const auto map = interpolation_map(kind, all_inputs, all_outputs);
  for (std::int64_t j = made.begin; j < made.end; ++j) {
    const ElementRange reads = map->inputs({j, j + 1});
    // The place among the inputs is part / whole, exact in integers; before the first input it is negative.
    const bool aligned = kind == Interpolation::kLinearAligned;
    const std::int64_t whole = aligned ? all_outputs - 1 : 2 * all_outputs;
    const std::int64_t part = aligned ? j * (all_inputs - 1) : (2 * j + 1) * all_inputs - all_outputs;
    const std::int64_t beyond = part - reads.begin * whole;
    taps.low.push_back(reads.begin - read.begin);
    taps.share.push_back(
        reads.size() == 1 || beyond <= 0 ? 0 : static_cast<double>(beyond) / static_cast<double>(whole));
  }
  return taps;
}

void resample(const Taps& taps, TensorView x, TensorView y, std::int64_t inner) {
  if (y.empty()) return;
  const std::int64_t outer = y.elements() / (taps.outputs() * inner);
  if (y.dtype == DType::kF64) {
    resample_lines(taps, x.as<const double>(), y.as<double>(), outer, inner);
  } else {
    resample_lines(taps, x.as<const float>(), y.as<float>(), outer, inner);
  }
}

void resample_adjoint(const Taps& taps, TensorView y, TensorView x, std::int64_t inner) {
  if (x.empty()) return;
  const std::int64_t outer = x.elements() / (taps.inputs * inner);
  if (y.dtype == DType::kF64) {
    resample_lines_adjoint(taps, y.as<const double>(), x.as<double>(), outer, inner);
  } else {
    resample_lines_adjoint(taps, y.as<const float>(), x.as<float>(), outer, inner);
  }
}

}  // namespace tenon::distdl
