// The causal convolution over time and the norm of gated values (families CausalConvs and GatedNorms) on the
// bodies of kernels/cuda/causal_conv.hpp and gated_norm.hpp.
#include "common.hpp"
#include "device_common/ssd.hpp"
#include "sums.hpp"

#include <tenon/kernels/cuda/causal_conv.hpp>
#include <tenon/kernels/cuda/gated_norm.hpp>

#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

template <class S, class P>
class CudaCausalConvKernel final : public CausalConvKernel {
  using A = Arith<S>;
  using Args = bodies::ConvArgs<S, P>;

 public:
  CudaCausalConvKernel(Queue& queue, const CausalConvSpec& spec)
      : queue_(queue),
        spec_(spec),
        channels_(columns_of_runs(spec.channels)),
        rows_(spec.batch),
        columns_(queue),
        device_rows_(queue),
        host_rows_(static_cast<std::size_t>(spec.batch)) {
    columns_.set(device_ssd::run_columns(spec.channels));
    if (!host_rows_.empty()) device_rows_.set(host_rows_);
  }

  /// Sums of parameters' gradients by tiles.
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(tiles() * channels_ * (spec_.width + 1)) * sizeof(A);
  }

  void forward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView y,
               TensorView) override {
    constexpr const char* kWhere = device_ssd::kConv;
    const auto t = device_ssd::conv_forward<S, P>(spec_, x, documents, weight, bias, y, kWhere);
    if (places() > 0) start(bodies::ConvForward<S, P>{with(t), t.y}, kWhere);
  }

  void backward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView dy,
                TensorView dx, TensorView dweight, TensorView dbias, bool accumulate,
                TensorView scratch) override {
    constexpr const char* kWhere = device_ssd::kConvBackward;
    const auto t = device_ssd::conv_backward<S, P>(spec_, x, documents, weight, bias, dy, dx, dweight, dbias);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), kWhere);
    A* const parts = scratch.as<A>();
    if (places() > 0) start(bodies::ConvBackward<S, P>{with(t), t.dy, t.dx, parts}, kWhere);
    start(
        bodies::ConvParameters<S, P>{tiles(), channels_, spec_.width, parts, t.dweight, t.dbias, accumulate},
        kWhere);
  }

  std::int64_t sequence_bytes() const override {
    return device_ssd::whole_sequence(bodies::ConvPass<S, P>::bytes(spec_.width, channels_));
  }

  void step(TensorView x, TensorView documents, TensorView weight, TensorView bias, const CachedRows& rows,
            TensorView state, TensorView y) override {
    constexpr const char* kWhere = device_ssd::kConvStep;
    const auto t = device_ssd::conv_forward<S, P>(spec_, x, documents, weight, bias, y, kWhere);
    std::uint8_t* const sequences = rows_.check(rows, spec_.time, state, sequence_bytes(), kWhere);
    if (places() == 0) return;
    for (std::size_t row = 0; row < host_rows_.size(); ++row)
      host_rows_[row] = {rows.first[row], rows.count[row], rows.kept[row]};
    device_rows_.update(host_rows_);
    const bodies::ConvPass<S, P> pass{with(t), device_rows_.template at<bodies::ConvRow>(), sequences,
                                      sequence_bytes(), t.y};
    start(bodies::ConvGoOn<S, P>{pass}, kWhere);
    if (spec_.width > 1) start(bodies::ConvKeep<S, P>{pass}, kWhere);
  }

 private:
  std::int64_t places() const { return spec_.batch * spec_.time; }
  std::int64_t tiles() const { return spec_.batch * bodies::ConvBackward<S, P>::tiles(spec_.time); }
  Args with(const device_ssd::ConvTensors<S, P>& t) const {
    Args args;
    args.batch = spec_.batch, args.time = spec_.time, args.width = spec_.width;
    args.channels = channels_, args.columns = spec_.columns;
    args.channel_columns = columns_.template at<std::int64_t>();
    args.x = t.x, args.documents = t.documents, args.weight = t.weight, args.bias = t.bias;
    return args;
  }
  template <class Body>
  void start(const Body& body, const char* where) {
    queue_.launch(where, body.mesh(), body);
  }

  Queue& queue_;
  const CausalConvSpec spec_;
  const std::int64_t channels_;
  device_ssd::StepRows rows_;
  DeviceNumbers columns_, device_rows_;
  std::vector<bodies::ConvRow> host_rows_;
};

template <class S, class P>
class CudaGatedNormKernel final : public GatedNormKernel {
  using A = Arith<S>;
  using Args = bodies::GatedArgs<S, P>;

