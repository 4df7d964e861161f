// State space models of Mamba-2 layers (family Ssd of <tenon/sdk/ops/ssd.hpp>). The set "reference" computes
// the recurrence, the others blocks of positions. Work is shared by sequences and small blocks of heads; the
// split does not change a bit.
#include "device_common/ssd.hpp"
#include "common.hpp"

#include <tenon/kernels/dispatch.hpp>

#include <cstring>
#include <vector>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::SsdArgs;

template <class S>
class CpuSsd final : public SsdKernel {
  using A = Arith<S>;

 public:
  CpuSsd(const kernels::SsdOps<S>& ops, const SsdSpec& spec)
      : ops_(ops),
        spec_(spec),
        steps_(device_ssd::run_columns(spec.steps)),
        rows_(spec.batch),
        parts_(parallel_threads()) {
    const SsdArgs<S> args = sizes();
    forward_stride_ = whole_lines(ops_.forward_workspace(args));
    backward_stride_ = whole_lines(ops_.backward_workspace(args));
    const std::int64_t rows = kernels::ssd_head_blocks(args) * spec_.batch * spec_.time * spec_.groups;
    sums_ = whole_lines(rows * 2 * spec_.state);
    head_sums_ = whole_lines(spec_.batch * 3 * spec_.heads);
  }

  std::size_t scratch_bytes() const override {
    const std::size_t backward = backward_stride_ * parts_ + sums_ + head_sums_;
    return std::max(forward_stride_ * parts_, backward) * sizeof(A);
  }

