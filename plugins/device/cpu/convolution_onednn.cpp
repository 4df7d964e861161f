// Convolutions from images by oneDNN, in f32: where its loops beat windows and products. Images are stored
// channel by channel; oneDNN's fast loops need 16 channels side by side, or all of them. So each of the three
// passes reorders its operands into the library's order, in the caller's scratch, and reorders the result
// back. All primitives are made with the plan.
#include "common.hpp"
#include "convolution.hpp"
#include "device_common/convolutions.hpp"
#include "onednn_handles.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tenon::cpu {
namespace {

using device_arguments::ConvolutionShape;

constexpr std::int64_t kBlockedChannels = 16;

/// A reorder and the scratch that it needs.
struct Reordering {
  Primitive primitive;
  Memory pad;
  std::size_t pad_bytes = 0;

  void prepare(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to, bool add, dnnl_engine_t engine) {
    Attributes attributes;
    scratch_of_caller(attributes);
    PostOps sum;
    TENON_ONEDNN(dnnl_post_ops_create(sum.out()));
    if (add) TENON_ONEDNN(dnnl_post_ops_append_sum(sum.get(), 1.0f));
    TENON_ONEDNN(dnnl_primitive_attr_set_post_ops(attributes.get(), sum.get()));
    PrimitiveDesc desc;
    TENON_ONEDNN(
        dnnl_reorder_primitive_desc_create(desc.out(), &from, engine, &to, engine, attributes.get()));
    make(primitive, desc);
    pad_bytes = aligned(dnnl_memory_desc_get_size(&scratch_of(desc)));
    make(pad, scratch_of(desc), engine);
  }

  void run(const Memory& from, const Memory& to, std::byte* room, dnnl_stream_t stream) const {
    dnnl_exec_arg_t arguments[3] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}};
    if (pad_bytes > 0) {
      point(pad, room);
      arguments[2] = {DNNL_ARG_SCRATCHPAD, pad.get()};
    }
    TENON_ONEDNN(dnnl_primitive_execute(primitive.get(), stream, pad_bytes > 0 ? 3 : 2, arguments));
  }
};

/// A tensor in the caller's order and in a pass's order.
struct PassOperand {
  int argument = 0;
  Memory plain, ordered;
  std::size_t bytes = 0;  ///< of `ordered`
  bool same = false;      ///< both orders are one
  Reordering move, add;   ///< before the pass; after it, set and add

  void prepare(int name, const dnnl_memory_desc_t& caller, const dnnl_memory_desc_t& taken, bool result,
               dnnl_engine_t engine) {
    argument = name;
    same = dnnl_memory_desc_equal(&caller, &taken) != 0;
    bytes = same && !result ? 0 : aligned(dnnl_memory_desc_get_size(&taken));
    make(plain, caller, engine);
    make(ordered, taken, engine);
    if (!same) move.prepare(result ? taken : caller, result ? caller : taken, false, engine);
    if (result) add.prepare(taken, caller, true, engine);
  }
  std::size_t pad_bytes() const { return std::max(move.pad_bytes, add.pad_bytes); }
};

/// One of the three primitives with its operands, the last of which is the result.
class Pass {
 public:
  using Descs = std::array<const dnnl_memory_desc_t*, 3>;

  void prepare(const PrimitiveDesc& desc, const std::array<int, 3>& names, const Descs& plain,
               const Descs& taken, dnnl_engine_t engine) {
    std::size_t moves = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      operands_[i].prepare(names[i], *plain[i], *taken[i], i + 1 == operands_.size(), engine);
      bytes_ += operands_[i].bytes;
      moves = std::max(moves, operands_[i].pad_bytes());
    }
    make(primitive_, desc);
    TENON_ONEDNN(dnnl_stream_create(stream_.out(), engine, dnnl_stream_default_flags));
    pad_bytes_ = aligned(dnnl_memory_desc_get_size(&scratch_of(desc)));
    make(pad_, scratch_of(desc), engine);
    bytes_ += std::max(pad_bytes_, moves);
  }

  std::size_t bytes() const { return bytes_; }

  /// `bias` is null unless the primitive adds one.
  void run(const std::array<void*, 3>& data, const Memory* bias, bool accumulate, std::byte* room) const {
    std::byte* next = room;
    std::array<std::byte*, 3> places{};
    for (std::size_t i = 0; i < operands_.size(); ++i)
      places[i] = std::exchange(next, next + operands_[i].bytes);
    dnnl_exec_arg_t arguments[5];
    int count = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const PassOperand& operand = operands_[i];
      const bool result = i + 1 == operands_.size(), direct = operand.same && !(result && accumulate);
      point(operand.plain, data[i]);
      if (!direct) point(operand.ordered, places[i]);
      if (!direct && !result) operand.move.run(operand.plain, operand.ordered, next, stream_.get());
      arguments[count++] = {operand.argument, (direct ? operand.plain : operand.ordered).get()};
    }
    if (bias != nullptr) arguments[count++] = {DNNL_ARG_BIAS, bias->get()};
    if (pad_bytes_ > 0) {
      point(pad_, next);
      arguments[count++] = {DNNL_ARG_SCRATCHPAD, pad_.get()};
    }
    TENON_ONEDNN(dnnl_primitive_execute(primitive_.get(), stream_.get(), count, arguments));
    const PassOperand& result = operands_.back();
    if (accumulate) {
      result.add.run(result.ordered, result.plain, next, stream_.get());
    } else if (!result.same) {
      result.move.run(result.ordered, result.plain, next, stream_.get());
    }
    TENON_ONEDNN(dnnl_stream_wait(stream_.get()));
  }

 private:
  std::array<PassOperand, 3> operands_;
  Primitive primitive_;
  Stream stream_;
  Memory pad_;
  std::size_t pad_bytes_ = 0, bytes_ = 0;
};

