// The state space model with one decay per head (family Ssd) on the bodies of kernels/cuda/ssd*.hpp: chunked
// forward and backward; places that go on with kept states in chunks where they are many, else one by one.
#include "device_common/ssd.hpp"
#include "common.hpp"

#include <tenon/kernels/cuda/ssd.hpp>
#include <tenon/kernels/cuda/ssd_backward.hpp>
#include <tenon/kernels/cuda/ssd_tiles.hpp>

#include <algorithm>
#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// Parts of the scratch of a call, one after the other at multiples of 256 bytes.
template <class A>
class SsdScratch {
 public:
  explicit SsdScratch(std::byte* memory = nullptr) : memory_(memory) {}
  A* take(std::int64_t elements) {
    A* const at = reinterpret_cast<A*>(memory_ + bytes_);
    bytes_ += (static_cast<std::size_t>(elements) * sizeof(A) + 255) / 256 * 256;
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

template <class S>
class CudaSsdKernel final : public SsdKernel {
  using A = Arith<S>;
  using Args = bodies::SsdArgs<S>;
  using Pass = bodies::SsdPass;
  using Role = bodies::SsdRole;

 public:
  CudaSsdKernel(Queue& queue, const SsdSpec& spec)
      : queue_(queue),
        spec_(spec),
        rows_(spec.batch),
        step_columns_(queue),
        device_rows_(queue),
        host_rows_(static_cast<std::size_t>(spec.batch)) {
    step_columns_.set(device_ssd::run_columns(spec.steps));
    if (!host_rows_.empty()) device_rows_.set(host_rows_);
    SsdScratch<A> forward, backward;
    Args args = sizes();
    take_steps(forward, args);
    forward.take(args.state_elements() * args.chunks());
    take_steps(backward, args);
    Parts(backward, args);
    scratch_bytes_ = std::max(forward.bytes(), backward.bytes());
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }

  void forward(const SsdInputs& inputs, TensorView y, TensorView states, TensorView last,
               TensorView scratch) override {
    constexpr const char* kWhere = device_ssd::kSsd;
    const auto tensors = device_ssd::ssd_forward<S>(spec_, inputs, y, states, last);
    device_arguments::check_scratch_view(scratch, scratch_bytes_, kWhere);
    if (spec_.batch == 0) return;
    SsdScratch<A> room(scratch.as<std::byte>());
    Args args = with(tensors);
    compute_steps(args, room, kWhere);
    A* const states_or_room =
        tensors.states != nullptr ? tensors.states : room.take(args.state_elements() * args.chunks());
    compute_outputs(args, states_or_room, tensors.initial, tensors.last, tensors.y, kWhere);
  }

  void backward(const SsdInputs& inputs, TensorView states, TensorView dy, TensorView dlast,
                const SsdGradients& gradients, TensorView scratch) override {
    constexpr const char* kWhere = device_ssd::kSsdBackward;
    const auto t = device_ssd::ssd_backward<S>(spec_, inputs, states, dy, dlast, gradients);
    device_arguments::check_scratch_view(scratch, scratch_bytes_, kWhere);
    SsdScratch<A> room(scratch.as<std::byte>());
    Args args = with(t.in);
    compute_steps(args, room, kWhere);
    const Parts parts(room, args);
    const bool places = args.places() > 0;
    if (places) start(bodies::SsdChunkStates<S, Pass::kBackward>{args, t.dy, parts.after}, kWhere);
    if (args.batch > 0)
      start(bodies::SsdPassStates<S, Pass::kBackward>{args, parts.after, t.dlast, t.dinitial}, kWhere);
    const int slices = bodies::SsdTiles<A>::slices(spec_.head_width);
    if (places) {
      start(bodies::SsdTileProducts<S, Role::kDu>{args, t.dy, parts.after, t.dxbc, parts.x_du, parts.x_dy},
            kWhere);
      start(bodies::SsdTileProducts<S, Role::kDc>{args, t.dy, t.states, t.dxbc}, kWhere);
      start(bodies::SsdTileProducts<S, Role::kDb>{args, t.dy, parts.after, t.dxbc}, kWhere);
      start(bodies::SsdEdgeTerms<S, Pass::kForward>{args, t.dy, t.states, parts.of_before}, kWhere);
      start(bodies::SsdEdgeTerms<S, Pass::kBackward>{args, t.dy, parts.after, parts.of_after}, kWhere);
      start(bodies::SsdStateProducts<S>{args, t.states, parts.after, parts.products}, kWhere);
      start(bodies::SsdDecayGradients<S>{args, t.dy, parts.of_before, parts.decays}, kWhere);
      start(bodies::SsdStepGradients<S>{args, slices, parts.decays, parts.products, parts.of_after,
                                        parts.x_du, t.dprojected, parts.of_rate, parts.of_steps},
            kWhere);
    }
    start(bodies::SsdHeadSums<S>{args, slices, parts.of_rate, parts.of_steps, parts.x_dy, t.da_log,
                                 t.ddt_bias, t.dd, t.accumulate},
          kWhere);
  }

  std::int64_t sequence_bytes() const override {
    return device_ssd::whole_sequence(bodies::SsdGoOn<S>::bytes(spec_.heads, spec_.state, spec_.head_width));
  }

  void step(const SsdInputs& inputs, const CachedRows& rows, TensorView state, TensorView y,
            TensorView scratch) override {
    constexpr const char* kWhere = device_ssd::kSsdStep;
    const auto tensors = device_ssd::ssd_step<S>(spec_, inputs, y);
    std::uint8_t* const sequences = rows_.check(rows, spec_.time, state, sequence_bytes(), kWhere);
    device_arguments::check_scratch_view(scratch, scratch_bytes_, kWhere);
    if (spec_.batch * spec_.time == 0) return;
    for (std::size_t row = 0; row < host_rows_.size(); ++row) {
      // A row of padding may name no sequence.
      const std::int64_t count = rows.count[row], kept = count > 0 ? rows.kept[row] : 0;
      const bool in_chunks = count > bodies::kSsdRows;
      if (in_chunks)
        step_in_chunks(tensors, static_cast<std::int64_t>(row), rows.first[row], count,
                       sequences + kept * sequence_bytes(), scratch);
      host_rows_[row] = {rows.first[row], count, kept, in_chunks ? count : 0};
    }
    device_rows_.update(host_rows_);
    const Args args = with(tensors);
    const auto* const going = device_rows_.template at<bodies::SsdRow>();
    start(bodies::SsdGoOn<S>{args, going, sequences, sequence_bytes(), tensors.y}, kWhere);
    if (args.documents != nullptr)
      start(bodies::SsdKeepDocuments<S>{args, going, sequences, sequence_bytes()}, kWhere);
  }

 private:
  Args sizes() const {
    Args args;
    args.batch = spec_.batch, args.time = spec_.time;
    args.heads = spec_.heads, args.head_width = spec_.head_width;
    args.groups = spec_.groups, args.state = spec_.state, args.chunk = spec_.chunk;
    args.columns = spec_.columns;
    args.dt_min = static_cast<A>(spec_.dt_min), args.dt_max = static_cast<A>(spec_.dt_max);
    args.step_columns = step_columns_.template at<std::int64_t>();
    return args;
  }
  Args with(const device_ssd::SsdTensors<S>& tensors) const {
    Args args = sizes();
    args.xbc = tensors.xbc, args.projected = tensors.projected;
    args.a_log = tensors.a_log, args.dt_bias = tensors.dt_bias, args.d = tensors.d;
    args.documents = tensors.documents;
    return args;
  }

  /// Places of one row that go on with a sequence, as forward() computes them.
  void step_in_chunks(const device_ssd::SsdTensors<S>& tensors, std::int64_t row, std::int64_t first,
                      std::int64_t count, std::uint8_t* sequence, TensorView scratch) {
    constexpr const char* kWhere = device_ssd::kSsdStep;
    SsdScratch<A> room(scratch.as<std::byte>());
    const std::int64_t before = row * spec_.time;
    Args args = with(tensors);
    args.batch = 1, args.time = count;
    args.xbc += before * spec_.xbc_columns(), args.projected += before * spec_.columns;
    if (args.documents != nullptr) {
      args.documents += before;
      const auto* const number = sequence + spec_.heads * spec_.state * spec_.head_width * sizeof(A);
      if (first > 0) args.before = reinterpret_cast<const std::int32_t*>(number);
    }
    compute_steps(args, room, kWhere);
    A* const kept = reinterpret_cast<A*>(sequence);
    S* const y = tensors.y + before * spec_.heads * spec_.head_width;
    compute_outputs(args, room.take(args.state_elements() * args.chunks()), first > 0 ? kept : nullptr, kept,
                    y, kWhere);
  }

  static void take_steps(SsdScratch<A>& room, Args& args) {
    args.delta = room.take(args.places());
    args.l = room.take(args.places());
    args.tile_sums = room.take(args.all_tiles());
  }
  /// The steps of a call and their sums, in the scratch.
  void compute_steps(Args& args, SsdScratch<A>& room, const char* where) {
    take_steps(room, args);
    if (args.places() == 0) return;
    start(bodies::SsdSteps<S>{args}, where);
    start(bodies::SsdTileSums<S>{args}, where);
  }
  /// y and the state after the last place, which may be null or the first state's memory.
  void compute_outputs(const Args& args, A* states, const A* first, A* last, S* y, const char* where) {
    if (args.time > 0) start(bodies::SsdChunkStates<S, Pass::kForward>{args, nullptr, states}, where);
    start(bodies::SsdPassStates<S, Pass::kForward>{args, states, first, last}, where);
    if (args.time > 0) start(bodies::SsdTileProducts<S, Role::kY>{args, nullptr, states, y}, where);
  }

  /// What backward keeps in the scratch.
  struct Parts {
    Parts(SsdScratch<A>& room, const Args& args) {
      const std::int64_t places = args.places(), slices = bodies::SsdTiles<A>::slices(args.head_width);
      after = room.take(args.state_elements() * args.chunks());
      products = room.take(args.batch * args.heads * args.chunks());
      for (A** const part : {&of_before, &of_after, &of_rate, &of_steps}) *part = room.take(places);
      for (A** const part : {&x_du, &x_dy}) *part = room.take(places * slices);
      decays = room.take(places * args.tiles());
    }
    A *after, *products, *of_before, *of_after, *of_rate, *of_steps, *x_du, *x_dy, *decays;
  };

  template <class Body>
  void start(const Body& body, const char* where) {
    queue_.launch(where, body.mesh(), body);
  }

  Queue& queue_;
  const SsdSpec spec_;
  device_ssd::StepRows rows_;
  DeviceNumbers step_columns_, device_rows_;
  std::vector<bodies::SsdRow> host_rows_;
  std::size_t scratch_bytes_ = 0;
};

class CudaSsd final : public Ssd {
 public:
  explicit CudaSsd(Queue& queue) : queue_(queue) {}

  std::unique_ptr<SsdKernel> prepare(const SsdSpec& spec) override {
    device_ssd::check_ssd(spec);
    return with_storage(spec.dtype, device_ssd::kSsd, [&](auto tag) -> std::unique_ptr<SsdKernel> {
      return std::make_unique<CudaSsdKernel<typename decltype(tag)::type>>(queue_, spec);
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<Ssd> make_ssd(Queue& queue) {
  return std::make_unique<CudaSsd>(queue);
}

}  // namespace tenon::cuda
