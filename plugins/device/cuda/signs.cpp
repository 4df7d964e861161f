// Signs with a scale (family SignOps). The scale is in its row before bits and losses are computed from it,
// and nothing of it is copied to the host.
#include "device_common/signs.hpp"
#include "common.hpp"

#include <tenon/kernels/cuda/signs.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaSignOps final : public SignOps {
 public:
  explicit CudaSignOps(Queue& queue) : queue_(queue) {}

  std::size_t encode_scratch(std::int64_t elements) const override {
    return device_signs::encode_scratch(elements);
  }

  void encode(TensorView x, TensorView row, SignPlace place, TensorView lost, TensorView scratch) override {
    with_arithmetic(x.dtype, device_signs::kEncode, [&](auto tag) {
      using A = typename decltype(tag)::type;
      const device_signs::Encoding<A> a(x, row, place, lost, scratch);
      if (a.n > 0) {
        const bodies::SignBlockSums<A> sums{a.x, a.n, a.sums};
        queue_.launch(device_signs::kEncode, sums.mesh(), sums);
      }
      queue_.launch(device_signs::kEncode, bodies::SignScale::mesh(),
                    bodies::SignScale{a.sums, a.n, a.scale});
      if (a.n == 0) return;
      const bodies::EncodeSigns<A> bits{a.x, a.n, a.scale, a.bits, a.lost};
      queue_.launch(device_signs::kEncode, bits.mesh(), bits);
    });
  }

  void decode(TensorView rows, SignPlace place, TensorView mean) override {
    with_arithmetic(mean.dtype, device_signs::kDecode, [&](auto tag) {
      using A = typename decltype(tag)::type;
      const device_signs::Decoding<A> a(rows, place, mean);
      if (a.n == 0) return;
      const bodies::DecodeSigns<A> body{a.rows, a.mean, a.n};
      queue_.launch(device_signs::kDecode, body.mesh(), body);
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<SignOps> make_sign_ops(Queue& queue) {
  return std::make_unique<CudaSignOps>(queue);
}

}  // namespace tenon::cuda
