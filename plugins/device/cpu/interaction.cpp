// Interactions of vectors (family InteractionOps). Samples are shared among threads; one thread computes each
// sample, so the split does not change a bit.
#include "common.hpp"
#include "device_common/interactions.hpp"

#include <cstring>

namespace tenon::cpu {
namespace {

using kernels::Arith;

using device_arguments::InteractionSizes;
using device_arguments::is_dot;

/// Samples per block of a loop that needs `each` steps for one.
std::int64_t sample_block(std::int64_t each) {
  return std::max<std::int64_t>(1, kFlatBlock / std::max<std::int64_t>(1, each));
}
std::int64_t dot_block(const InteractionSizes& sizes) {
  return sample_block((sizes.count + 1) * (sizes.count + 1) * sizes.width / 8);
}
std::int64_t copy_block(const InteractionSizes& sizes) {
  return sample_block(sizes.first + sizes.count * sizes.width);
}

class CpuInteractionOps final : public InteractionOps {
 public:
  explicit CpuInteractionOps(const Kernels& kernels) : kernels_(kernels) {}

  void interact(Interaction kind, TensorView z0, TensorView z, TensorView y) override {
    constexpr const char* kWhere = "interact";
    with_storage(z0.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto call = device_arguments::interaction<S>(kind, z0, z, y, kWhere);
      const InteractionSizes& sizes = call.sizes;
      const auto& args = call.args;
      if (is_dot(kind)) {
        parallel_for(sizes.batch, dot_block(sizes), [&](std::int64_t begin, std::int64_t end) {
          kernels_.ops<S>().interaction.forward(args, begin, end);
        });
        return;
      }
      parallel_for(sizes.batch, copy_block(sizes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const S* vectors = args.z + i * sizes.count * sizes.width;
          S* row = args.y + i * args.columns;
          if (kind == Interaction::kSum) {
            add_vectors(sizes, args.z0 + i * sizes.first, vectors, row);
          } else {
            put(args.z0 + i * sizes.first, row, sizes.first, false);
            put(vectors, row + sizes.first, sizes.count * sizes.width, false);
          }
        }
      });
    });
  }

  void interact_backward(Interaction kind, TensorView z0, TensorView z, TensorView dy, TensorView dz0,
                         bool accumulate_z0, TensorView dz, bool accumulate_z) override {
    constexpr const char* kWhere = "interact_backward";
    with_storage(z0.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto call = device_arguments::interaction_backward<S>(
          kind, {z0, z, dy, dz0, accumulate_z0, dz, accumulate_z}, kWhere);
      const InteractionSizes& sizes = call.sizes;
      const auto& args = call.args;
      if (is_dot(kind)) {
        parallel_for(sizes.batch, dot_block(sizes), [&](std::int64_t begin, std::int64_t end) {
          kernels_.ops<S>().interaction.backward(args, begin, end);
        });
        return;
      }
      parallel_for(sizes.batch, copy_block(sizes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const S* row = args.dy + i * args.columns;
          if (args.dz0 != nullptr) put(row, args.dz0 + i * sizes.first, sizes.first, accumulate_z0);
          if (args.dz == nullptr) continue;
          S* vectors = args.dz + i * sizes.count * sizes.width;
          if (kind == Interaction::kConcatenate) {
            put(row + sizes.first, vectors, sizes.count * sizes.width, accumulate_z);
          } else {
            for (std::int64_t t = 0; t < sizes.count; ++t)
              put(row, vectors + t * sizes.width, sizes.width, accumulate_z);
          }
        }
      });
    });
  }

 private:
  /// to (+)= from
  template <class S>
  void put(const S* from, S* to, std::int64_t n, bool accumulate) const {
    if (accumulate)
      kernels_.ops<S>().elementwise.add(to, from, to, n);
    else
      std::memcpy(to, from, n * sizeof(S));
  }

  /// y = z0 + sum of the vectors, in the arithmetic type, rounded once.
  template <class S>
  void add_vectors(const InteractionSizes& sizes, const S* z0, const S* vectors, S* y) const {
    const auto& ops = kernels_.ops<S>();
    if (sizes.width > kStackElements) {
      device_arguments::refuse("interact", "sums take vectors of at most " + std::to_string(kStackElements) +
                                               " elements, found " + std::to_string(sizes.width));
    }
    Arith<S> sums[kStackElements];
    ops.reduce.column_sums(vectors, sums, sizes.count, sizes.width, 0, sizes.width, false);
    ops.elementwise.add_bias(z0, sums, y, 1, sizes.width);
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<InteractionOps> make_interaction_ops(const Kernels& kernels) {
  return std::make_unique<CpuInteractionOps>(kernels);
}

}  // namespace tenon::cpu
