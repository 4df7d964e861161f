// Transfers of wire.hpp. Numbers other than f32 are converted to f32 before they are rounded to few bits.
#include "wire.hpp"

#include <tenon/optimizer.hpp>

#include <algorithm>
#include <utility>

namespace tenon::sync_streaming {
namespace {

constexpr std::int64_t kMxBlock = 32, kFp4Block = 16;

std::int64_t blocks(std::int64_t elements, std::int64_t block) {
  return (elements + block - 1) / block;
}

TensorView first(TensorView view, std::int64_t elements) {
  view.shape = Shape{elements};
  return view;
}

}  // namespace

std::int64_t narrow_bytes(Format format, std::int64_t elements) {
  switch (format) {
    case Format::kBf16:
      return 2 * elements;
    case Format::kE4m3:
      return elements + blocks(elements, kMxBlock);
    case Format::kFp4:
      return blocks(elements, 2) + blocks(elements, kFp4Block) + static_cast<std::int64_t>(sizeof(float));
    default:
      return 0;
  }
}

Wire::~Wire() {
  group_.reset();  // once it is closed, no peer reads pending buffers
  for (const TensorView& view : owned_) device_->release(view.data, view.bytes());
}

TensorView Wire::allocate(DType dtype, std::int64_t elements) {
  TensorView view;
  view.dtype = dtype;
  view.shape = Shape{elements};
  view.space = device_->space();
  view.data = device_->allocate(view.bytes());
  owned_.push_back(view);
  return view;
}

void Wire::start(Replica& replica, std::span<const Fragment> fragments) {
  device_ = &replica.device();
  elementwise_ = &device_->family<Elementwise>();
  replicas_ = replica.replicas();
  self_ = replica.replica();
  fragments_ = fragments;
  if (replicas_ > 1) group_ = replica.open("streaming.fragments", Purpose::kParameter);

  std::int64_t largest = 0;
  std::size_t lanes = 0;
  for (int arena = 0; arena < replica.live().arenas(); ++arena) {
    std::int64_t room = 0;
    for (const Fragment& fragment : fragments) {
      for (const Lane& lane : fragment.lanes) {
        if (lane.arena == arena) room = std::max(room, lane.elements);
      }
      lanes = std::max(lanes, fragment.lanes.size());
    }
    if (room == 0) continue;
    arenas_.push_back(arena);
    buffers_.push_back(allocate(replica.live().arena(arena).dtype, room));
    largest = std::max(largest, flat_reals(buffers_.back()).elements());
  }
  requests_.reserve(lanes);
  if (format_ == Format::kParameter) return;
  plain_ = allocate(DType::kF32, largest);
  sum_ = allocate(DType::kF32, largest);
  values_ = allocate(DType::kBF16, largest);
  for (const Fragment& fragment : fragments) {
    narrow_.emplace_back();
    for (const Lane& lane : fragment.lanes) narrow_.back().push_back(prepare(lane));
  }
  // One fragment is in flight at a time, so all share the memory of the largest.
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::int64_t room = 0;
    for (const auto& of_fragment : narrow_)
      room = std::max(room, lane < of_fragment.size() ? of_fragment[lane].row_bytes * replicas_ : 0);
    const TensorView shared = allocate(DType::kU8, room);
    for (auto& of_fragment : narrow_) {
      if (lane >= of_fragment.size()) continue;
      of_fragment[lane].rows = shared;
      of_fragment[lane].rows.shape = Shape{replicas_, of_fragment[lane].row_bytes};
    }
  }
}

Wire::Narrow Wire::prepare(const Lane& lane) {
  Narrow narrow;
  narrow.elements = flat_reals(packed(lane)).elements();
  narrow.row_bytes = narrow_bytes(format_, narrow.elements);
  if (format_ == Format::kBf16) return narrow;
  QuantizeSpec spec;
  spec.rows = 1;
  spec.columns = narrow.elements;
  spec.input = DType::kF32;
  const bool fp4 = format_ == Format::kFp4;
  spec.element = fp4 ? ElementFormat::kE2M1 : ElementFormat::kE4M3;
  spec.scale = fp4 ? BlockScale::kTwoLevel : BlockScale::kPower;
  spec.block_columns = fp4 ? kFp4Block : kMxBlock;
  narrow.kernel = device_->family<QuantOps>().quantizer(spec);
  narrow.scratch = allocate(DType::kU8, static_cast<std::int64_t>(narrow.kernel->scratch_bytes()));
  return narrow;
}