/// Extents as the library counts them, and the window in the library's terms.
struct Geometry {
  int rank = 0;
  dnnl_dims_t x{}, w{}, y{}, stride{}, dilation{}, low{}, high{};

  explicit Geometry(const ConvolutionSpec& spec) : rank(spec.window.spatial + 2) {
    const WindowSpec& window = spec.window;
    x[0] = y[0] = spec.batch;
    x[1] = w[1] = spec.channels;
    y[1] = w[0] = spec.features;
    for (int d = 0; d < window.spatial; ++d) {
      x[d + 2] = window.extent[d], w[d + 2] = window.kernel[d], y[d + 2] = window.places(d);
      stride[d] = window.stride[d], dilation[d] = window.dilation[d] - 1;
      low[d] = window.pad_low[d], high[d] = window.pad_high[d];
    }
  }

  /// Kinds of order, for a rank of 3 to 5: as the caller has it, channels last, the library's own choice.
  enum Order { kPlain, kLast, kAny };
  dnnl_memory_desc_t tensor(const dnnl_dims_t& dims, Order order) const {
    constexpr dnnl_format_tag_t kPlainTags[] = {dnnl_abc, dnnl_abcd, dnnl_abcde};
    constexpr dnnl_format_tag_t kLastTags[] = {dnnl_acb, dnnl_acdb, dnnl_acdeb};
    const dnnl_format_tag_t tag = order == kAny    ? dnnl_format_tag_any
                                  : order == kLast ? kLastTags[rank - 3]
                                                   : kPlainTags[rank - 3];
    dnnl_memory_desc_t desc;
    TENON_ONEDNN(dnnl_memory_desc_init_by_tag(&desc, rank, dims, dnnl_f32, tag));
    return desc;
  }
};

class OnednnConvolution final : public Convolution {
 public:
  OnednnConvolution(const Kernels& kernels, const ConvolutionSpec& spec)
      : kernels_(kernels), spec_(spec), shape_(spec), geometry_(spec) {
    TENON_ONEDNN(dnnl_engine_create(engine_.out(), dnnl_cpu, 0));
    // Blocks of 16 channels waste unfilled lanes, and the library then has slower loops for some passes.
    const bool filled = spec.channels % kBlockedChannels == 0 && spec.features % kBlockedChannels == 0;
    using Order = Geometry::Order;
    for (const Order order : {filled ? Order::kAny : Order::kLast, Order::kAny}) {
      usable_ = prepare(order);
      if (usable_) break;
    }
  }

  bool usable() const { return usable_; }

  // Room to align the library's memory, should the caller's scratch not be aligned.
  std::size_t scratch_bytes() const override {
    return std::max({forward_.bytes(), input_.bytes(), weight_.bytes()}) + kOnednnAlignment;
  }

