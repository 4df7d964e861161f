// Memory of one device and the streams on which work runs: the queue, on which all work of one rank runs in
// order, owners of its memory, and the streams that the device lends. Two implementations: queue_cuda.cpp on
// the CUDA runtime, queue_emulated.cpp on host memory that only operators may touch. Knows nothing of
// operators.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cuda {

using kernels::cuda::Grid;
using kernels::cuda::grid_for;
using kernels::cuda::LaunchOrder;

/// The device, and settings of its emulation.
struct QueueSpec {
  int index = 0;                                ///< among the visible devices
  bool tf32 = false;                            ///< libraries may round f32 operands to TF32
  bool background = false;                      ///< its stream has the lowest priority
  LaunchOrder order = LaunchOrder::kAscending;  ///< emulated: order of blocks, and of threads within a phase
  bool guard = true;          ///< emulated: the host may not touch the memory between operators
  std::int64_t lose_at = -1;  ///< emulated: the operation from which on the device is lost; -1 = none
  std::size_t capacity = 0;   ///< emulated: bytes of memory; 0 = as many as there are addresses
  std::string model = {};     ///< emulated: the model that it reports
};

/// The queue of one rank. Every failure throws Error(kRun) that begins "device NAME:", names the request and
/// keeps the library's own text; an unrecoverable failure is Error(ErrorKind::kDeviceLost), and every later
/// call repeats it.
class Queue {
 public:
  explicit Queue(const QueueSpec& spec);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  static constexpr std::size_t kScratchBytes = std::size_t{4} << 20;

  /// 256-byte aligned and zero.
  void* allocate(std::size_t bytes);
  void release(void* memory) noexcept;
  /// Either side may be the host. From the host: the source may be overwritten when this returns. To the
  /// host: the copy is complete when this returns.
  void copy(const void* from, MemorySpace from_space, void* to, MemorySpace to_space, std::size_t bytes);
  void clear(void* memory, std::size_t bytes);
  void synchronize();

  /// Memory of this queue for data of one operator call; the next operator may overwrite it.
  template <class T>
  T* scratch(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(scratch_) + offset);
  }
  /// Returns an element in device memory, after all earlier work has run.
  template <class T>
  T read(const T* at) {
    T value;
    copy(at, MemorySpace::kCuda, &value, MemorySpace::kHost, sizeof(T));
    return value;
  }

  /// `what` names the operator in failures.
  template <class Body>
  void launch(const char* what, const Grid& grid, const Body& body);

  /// Makes this device current for later calls of this thread.
  void make_current();
  /// cudaStream_t, for libraries; null when emulated.
  void* stream() const { return stream_; }
  /// Throws for a code of the CUDA runtime other than success.
  void check(int code, const char* what);
  /// "NVIDIA H100 80GB HBM3, sm_90, ..." or the emulator's words.
  std::string_view description() const { return description_; }
  int architecture() const { return architecture_; }  ///< 90 for sm_90
  /// Whether libraries may round f32 operands to TF32, which has 10 bits after the leading one.
  bool tf32() const { return tf32_; }

 private:
  struct State;
  /// Emulated: the memory may be touched during its lifetime.
  class Access {
   public:
    explicit Access(Queue& queue);
    ~Access();

   private:
    Queue& queue_;
  };

  /// Emulated: memory of a block, kept from launch to launch.
  std::byte* shared_memory(std::size_t bytes);

  std::unique_ptr<State> state_;
  void* stream_ = nullptr;
  void* scratch_ = nullptr;
  LaunchOrder order_ = LaunchOrder::kAscending;
  bool tf32_ = false;
  int architecture_ = 0;
  std::string description_;
};

#if defined(TENON_CUDA_EMULATED)
template <class Body>
void Queue::launch(const char*, const Grid& grid, const Body& body) {
  const Access access(*this);
  kernels::cuda::launch_on_host(grid, body, order_, shared_memory(grid.shared));
}
#elif defined(__CUDACC__)
template <class Body>
void Queue::launch(const char* what, const Grid& grid, const Body& body) {
  make_current();
  check(kernels::cuda::launch(static_cast<cudaStream_t>(stream_), grid, body), what);
}
#endif

/// "CUDA 13.0, runtime 13.0"; why there is none; "" when emulated.
std::string driver_text();

/// Devices that can be used; `reason` says why there are none.
int usable_devices(std::string& reason);

#ifdef TENON_CUDA_EMULATED
inline constexpr char kDeviceName[] = "cuda_emulated";
#else
inline constexpr char kDeviceName[] = "cuda";
#endif

// Device memory for data of one operator call: the queue's scratch where that is large enough, else memory of
// its own, which the stream frees after the operator.

class Temporary {
 public:
  /// Within the scratch, from byte `offset` on.
  Temporary(Queue& queue, std::size_t bytes, std::size_t offset = 0) : queue_(queue) {
    if (bytes > Queue::kScratchBytes - offset) own_ = allocated(bytes);
    memory_ = own_ != nullptr ? static_cast<std::byte*>(own_) : queue.scratch<std::byte>(offset);
  }
  ~Temporary() { queue_.release(own_); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  template <class T>
  T* at(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

 private:
  /// The caller's guard names the operator's layer and the step.
  void* allocated(std::size_t bytes) {
    try {
      return queue_.allocate(bytes);
    } catch (const Error& error) {
      throw Error(error.kind(), std::string(error.what()) + " (for what an operator keeps within one call)");
    }
  }

  Queue& queue_;
  void* own_ = nullptr;
  std::byte* memory_ = nullptr;
};

// A copy of host numbers in the device's memory, for data that is prepared once, or as many again in each
// call.

class DeviceNumbers {
 public:
  explicit DeviceNumbers(Queue& queue) : queue_(queue) {}
  ~DeviceNumbers() { queue_.release(memory_); }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

  /// Call at most once.
  template <class T>
  void set(const std::vector<T>& numbers) {
    const std::size_t bytes = numbers.size() * sizeof(T);
    memory_ = queue_.allocate(bytes);
    queue_.copy(numbers.data(), MemorySpace::kHost, memory_, MemorySpace::kCuda, bytes);
  }
  /// As many numbers as before.
  template <class T>
  void update(const std::vector<T>& numbers) {
    queue_.copy(numbers.data(), MemorySpace::kHost, memory_, MemorySpace::kCuda, numbers.size() * sizeof(T));
  }
  template <class T>
  const T* at() const {
    return static_cast<const T*>(memory_);
  }

 private:
  Queue& queue_;
  void* memory_ = nullptr;
};

/// Streams and events that a device lends to a transport that reaches its memory (tenon/device.hpp).
/// Emulated, everything has run before a call returns.
class Streams final : public DeviceStreams, public DeviceEvents {
 public:
  /// `index`: the queue's device.
  Streams(Queue& queue, int index) : queue_(queue), index_(index) {}

  void make_current() override;
  std::string identity() override;
  void* stream() override { return queue_.stream(); }
  void* make_stream() override;
  void release_stream(void* stream) noexcept override;
  void* make_event() override;
  void release_event(void* event) noexcept override;
  void record(void* event, void* stream) override;
  void wait(void* event, void* stream) override;
  bool reached(void* event) override;

 private:
  Queue& queue_;
  int index_;
};

}  // namespace tenon::cuda
