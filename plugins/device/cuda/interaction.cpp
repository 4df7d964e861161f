// Interactions of vectors (family InteractionOps).
#include "common.hpp"
#include "device_common/interactions.hpp"

#include <tenon/kernels/cuda/interaction.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

using device_arguments::InteractionSizes;
using device_arguments::is_dot;

class CudaInteractionOps final : public InteractionOps {
 public:
  explicit CudaInteractionOps(Queue& queue) : queue_(queue) {}

  void interact(Interaction kind, TensorView z0, TensorView z, TensorView y) override {
    constexpr const char* kWhere = "interact";
    with_storage(z0.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const InteractionSizes sizes = device_arguments::interaction_sizes(kind, z0, z, kWhere);
      const S* first = checked<S>(z0, z0.elements(), kWhere, "z0");
      const S* rest = checked<S>(z, z.elements(), kWhere, "z");
      S* out = checked<S>(y, sizes.batch * sizes.columns(kind), kWhere, "y");
      if (y.elements() == 0) return;
      if (is_dot(kind)) {
        auto args = device_arguments::dot_args(kind, sizes, first, rest);
        args.y = out;
        const bodies::InteractionForward<S> body{args, sizes.batch};
        queue_.launch(kWhere, body.mesh(), body);
      } else if (kind == Interaction::kSum) {
        queue_.launch(kWhere, grid_for(y.elements()),
                      bodies::SumVectors<S>{first, rest, out, sizes.batch, sizes.count, sizes.width});
      } else {
        queue_.launch(kWhere, grid_for(y.elements()),
                      bodies::ConcatenateVectors<S>{first, rest, out, sizes.batch, sizes.first,
                                                    sizes.count * sizes.width});
      }
    });
  }

  void interact_backward(Interaction kind, TensorView z0, TensorView z, TensorView dy, TensorView dz0,
                         bool accumulate_z0, TensorView dz, bool accumulate_z) override {
    constexpr const char* kWhere = "interact_backward";
    with_storage(z0.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const InteractionSizes sizes = device_arguments::interaction_sizes(kind, z0, z, kWhere);
      const std::int64_t columns = sizes.columns(kind);
      const S* above = checked<S>(dy, sizes.batch * columns, kWhere, "dy");
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
        const bodies::InteractionBackward<S> body{args, sizes.batch};
        if (body.mesh().blocks > 0) queue_.launch(kWhere, body.mesh(), body);
        return;
      }
      if (first != nullptr) spread<S>({above, first, sizes.batch, columns, 0, 1, sizes.first, accumulate_z0});
      if (rest == nullptr) return;
      if (kind == Interaction::kConcatenate) {
        spread<S>(
            {above, rest, sizes.batch, columns, sizes.first, 1, sizes.count * sizes.width, accumulate_z});
      } else {
        spread<S>({above, rest, sizes.batch, columns, 0, sizes.count, sizes.width, accumulate_z});
      }
    });
  }

 private:
  template <class S>
  void spread(const bodies::SpreadRows<S>& body) {
    if (body.items() > 0) queue_.launch("interact_backward", grid_for(body.items()), body);
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<InteractionOps> make_interaction_ops(Queue& queue) {
  return std::make_unique<CudaInteractionOps>(queue);
}

}  // namespace tenon::cuda