  void forward(TensorView x, TensorView w, TensorView bias, TensorView y, TensorView scratch) override {
    const auto of = shape_.forward(x, w, bias, y);
    float* const to = of.y;
    if (spec_.bias) point(bias_, of.bias);
    forward_.run({of.x, of.w, to}, spec_.bias ? &bias_ : nullptr, false,
                 room(scratch, ConvolutionShape::kForward));
    if (spec_.epilogue == Epilogue::kNone) return;
    parallel_for(shape_.y_elements(), kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
      map_forward(kernels_, spec_.epilogue, to + begin, to + begin, end - begin);
    });
  }

  void backward_input(TensorView w, TensorView dy, TensorView dx, bool accumulate,
                      TensorView scratch) override {
    const auto of = shape_.backward_input(w, dy, dx);
    input_.run({of.w, of.y, of.x}, nullptr, accumulate, room(scratch, ConvolutionShape::kBackwardInput));
  }

  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                       TensorView scratch) override {
    const auto of = shape_.backward_weight(x, dy, dw);
    weight_.run({of.x, of.y, of.w}, nullptr, accumulate, room(scratch, ConvolutionShape::kBackwardWeight));
  }

 private:
  std::byte* room(const TensorView& scratch, const char* where) const {
    return device_arguments::convolution_room(scratch, scratch_bytes(), kOnednnAlignment, where);
  }

  /// Finds the library's first description of the primitive that is `safe`; returns false where it is not a
  /// fast one.
  template <typename Safe>
  bool find(PrimitiveDesc& desc, const_dnnl_op_desc_t operation, const PrimitiveDesc& forward,
            Safe safe) const {
    Attributes attributes;
    scratch_of_caller(attributes);
    PrimitiveDescs offers;  // best first
    dnnl_status_t found = dnnl_primitive_desc_iterator_create(offers.out(), operation, attributes.get(),
                                                              engine_.get(), forward.get());
    if (found == dnnl_unimplemented) return false;
    if (found != dnnl_success) fail_onednn("dnnl_primitive_desc_iterator_create", found);
    for (; found == dnnl_success; found = dnnl_primitive_desc_iterator_next(offers.get())) {
      *desc.out() = dnnl_primitive_desc_iterator_fetch(offers.get());
      if (!safe(desc)) continue;
      const std::string name = implementation_of(desc);
      return name.find("ref") == std::string::npos && name.find("gemm") == std::string::npos;
    }
    return false;
  }

  bool keeps_within_scratch(const PrimitiveDesc& weight) const {
    const dnnl_memory_desc_t* x = dnnl_primitive_desc_query_md(weight.get(), dnnl_query_src_md, 0);
    const auto* stride = geometry_.stride;
    return !overruns_scratch(implementation_of(weight), spec_.channels,
                             std::any_of(stride, stride + spec_.window.spatial, [](auto s) { return s > 1; }),
                             x->format_desc.blocking.inner_nblks == 0);
  }

  bool prepare(Geometry::Order order) {
    const Geometry& g = geometry_;
    const dnnl_memory_desc_t x = g.tensor(g.x, order), w = g.tensor(g.w, Geometry::kAny),
                             y = g.tensor(g.y, order);
    const dnnl_dims_t features = {spec_.features};
    dnnl_memory_desc_t bias;
    TENON_ONEDNN(dnnl_memory_desc_init_by_tag(&bias, 1, features, dnnl_f32, dnnl_a));
    constexpr dnnl_alg_kind_t kDirect = dnnl_convolution_direct;
    dnnl_convolution_desc_t forward, input, weight;
    TENON_ONEDNN(dnnl_dilated_convolution_forward_desc_init(&forward, dnnl_forward_training, kDirect, &x, &w,
                                                            spec_.bias ? &bias : nullptr, &y, g.stride,
                                                            g.dilation, g.low, g.high));
    TENON_ONEDNN(dnnl_dilated_convolution_backward_data_desc_init(&input, kDirect, &x, &w, &y, g.stride,
                                                                  g.dilation, g.low, g.high));
    TENON_ONEDNN(dnnl_dilated_convolution_backward_weights_desc_init(&weight, kDirect, &x, &w, nullptr, &y,
                                                                     g.stride, g.dilation, g.low, g.high));
    PrimitiveDesc none, to_y, to_x, to_w;
    const auto any = [](const PrimitiveDesc&) { return true; };
    const auto kept = [this](const PrimitiveDesc& desc) { return keeps_within_scratch(desc); };
    if (!find(to_y, &forward, none, any) || !find(to_x, &input, to_y, any) ||
        !find(to_w, &weight, to_y, kept))
      return false;
    if (spec_.bias) make(bias_, bias, engine_.get());
    const dnnl_memory_desc_t plain_x = g.tensor(g.x, Geometry::kPlain),
                             plain_w = g.tensor(g.w, Geometry::kPlain),
                             plain_y = g.tensor(g.y, Geometry::kPlain);
    const auto taken = [](const PrimitiveDesc& desc, dnnl_query_t what) {
      return dnnl_primitive_desc_query_md(desc.get(), what, 0);
    };
    forward_.prepare(
        to_y, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}, {&plain_x, &plain_w, &plain_y},
        {taken(to_y, dnnl_query_src_md), taken(to_y, dnnl_query_weights_md), taken(to_y, dnnl_query_dst_md)},
        engine_.get());
    input_.prepare(to_x, {DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC},
                   {&plain_w, &plain_y, &plain_x},
                   {taken(to_x, dnnl_query_weights_md), taken(to_x, dnnl_query_diff_dst_md),
                    taken(to_x, dnnl_query_diff_src_md)},
                   engine_.get());
    weight_.prepare(to_w, {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
                    {&plain_x, &plain_y, &plain_w},
                    {taken(to_w, dnnl_query_src_md), taken(to_w, dnnl_query_diff_dst_md),
                     taken(to_w, dnnl_query_diff_weights_md)},
                    engine_.get());
    return true;
  }

  Kernels kernels_;
  ConvolutionSpec spec_;
  ConvolutionShape shape_;
  Geometry geometry_;
  Engine engine_;
  Memory bias_;
  Pass forward_, input_, weight_;
  bool usable_ = false;
};

}  // namespace

std::unique_ptr<Convolution> make_onednn_convolution(const Kernels& kernels, const ConvolutionSpec& spec) {
  auto plan = std::make_unique<OnednnConvolution>(kernels, spec);
  if (!plan->usable()) return nullptr;
  return plan;
}

}  // namespace tenon::cpu