  void forward(const SsdInputs& in, TensorView y, TensorView states, TensorView last,
               TensorView scratch) override {
    const auto tensors = device_ssd::ssd_forward<S>(spec_, in, y, states, last);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), device_ssd::kSsd);
    SsdArgs<S> args = with_inputs(tensors);
    args.y = tensors.y;
    args.states = tensors.states;
    args.last = tensors.last;
    run(args, scratch.as<A>(), forward_stride_, ops_.forward);
  }

  void backward(const SsdInputs& in, TensorView states, TensorView dy, TensorView dlast,
                const SsdGradients& out, TensorView scratch) override {
    const auto tensors = device_ssd::ssd_backward<S>(spec_, in, states, dy, dlast, out);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), device_ssd::kSsdBackward);
    SsdArgs<S> args = with_inputs(tensors.in);
    args.states = const_cast<A*>(tensors.states);
    args.dy = tensors.dy;
    args.dlast = tensors.dlast;
    args.dxbc = tensors.dxbc;
    args.dprojected = tensors.dprojected;
    args.dinitial = tensors.dinitial;
    args.bc_sums = scratch.as<A>();
    args.head_sums = args.bc_sums + sums_;
    run(args, args.head_sums + head_sums_, backward_stride_, ops_.backward);
    parallel_for(spec_.batch * spec_.time, row_block(2 * spec_.groups * spec_.state),
                 [&](std::int64_t begin, std::int64_t end) { ops_.finish(args, begin, end); });
    put_head_sums(args, 0, tensors.da_log, tensors.accumulate);
    put_head_sums(args, 1, tensors.ddt_bias, tensors.accumulate);
    put_head_sums(args, 2, tensors.dd, tensors.accumulate);
  }

  std::int64_t sequence_bytes() const override {
    return device_ssd::whole_sequence(spec_.heads * spec_.state * spec_.head_width * sizeof(A) +
                                      2 * sizeof(std::int32_t));
  }

  void step(const SsdInputs& in, const CachedRows& rows, TensorView state, TensorView y,
            TensorView) override {
    const auto tensors = device_ssd::ssd_step<S>(spec_, in, y);
    auto* const memory = rows_.check(rows, spec_.time, state, sequence_bytes(), device_ssd::kSsdStep);
    SsdArgs<S> args = with_inputs(tensors);
    args.y = tensors.y;
    const std::int64_t size = spec_.state * spec_.head_width;
    const std::int64_t block =
        std::max<std::int64_t>(1, kFlatBlock / (size * std::max<std::int64_t>(1, spec_.time)));
    const std::int64_t blocks = (spec_.heads + block - 1) / block;
    parallel_for(spec_.batch * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t first = at % blocks * block;
        step_heads(args, rows, at / blocks, first, std::min(spec_.heads, first + block), memory);
      }
    });
    for (std::int64_t b = 0; b < spec_.batch; ++b)
      if (args.documents != nullptr && rows.count[b] > 0)
        *last_document(rows, b, memory) = args.documents[b * spec_.time + rows.count[b] - 1];
  }

 private:
  static std::size_t whole_lines(std::int64_t elements) {
    constexpr std::size_t kItems = kCacheLine / sizeof(A);
    return (static_cast<std::size_t>(elements) + kItems - 1) / kItems * kItems;
  }

  SsdArgs<S> sizes() const {
    SsdArgs<S> args;
    args.batch = spec_.batch, args.time = spec_.time, args.heads = spec_.heads;
    args.head_width = spec_.head_width, args.groups = spec_.groups, args.state = spec_.state;
    args.chunk = std::min(spec_.chunk, std::max<std::int64_t>(1, spec_.time)), args.columns = spec_.columns,
    args.steps = steps_.data();
    args.dt_min = static_cast<A>(spec_.dt_min), args.dt_max = static_cast<A>(spec_.dt_max);
    return args;
  }

  SsdArgs<S> with_inputs(const device_ssd::SsdTensors<S>& in) const {
    SsdArgs<S> args = sizes();
    args.xbc = in.xbc, args.projected = in.projected;
    args.a_log = in.a_log, args.dt_bias = in.dt_bias, args.d = in.d;
    args.documents = in.documents;
    args.initial = in.initial;
    return args;
  }

  /// Shares the items among the team; each share has a workspace.
  template <class Body>
  void run(const SsdArgs<S>& args, A* workspace, std::size_t stride, Body body) const {
    const std::int64_t items = kernels::ssd_items(args);
    if (items == 0) return;
    const std::int64_t block = (items + parts_ - 1) / parts_;
    parallel_for(items, block, [&](std::int64_t begin, std::int64_t end) {
      body(args, begin, end, workspace + static_cast<std::size_t>(begin / block) * stride);
    });
  }

  /// to[h] (+)= sum over the batch of one of the three kinds of head_sums.
  void put_head_sums(const SsdArgs<S>& args, std::int64_t kind, A* to, bool accumulate) const {
    if (to == nullptr) return;
    for (std::int64_t head = 0; head < spec_.heads; ++head) {
      A sum = 0;
      for (std::int64_t b = 0; b < spec_.batch; ++b)
        sum += args.head_sums[(b * 3 + kind) * spec_.heads + head];
      to[head] = accumulate ? to[head] + sum : sum;
    }
  }

  A* kept_state(const CachedRows& rows, std::int64_t b, std::uint8_t* memory) const {
    return reinterpret_cast<A*>(memory + rows.kept[b] * sequence_bytes());
  }
  std::int32_t* last_document(const CachedRows& rows, std::int64_t b, std::uint8_t* memory) const {
    return reinterpret_cast<std::int32_t*>(kept_state(rows, b, memory) +
                                           spec_.heads * spec_.state * spec_.head_width);
  }

  void step_heads(const SsdArgs<S>& args, const CachedRows& rows, std::int64_t b, std::int64_t head_begin,
                  std::int64_t head_end, std::uint8_t* memory) const {
    const std::int64_t size = spec_.state * spec_.head_width, P = spec_.head_width;
    kernels::SsdPlaces<S> places{b * spec_.time, rows.count[b], nullptr, false};
    if (places.count > 0) places.state = kept_state(rows, b, memory);
    if (places.count > 0 && rows.first[b] == 0)
      std::memset(places.state + head_begin * size, 0, (head_end - head_begin) * size * sizeof(A));
    else if (args.documents != nullptr && places.count > 0)
      places.begins = args.documents[places.row] != *last_document(rows, b, memory);
    ops_.step(args, places, head_begin, head_end);
    for (std::int64_t t = places.count; t < spec_.time; ++t)
      std::memset(args.y + ((places.row + t) * spec_.heads + head_begin) * P, 0,
                  (head_end - head_begin) * P * sizeof(S));
  }

  const kernels::SsdOps<S>& ops_;
  SsdSpec spec_;
  std::vector<std::int64_t> steps_;
  device_ssd::StepRows rows_;
  std::int64_t parts_;
  std::size_t forward_stride_ = 0, backward_stride_ = 0, sums_ = 0, head_sums_ = 0;
};

class CpuSsds final : public Ssd {
 public:
  explicit CpuSsds(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<SsdKernel> prepare(const SsdSpec& spec) override {
    device_ssd::check_ssd(spec);
    return with_storage(spec.dtype, device_ssd::kSsd, [&](auto tag) -> std::unique_ptr<SsdKernel> {
      using S = typename decltype(tag)::type;
      return std::make_unique<CpuSsd<S>>(ops<S>(), spec);
    });
  }

 private:
  template <class S>
  const kernels::SsdOps<S>& ops() const {
    if constexpr (std::is_same_v<S, double>) {
      if (kernels_.table != &kernels::reference_kernels()) return kernels_.f64->ssd_chunked;
    }
    return kernels_.ops<S>().ssd;
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<Ssd> make_ssd(const Kernels& kernels) {
  return std::make_unique<CpuSsds>(kernels);
}

}  // namespace tenon::cpu
