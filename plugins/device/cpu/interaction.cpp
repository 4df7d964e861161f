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
      const InteractionSizes sizes = device_arguments::interaction_sizes(kind, z0, z, kWhere);
      const S* first = checked<S>(z0, z0.elements(), kWhere, "z0");
      const S* rest = checked<S>(z, z.elements(), kWhere, "z");
      S* out = checked<S>(y, sizes.batch * sizes.columns(kind), kWhere, "y");
      if (is_dot(kind)) {
        auto args = device_arguments::dot_args(kind, sizes, first, rest);
        args.y = out;
        parallel_for(sizes.batch, dot_block(sizes), [&](std::int64_t begin, std::int64_t end) {
          kernels_.ops<S>().interaction.forward(args, begin, end);
        });
        return;
      }
      parallel_for(sizes.batch, copy_block(sizes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const S* vectors = rest + i * sizes.count * sizes.width;
          S* row = out + i * sizes.columns(kind);
          if (kind == Interaction::kSum) {
            add_vectors(sizes, first + i * sizes.first, vectors, row);
          } else {
            put(first + i * sizes.first, row, sizes.first, false);
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
      const InteractionSizes sizes = device_arguments::interaction_sizes(kind, z0, z, kWhere);
      const S* above = checked<S>(dy, sizes.batch * sizes.columns(kind), kWhere, "dy");
      S* first = checked_or_null<S>(dz0, z0.elements(), kWhere, "dz0");
      S* rest = checked_or_null<S>(dz, z.elements(), kWhere, "dz");
      if (is_dot(kind)) {
        auto args = device_arguments::dot_args(kind, sizes, checked<S>(z0, z0.elements(), kWhere, "z0"),
                                               checked<S>(z, z.elements(), kWhere, "z"));
        args.dy = above;
        args.dz0 = first;
        args.dz = rest;
        args.accumulate_z0 = accumulate_z0;
        args.accumulate_z = accumulate_z;
        parallel_for(sizes.batch, dot_block(sizes), [&](std::int64_t begin, std::int64_t end) {
          kernels_.ops<S>().interaction.backward(args, begin, end);
        });
        return;
      }
      parallel_for(sizes.batch, copy_block(sizes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const S* row = above + i * sizes.columns(kind);
          if (first != nullptr) put(row, first + i * sizes.first, sizes.first, accumulate_z0);
          if (rest == nullptr) continue;
          S* vectors = rest + i * sizes.count * sizes.width;
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
