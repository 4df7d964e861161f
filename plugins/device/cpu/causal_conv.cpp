// Causal convolutions over time (family CausalConvs of <tenon/sdk/ops/ssd.hpp>), over whole sequences and
// for places that go on with kept columns. Work is shared by blocks of positions, and in backward and in
// steps by runs of channels; the split does not change a bit.
#include "common.hpp"
#include "device_common/ssd.hpp"
#include "joined_runs.hpp"

#include <cstring>
#include <vector>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::CausalConvArgs;

template <class S>
class CpuCausalConv final : public CausalConvKernel {
  using A = Arith<S>;

 public:
  CpuCausalConv(const kernels::CausalConvOps<S>& ops, const CausalConvSpec& spec)
      : ops_(ops),
        spec_(spec),
        runs_(joined_runs(spec.channels, kernels::kConvChannels, 0)),
        channels_(columns_of_runs(spec.channels)),
        rows_(spec.batch),
        parts_(parallel_threads()) {
    constexpr std::int64_t kItems = kCacheLine / sizeof(A);
    stride_ = (ops_.workspace(sizes()) + kItems - 1) / kItems * kItems;
    workspace_.resize(static_cast<std::size_t>(stride_ * parts_));
    if (spec.parameter == DType::kBF16) parameters_.resize(static_cast<std::size_t>(2 * parameters()));
  }

  std::size_t scratch_bytes() const override { return 0; }

