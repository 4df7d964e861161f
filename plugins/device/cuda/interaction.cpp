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
      const auto call = device_arguments::interaction<S>(kind, z0, z, y, kWhere);
      const InteractionSizes& sizes = call.sizes;
      const auto& args = call.args;
      if (y.elements() == 0) return;
      if (is_dot(kind)) {
        const bodies::InteractionForward<S> body{args, sizes.batch};
        queue_.launch(kWhere, body.mesh(), body);
      } else if (kind == Interaction::kSum) {
        queue_.launch(kWhere, grid_for(y.elements()),
                      bodies::SumVectors<S>{args.z0, args.z, args.y, sizes.batch, sizes.count, sizes.width});
      } else {
        queue_.launch(kWhere, grid_for(y.elements()),
                      bodies::ConcatenateVectors<S>{args.z0, args.z, args.y, sizes.batch, sizes.first,
                                                    sizes.count * sizes.width});
      }
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
        const bodies::InteractionBackward<S> body{args, sizes.batch};
        if (body.mesh().blocks > 0) queue_.launch(kWhere, body.mesh(), body);
        return;
      }
      const S* const above = args.dy;
      const std::int64_t columns = args.columns;
      S* const rest = args.dz;
      if (args.dz0 != nullptr)
        spread<S>({above, args.dz0, sizes.batch, columns, 0, 1, sizes.first, accumulate_z0});
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
