// Reference interaction: the sums of interaction.hpp as one loop over pairs and one over elements.
#pragma once

#include <tenon/kernels/interaction.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

/// Vector i of a sample.
template <class S>
const S* interacting(const InteractionArgs<S>& args, std::int64_t sample, std::int64_t i) {
  return i == 0 ? args.z0 + sample * args.width : args.z + (sample * (args.vectors - 1) + i - 1) * args.width;
}

/// Column of t_i . t_j, j <= i.
template <class S>
std::int64_t pair_column(const InteractionArgs<S>& args, std::int64_t i, std::int64_t j) {
  return args.width + (args.itself ? i * (i + 1) : i * (i - 1)) / 2 + j;
}

template <class S>
void interaction_forward(const InteractionArgs<S>& args, std::int64_t sample_begin, std::int64_t sample_end) {
  for (std::int64_t s = sample_begin; s < sample_end; ++s) {
    S* y = args.y + s * args.columns;
    for (std::int64_t k = 0; k < args.width; ++k) y[k] = interacting(args, s, 0)[k];
    for (std::int64_t i = 0; i < args.vectors; ++i)
      for (std::int64_t j = 0; j < i + (args.itself ? 1 : 0); ++j) {
        Arith<S> sum = 0;
        for (std::int64_t k = 0; k < args.width; ++k)
          sum += get(interacting(args, s, i)[k]) * get(interacting(args, s, j)[k]);
        y[pair_column(args, i, j)] = put<S>(sum);
      }
  }
}

template <class S>
void interaction_backward(const InteractionArgs<S>& args, std::int64_t sample_begin,
                          std::int64_t sample_end) {
  for (std::int64_t s = sample_begin; s < sample_end; ++s) {
    const S* dy = args.dy + s * args.columns;
    const auto gradient = [&](std::int64_t i, std::int64_t j) -> Arith<S> {
      if (i == j) return args.itself ? 2 * get(dy[pair_column(args, i, i)]) : Arith<S>{0};
      return get(dy[i > j ? pair_column(args, i, j) : pair_column(args, j, i)]);
    };
    for (std::int64_t i = 0; i < args.vectors; ++i) {
      S* out = i == 0 ? args.dz0 : args.dz;
      if (out == nullptr) continue;
      out += (i == 0 ? s : s * (args.vectors - 1) + i - 1) * args.width;
      const bool accumulate = i == 0 ? args.accumulate_z0 : args.accumulate_z;
      for (std::int64_t k = 0; k < args.width; ++k) {
        Arith<S> sum = i == 0 ? get(dy[k]) : Arith<S>{0};
        for (std::int64_t j = 0; j < args.vectors; ++j)
          sum += gradient(i, j) * get(interacting(args, s, j)[k]);
        out[k] = put<S>(accumulate ? get(out[k]) + sum : sum);
      }
    }
  }
}

}  // namespace tenon::kernels::reference
