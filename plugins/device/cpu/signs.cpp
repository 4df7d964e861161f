// Signs with a scale (family SignOps). Threads share blocks of whole bytes.
#include "device_common/signs.hpp"
#include "common.hpp"

namespace tenon::cpu {
namespace {

using kernels::kSignBlock;

class CpuSignOps final : public SignOps {
 public:
  std::size_t encode_scratch(std::int64_t elements) const override {
    return device_signs::encode_scratch(elements);
  }

  void encode(TensorView x, TensorView row, SignPlace place, TensorView lost, TensorView scratch) override {
    with_arithmetic(x.dtype, device_signs::kEncode, [&](auto tag) {
      using A = typename decltype(tag)::type;
      const device_signs::Encoding<A> a(x, row, place, lost, scratch);
      parallel_for(a.n, kSignBlock, [&](std::int64_t begin, std::int64_t end) {
        a.sums[begin / kSignBlock] = kernels::sign_block_sum(a.x + begin, end - begin);
      });
      const double sum =
          kernels::sign_sum(kernels::sign_blocks(a.n), [&](std::int64_t block) { return a.sums[block]; });
      const float scale = kernels::sign_scale(sum, a.n);
      kernels::put_sign_scale(scale, a.scale);
      parallel_for(a.n, kSignBlock, [&](std::int64_t begin, std::int64_t end) {
        kernels::encode_signs(a.x + begin, end - begin, scale, a.bits + begin / 8,
                              a.lost == nullptr ? nullptr : a.lost + begin);
      });
    });
  }

  void decode(TensorView rows, SignPlace place, TensorView mean) override {
    with_arithmetic(mean.dtype, device_signs::kDecode, [&](auto tag) {
      using A = typename decltype(tag)::type;
      const device_signs::Decoding<A> a(rows, place, mean);
      parallel_for(a.n, kSignBlock, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t whole = begin + (end - begin) / 8 * 8;
        for (std::int64_t i = begin; i < whole; i += 8) a.rows.mean(i / 8, a.mean + i);
        if (whole == end) return;
        A last[8];
        a.rows.mean(whole / 8, last);
        std::copy(last, last + (end - whole), a.mean + whole);
      });
    });
  }
};

}  // namespace

std::unique_ptr<SignOps> make_sign_ops() {
  return std::make_unique<CpuSignOps>();
}

}  // namespace tenon::cpu