  void forward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView y,
               TensorView) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      const auto tensors =
          device_ssd::conv_forward<S, P>(spec_, x, documents, weight, bias, y, device_ssd::kConv);
      CausalConvArgs<S> args = with_inputs(tensors);
      args.y = tensors.y;
      run(kernels::conv_blocks(args), [&](std::int64_t begin, std::int64_t end, A* workspace) {
        ops_.forward(args, begin, end, workspace);
      });
    });
  }

  void backward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView dy,
                TensorView dx, TensorView dweight, TensorView dbias, bool accumulate, TensorView) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      const auto tensors =
          device_ssd::conv_backward<S, P>(spec_, x, documents, weight, bias, dy, dx, dweight, dbias);
      CausalConvArgs<S> args = with_inputs(tensors);
      args.dy = tensors.dy;
      args.dx = tensors.dx;
      if constexpr (std::is_same_v<P, A>) {
        args.dweight = tensors.dweight, args.dbias = tensors.dbias, args.accumulate = accumulate;
      } else {
        args.dweight = parameters_.data() + parameters();
        args.dbias = args.dweight + channels_ * spec_.width;
      }
      run(args.run_count, [&](std::int64_t begin, std::int64_t end, A* workspace) {
        ops_.backward(args, begin, end, workspace);
      });
      if constexpr (!std::is_same_v<P, A>) {
        add_narrowed(args.dweight, tensors.dweight, channels_ * spec_.width, accumulate);
        add_narrowed(args.dbias, tensors.dbias, channels_, accumulate);
      }
    });
  }

  std::int64_t sequence_bytes() const override {
    return device_ssd::whole_sequence(numbers_at() + (spec_.width - 1) * sizeof(std::int32_t));
  }

  void step(TensorView x, TensorView documents, TensorView weight, TensorView bias, const CachedRows& rows,
            TensorView state, TensorView y) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      const auto tensors =
          device_ssd::conv_forward<S, P>(spec_, x, documents, weight, bias, y, device_ssd::kConvStep);
      std::uint8_t* const memory =
          rows_.check(rows, spec_.time, state, sequence_bytes(), device_ssd::kConvStep);
      CausalConvArgs<S> args = with_inputs(tensors);
      args.y = tensors.y;
      run(spec_.batch * args.run_count, [&](std::int64_t begin, std::int64_t end, A* workspace) {
        for (std::int64_t at = begin; at < end;) {
          const std::int64_t b = at / args.run_count, first = at % args.run_count;
          const std::int64_t last = std::min(args.run_count, first + end - at);
          ops_.step(args, places(rows, b, memory), first, last, workspace);
          at += last - first;
        }
      });
      for (std::int64_t b = 0; b < spec_.batch; ++b) {
        std::memset(args.y + (b * spec_.time + rows.count[b]) * channels_, 0,
                    (spec_.time - rows.count[b]) * channels_ * sizeof(S));
        if (rows.count[b] > 0) keep(args, rows, b, memory + rows.kept[b] * sequence_bytes());
      }
    });
  }

 private:
  std::int64_t parameters() const { return channels_ * (spec_.width + 1); }
  /// Bytes of the kept columns, rounded up to where their documents' numbers may begin.
  std::int64_t numbers_at() const {
    return ((spec_.width - 1) * channels_ * static_cast<std::int64_t>(sizeof(S)) + 3) / 4 * 4;
  }

  CausalConvArgs<S> sizes() const {
    CausalConvArgs<S> args;
    args.batch = spec_.batch, args.time = spec_.time, args.width = spec_.width;
    args.columns = spec_.columns, args.channels = channels_;
    args.runs = runs_.data(), args.run_count = static_cast<std::int64_t>(runs_.size()) - 1;
    return args;
  }

  template <class P>
  CausalConvArgs<S> with_inputs(const device_ssd::ConvTensors<S, P>& tensors) {
    CausalConvArgs<S> args = sizes();
    args.x = tensors.x;
    args.documents = tensors.documents;
    if constexpr (std::is_same_v<P, A>) {
      args.weight = tensors.weight, args.bias = tensors.bias;
    } else {
      A* const wide = parameters_.data();
      for (std::int64_t i = 0; i < channels_ * spec_.width; ++i) wide[i] = widen(tensors.weight[i]);
      for (std::int64_t i = 0; i < channels_; ++i) wide[channels_ * spec_.width + i] = widen(tensors.bias[i]);
      args.weight = wide, args.bias = wide + channels_ * spec_.width;
    }
    return args;
  }

  template <class Body>
  void run(std::int64_t items, Body body) {
    if (items == 0) return;
    const std::int64_t block = (items + parts_ - 1) / parts_;
    parallel_for(items, block, [&](std::int64_t begin, std::int64_t end) {
      body(begin, end, workspace_.data() + begin / block * stride_);
    });
  }

  kernels::ConvPlaces<S> places(const CachedRows& rows, std::int64_t b, const std::uint8_t* memory) const {
    const std::uint8_t* const kept = rows.count[b] > 0 ? memory + rows.kept[b] * sequence_bytes() : nullptr;
    return {b * spec_.time, rows.first[b], rows.count[b], reinterpret_cast<const S*>(kept),
            kept == nullptr ? nullptr : reinterpret_cast<const std::int32_t*>(kept + numbers_at())};
  }

  /// The last columns of a sequence, and their documents, for the next step.
  void keep(const CausalConvArgs<S>& args, const CachedRows& rows, std::int64_t b, std::uint8_t* kept) const {
    auto* const values = reinterpret_cast<S*>(kept);
    auto* const numbers = reinterpret_cast<std::int32_t*>(kept + numbers_at());
    const std::int64_t tail = spec_.width - 1;
    // In ascending order: a kept column is read before it is written.
    for (std::int64_t i = 0; i < tail; ++i) {
      const std::int64_t t = rows.count[b] - tail + i, row = b * spec_.time + t;
      if (rows.first[b] + t < 0) continue;
      S* const to = values + i * channels_;
      if (t < 0) {
        std::memcpy(to, values + (tail + t) * channels_, channels_ * sizeof(S));
        numbers[i] = numbers[tail + t];
        continue;
      }
      for (std::int64_t r = 0; r < args.run_count; ++r)
        std::memcpy(to + args.runs[r].to, args.x + row * spec_.columns + args.runs[r].from,
                    args.runs[r].width * sizeof(S));
      numbers[i] = args.documents == nullptr ? 0 : args.documents[row];
    }
  }

  const kernels::CausalConvOps<S>& ops_;
  CausalConvSpec spec_;
  std::vector<kernels::JoinedRun> runs_;
  std::int64_t channels_;
  device_ssd::StepRows rows_;
  std::int64_t parts_, stride_ = 0;
  /// Small, and a step has no scratch: turned weights and sums of each share of the work.
  std::vector<A> workspace_;
  std::vector<A> parameters_;  ///< of bf16 parameters: their values, then their gradients
};

class CpuCausalConvs final : public CausalConvs {
 public:
  explicit CpuCausalConvs(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<CausalConvKernel> prepare(const CausalConvSpec& spec) override {
    device_ssd::check_causal_conv(spec);
    return with_storage(spec.dtype, device_ssd::kConv, [&](auto tag) -> std::unique_ptr<CausalConvKernel> {
      using S = typename decltype(tag)::type;
      return std::make_unique<CpuCausalConv<S>>(kernels_.ops<S>().causal_conv, spec);
    });
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<CausalConvs> make_causal_convs(const Kernels& kernels) {
  return std::make_unique<CpuCausalConvs>(kernels);
}

}  // namespace tenon::cpu