 public:
  CudaGatedNormKernel(Queue& queue, const GatedNormSpec& spec) : queue_(queue), spec_(spec), columns_(queue) {
    columns_.set(device_ssd::run_columns(spec.gates));
  }

  /// One number per norm, and the sums of the weight's gradient.
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(spec_.rows * spec_.groups + width()) * sizeof(A);
  }

  void forward(TensorView y, TensorView projected, TensorView weight, TensorView out) override {
    constexpr const char* kWhere = device_ssd::kGatedNorm;
    const auto t = device_ssd::gated_norm_forward<S, P>(spec_, y, projected, weight, out);
    if (spec_.rows > 0) start(bodies::GatedNormForward<S, P>{with(t), t.out, nullptr}, kWhere);
  }

  void backward(TensorView y, TensorView projected, TensorView weight, TensorView dout, TensorView dy,
                TensorView dprojected, TensorView dweight, bool accumulate, TensorView scratch) override {
    constexpr const char* kWhere = device_ssd::kGatedNormBackward;
    const auto t =
        device_ssd::gated_norm_backward<S, P>(spec_, y, projected, weight, dout, dy, dprojected, dweight);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), kWhere);
    const Args args = with(t);
    A* const scales = scratch.as<A>();
    A* const sums = scales + spec_.rows * spec_.groups;
    if (spec_.rows > 0) start(bodies::GatedNormForward<S, P>{args, nullptr, scales}, kWhere);
    // The weight first: dy may be dout's own memory.
    sum_columns<A, 1>(queue_, kWhere, spec_.rows, width(),
                      bodies::GatedWeightTerms<S, P>{args, t.dout, scales}, {{sums}, false});
    start(bodies::StoreSums<A, P>{width(), sums, t.dweight, accumulate}, kWhere);
    if (spec_.rows > 0)
      start(bodies::GatedNormBackward<S, P>{args, t.dout, scales, t.dy, t.dprojected}, kWhere);
  }

 private:
  std::int64_t width() const { return spec_.groups * spec_.group_width; }
  Args with(const device_ssd::GatedNormTensors<S, P>& t) const {
    Args args;
    args.rows = spec_.rows, args.groups = spec_.groups, args.group_width = spec_.group_width;
    args.columns = spec_.columns, args.gate_columns = columns_.template at<std::int64_t>();
    args.eps = static_cast<A>(spec_.eps);
    args.y = t.y, args.projected = t.projected, args.weight = t.weight;
    return args;
  }
  template <class Body>
  void start(const Body& body, const char* where) {
    queue_.launch(where, body.mesh(), body);
  }

  Queue& queue_;
  const GatedNormSpec spec_;
  DeviceNumbers columns_;
};

class CudaCausalConvs final : public CausalConvs {
 public:
  explicit CudaCausalConvs(Queue& queue) : queue_(queue) {}

  std::unique_ptr<CausalConvKernel> prepare(const CausalConvSpec& spec) override {
    device_ssd::check_causal_conv(spec);
    return with_storage(spec.dtype, device_ssd::kConv, [&](auto tag) -> std::unique_ptr<CausalConvKernel> {
      using S = typename decltype(tag)::type;
      return device_ssd::with_parameter<S>(
          spec.parameter, [&](auto parameter) -> std::unique_ptr<CausalConvKernel> {
            return std::make_unique<CudaCausalConvKernel<S, typename decltype(parameter)::type>>(queue_,
                                                                                                 spec);
          });
    });
  }

 private:
  Queue& queue_;
};

class CudaGatedNorms final : public GatedNorms {
 public:
  explicit CudaGatedNorms(Queue& queue) : queue_(queue) {}

  std::unique_ptr<GatedNormKernel> prepare(const GatedNormSpec& spec) override {
    device_ssd::check_gated_norm(spec);
    return with_storage(
        spec.dtype, device_ssd::kGatedNorm, [&](auto tag) -> std::unique_ptr<GatedNormKernel> {
          using S = typename decltype(tag)::type;
          return device_ssd::with_parameter<S>(
              spec.parameter, [&](auto parameter) -> std::unique_ptr<GatedNormKernel> {
                return std::make_unique<CudaGatedNormKernel<S, typename decltype(parameter)::type>>(queue_,
                                                                                                    spec);
              });
        });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<CausalConvs> make_causal_convs(Queue& queue) {
  return std::make_unique<CudaCausalConvs>(queue);
}

std::unique_ptr<GatedNorms> make_gated_norms(Queue& queue) {
  return std::make_unique<CudaGatedNorms>(queue);
}

}  // namespace tenon::cuda
