// Products in a stream of the lowest priority (BackgroundWork): a queue of its own, with memory of its own,
// so that neither order nor values of the operators' work can depend on it. Emulated, a block runs in
// start_block().
#include "common.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

namespace tenon::cuda {
namespace {

class CudaBackground final : public BackgroundWork {
 public:
  explicit CudaBackground(const QueueSpec& spec) : spec_(spec) {
    spec_.background = true;
    spec_.lose_at = -1;  // counts operators
  }
  ~CudaBackground() override { close(); }

  double open(double seconds) override {
    close();
    try {
      return make(seconds);
    } catch (...) {
      close();
      throw;
    }
  }

  void start_block() override {
    queue_->make_current();  // libraries take the thread's device
    for (std::int64_t i = 0; i < products_; ++i) multiply();
    void* event = nullptr;
    if (free_.empty()) {
      event = streams_->make_event();
    } else {
      event = free_.back();
      free_.pop_back();
    }
    started_.push_back(event);
    streams_->record(event, queue_->stream());
  }

  int in_flight() override {
    while (!started_.empty() && streams_->reached(started_.front())) {
      free_.push_back(started_.front());
      started_.pop_front();
    }
    return static_cast<int>(started_.size());
  }

  void close() noexcept override {
    if (queue_ == nullptr) return;
    try {
      queue_->synchronize();
    } catch (const Error&) {
      // A lost device has nothing in flight, and the operators report it.
    }
    for (void* const event : started_) streams_->release_event(event);
    for (void* const event : free_) streams_->release_event(event);
    started_.clear();
    free_.clear();
    gemm_.reset();
    release();
    blas_.reset();
    streams_.reset();
    queue_.reset();
  }

 private:
  static constexpr std::int64_t kLeastSide = 32, kMostSide = 4096, kMostProducts = 64;

  /// Products grow until one takes a good part of the block, which is then a whole number of them.
  double make(double seconds) {
    queue_ = std::make_unique<Queue>(spec_);
    streams_ = std::make_unique<Streams>(*queue_, spec_.index);
    blas_ = make_blas(*queue_);
    for (side_ = kLeastSide;; side_ *= 2) {
      prepare();
      time_one();  // a library chooses its kernel at the first product
      const double one = std::min(time_one(), time_one());
      if (one < seconds / 2 && side_ < kMostSide) continue;
      products_ = std::clamp<std::int64_t>(std::llround(seconds / one), 1, kMostProducts);
      return one * static_cast<double>(products_);
    }
  }

  /// The product of this side, on operands that are not zero: zeros draw less power.
  void prepare() {
    release();
    const DType dtype = blas_->native(DType::kBF16) ? DType::kBF16 : DType::kF32;
    const auto elements = static_cast<std::size_t>(side_ * side_);
    const auto bytes = static_cast<std::size_t>(dtype_bytes(dtype, side_ * side_));
    std::vector<std::byte> values(bytes);
    for (std::size_t i = 0; i < elements; ++i) {
      const std::uint32_t mixed = static_cast<std::uint32_t>(i) * 2654435761u;
      const float value = static_cast<float>(mixed >> 8) / 8388608.0f - 1;  // in [-1, 1)
      if (dtype == DType::kBF16) {
        const Bf16 narrow = kernels::to_bf16(value);
        std::memcpy(values.data() + i * sizeof narrow, &narrow, sizeof narrow);
      } else {
        std::memcpy(values.data() + i * sizeof value, &value, sizeof value);
      }
    }
    for (TensorView* const view : {&a_, &b_, &c_}) {
      *view = {queue_->allocate(bytes), Shape{side_, side_}, dtype, MemorySpace::kCuda};
      queue_->copy(values.data(), MemorySpace::kHost, view->data, MemorySpace::kCuda, bytes);
    }
    GemmSpec spec;
    spec.m = spec.n = spec.k = side_;
    spec.a = spec.b = spec.c = dtype;
    gemm_ = blas_->gemm(spec);
    const std::size_t scratch = gemm_->scratch_bytes();
    scratch_ = {queue_->allocate(scratch), Shape{static_cast<std::int64_t>(scratch)}, DType::kU8,
                MemorySpace::kCuda};
  }

  void release() noexcept {
    for (TensorView* const view : {&a_, &b_, &c_, &scratch_}) {
      queue_->release(view->data);
      view->data = nullptr;
    }
  }

  void multiply() { gemm_->run(a_, b_, c_, {}, 1, scratch_); }

  double time_one() {
    queue_->synchronize();
    const auto begin = std::chrono::steady_clock::now();
    multiply();
    queue_->synchronize();
    return std::max(1e-7, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }

  QueueSpec spec_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Streams> streams_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<Gemm> gemm_;
  TensorView a_, b_, c_, scratch_;
  std::int64_t side_ = 0, products_ = 1;
  std::deque<void*> started_;  ///< events at the ends of blocks, in order
  std::vector<void*> free_;
};

}  // namespace

std::unique_ptr<BackgroundWork> make_background(const QueueSpec& spec) {
  return std::make_unique<CudaBackground>(spec);
}

}  // namespace tenon::cuda