TensorView Wire::packed(const Lane& lane) const {
  const auto at = std::find(arenas_.begin(), arenas_.end(), lane.arena);
  return first(buffers_[at - arenas_.begin()], lane.elements);
}

TensorView Wire::row(const Narrow& narrow, int replica, std::int64_t begin, std::int64_t bytes) const {
  TensorView view = narrow.rows;
  view.data = static_cast<std::byte*>(view.data) + replica * narrow.row_bytes + begin;
  view.shape = Shape{bytes};
  return view;
}

void Wire::encode(const Narrow& narrow, TensorView delta) {
  const std::int64_t n = narrow.elements;
  if (narrow.kernel == nullptr) {
    TensorView out = row(narrow, self_, 0, 2 * n);
    out.dtype = DType::kBF16;
    out.shape = Shape{n};
    elementwise_->convert(delta, out);
    return;
  }
  TensorView x = delta;
  if (delta.dtype != DType::kF32) {
    x = first(plain_, n);
    elementwise_->convert(delta, x);
  }
  x.shape = Shape{1, n};
  const auto codes = static_cast<std::int64_t>(narrow.kernel->code_bytes());
  const auto scales = static_cast<std::int64_t>(narrow.kernel->scale_bytes());
  QuantizeOutput out;
  out.codes = row(narrow, self_, 0, codes);
  out.scales = row(narrow, self_, codes, scales);
  const bool two_level = narrow.kernel->needs_amax();
  const float amax = two_level ? narrow.kernel->amax(x, narrow.scratch) : 0;
  float scale = narrow.kernel->run(x, amax, {}, out, narrow.scratch, nullptr);
  if (!two_level) return;
  TensorView host;
  host.data = &scale;
  host.dtype = DType::kU8;
  host.shape = Shape{sizeof(float)};
  device_->copy(host, row(narrow, self_, codes + scales, sizeof(float)));
}

void Wire::decode(const Narrow& narrow, TensorView mean) {
  const std::int64_t n = narrow.elements;
  const TensorView sum = first(sum_, n), plain = first(plain_, n);
  elementwise_->fill(sum, 0);
  for (int k = 0; k < replicas_; ++k) {
    float scale = 1;
    TensorView values = first(values_, n);
    if (narrow.kernel == nullptr) {
      values = row(narrow, k, 0, 2 * n);
      values.dtype = DType::kBF16;
      values.shape = Shape{n};
    } else {
      const auto codes = static_cast<std::int64_t>(narrow.kernel->code_bytes());
      const auto scales = static_cast<std::int64_t>(narrow.kernel->scale_bytes());
      narrow.kernel->decode(row(narrow, k, 0, codes), row(narrow, k, codes, scales), values);
      if (narrow.kernel->needs_amax()) {
        TensorView host;
        host.data = &scale;
        host.dtype = DType::kU8;
        host.shape = Shape{sizeof(float)};
        device_->copy(row(narrow, k, codes + scales, sizeof(float)), host);
      }
    }
    elementwise_->convert(values, plain);
    elementwise_->axpy(scale, plain, sum);
  }
  elementwise_->scale(sum, 1.0 / replicas_);
  elementwise_->convert(sum, mean);
}

void Wire::send(std::size_t fragment) {
  flying_ = &fragments_[fragment];
  flying_index_ = fragment;
  for (std::size_t i = 0; i < flying_->lanes.size(); ++i) {
    const TensorView delta = packed(flying_->lanes[i]);
    if (format_ == Format::kParameter) {
      if (group_ != nullptr) requests_.push_back(group_->start_all_reduce(delta, ReduceOp::kSum));
      continue;
    }
    const Narrow& narrow = narrow_[fragment][i];
    encode(narrow, flat_reals(delta));
    if (group_ != nullptr) requests_.push_back(group_->start_all_gather(narrow.rows));
  }
}

void Wire::land() {
  const Fragment* landing = std::exchange(flying_, nullptr);
  if (landing == nullptr) return;
  struct Forget {  // each request is waited for once, even if a wait throws
    std::vector<Request>& requests;
    ~Forget() { requests.clear(); }
  } forget{requests_};
  for (std::size_t i = 0; i < landing->lanes.size(); ++i) {
    if (group_ != nullptr) group_->wait(requests_[i]);
    const TensorView mean = packed(landing->lanes[i]);
    if (format_ != Format::kParameter)
      decode(narrow_[flying_index_][i], flat_reals(mean));
    else if (group_ != nullptr)
      elementwise_->scale(mean, 1.0 / replicas_);
  }
}

}  // namespace tenon::sync_streaming
