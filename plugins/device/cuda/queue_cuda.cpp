// Queue on the CUDA runtime: a pool of device memory that keeps what was freed, pinned buffers for transfers
// of the host's own memory, one stream.
#include "common.hpp"
#include "queue.hpp"
#include "visible_devices.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <tenon/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace tenon::cuda {
namespace {

constexpr std::size_t kPiece = std::size_t{8} << 20;
constexpr int kPieces = 2;

std::string text_of(cudaError_t code) {
  return fmt::format("{} ({})", cudaGetErrorString(code), cudaGetErrorName(code));
}

/// Errors from which the device does not recover within this process.
bool ends_the_device(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
      return true;
    default:
      return false;
  }
}

cudaMemcpyKind direction(MemorySpace from, MemorySpace to) {
  if (from == MemorySpace::kHost)
    return to == MemorySpace::kHost ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
  return to == MemorySpace::kHost ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

}  // namespace

struct Queue::State {
  int index = 0;
  cudaStream_t stream = nullptr;
  cudaMemPool_t pool = nullptr;
  std::byte* pinned[kPieces] = {nullptr, nullptr};
  cudaEvent_t taken[kPieces] = {nullptr, nullptr};  ///< the piece has left the pinned buffer
  std::mutex staging;                               ///< held by the user of the pinned buffers
  std::string lost;                                 ///< why the device is dead; "" = it lives
};

// Only emulated launches open memory.
Queue::Access::Access(Queue& queue) : queue_(queue) {}
Queue::Access::~Access() = default;

void Queue::check(int code, const char* what) {
  if (!state_->lost.empty()) fail_device_lost(state_->lost);
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) return;
  std::string message = fmt::format("device cuda: {}: {}", what, text_of(error));
  if (ends_the_device(error)) {
    message += fmt::format("; device {} ({}) is lost to this process, which cannot go on with it",
                           state_->index, description_);
    state_->lost = message;
  }
  cudaGetLastError();  // clears errors that are not sticky, or the next call would report them
  if (!state_->lost.empty()) fail_device_lost(message);
  fail_run(message);
}

Queue::Queue(const QueueSpec& spec) : state_(std::make_unique<State>()), tf32_(spec.tf32) {
  state_->index = spec.index;
  check(cudaSetDevice(spec.index), "cudaSetDevice");
  cudaDeviceProp facts{};
  check(cudaGetDeviceProperties(&facts, spec.index), "cudaGetDeviceProperties");
  architecture_ = facts.major * 10 + facts.minor;
  if (const VisibleDevice found{facts.name, architecture_}; is_too_old(found))
    fail_config(fmt::format("device cuda: {}", too_old(spec.index, found)));
  description_ = fmt::format("{}, sm_{}, {:.0f} GiB", facts.name, architecture_,
                             static_cast<double>(facts.totalGlobalMem) / (std::int64_t{1} << 30));
  // The priority of a stream that is made without one is the lowest, which is that of background work.
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&state_->stream, cudaStreamNonBlocking,
                                     spec.background ? least : std::max(greatest, least - 1)),
        "cudaStreamCreateWithPriority");
  stream_ = state_->stream;
  check(cudaDeviceGetDefaultMemPool(&state_->pool, spec.index), "cudaDeviceGetDefaultMemPool");
  std::uint64_t keep = ~std::uint64_t{0};
  check(cudaMemPoolSetAttribute(state_->pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "cudaMemPoolSetAttribute");
  for (int i = 0; i < kPieces; ++i) {
    check(cudaMallocHost(reinterpret_cast<void**>(&state_->pinned[i]), kPiece), "cudaMallocHost");
    check(cudaEventCreateWithFlags(&state_->taken[i], cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  scratch_ = allocate(kScratchBytes);
}

Queue::~Queue() {
  // Nothing can be reported from here, and a dead device reports everything.
  cudaSetDevice(state_->index);
  if (scratch_ != nullptr) cudaFreeAsync(scratch_, state_->stream);
  if (state_->stream != nullptr) cudaStreamSynchronize(state_->stream);
  for (int i = 0; i < kPieces; ++i) {
    if (state_->taken[i] != nullptr) cudaEventDestroy(state_->taken[i]);
    if (state_->pinned[i] != nullptr) cudaFreeHost(state_->pinned[i]);
  }
  if (state_->stream != nullptr) cudaStreamDestroy(state_->stream);
}

void* Queue::allocate(std::size_t bytes) {
  make_current();
  void* memory = nullptr;
  const std::size_t size = bytes == 0 ? 1 : bytes;
  const cudaError_t code = cudaMallocAsync(&memory, size, state_->stream);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    refuse_memory(bytes, free, total, text_of(code));
  }
  check(code, "cudaMallocAsync");
  check(cudaMemsetAsync(memory, 0, size, state_->stream), "cudaMemsetAsync");
  return memory;
}

void Queue::release(void* memory) noexcept {
  if (memory == nullptr || !state_->lost.empty()) return;
  cudaSetDevice(state_->index);
  cudaFreeAsync(memory, state_->stream);
}

void Queue::copy(const void* from, MemorySpace from_space, void* to, MemorySpace to_space,
                 std::size_t bytes) {
  if (bytes == 0 || from == to) return;
  make_current();
  const bool leaves = from_space == MemorySpace::kHost, comes = to_space == MemorySpace::kHost;
  if (leaves == comes) {
    check(cudaMemcpyAsync(to, from, bytes, direction(from_space, to_space), state_->stream),
          "cudaMemcpyAsync");
    if (leaves) synchronize();
    return;
  }
  const std::lock_guard lock(state_->staging);
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const std::size_t pieces = (bytes + kPiece - 1) / kPiece;
  const auto size_of = [&](std::size_t piece) { return std::min(kPiece, bytes - piece * kPiece); };
  // One piece travels while the host copies the other.
  for (std::size_t turn = 0; turn < pieces + (comes ? 1 : 0); ++turn) {
    const std::size_t slot = turn % kPieces;
    if (turn < pieces && leaves) {
      check(cudaEventSynchronize(state_->taken[slot]), "cudaEventSynchronize");
      std::memcpy(state_->pinned[slot], source + turn * kPiece, size_of(turn));
      check(cudaMemcpyAsync(target + turn * kPiece, state_->pinned[slot], size_of(turn),
                            cudaMemcpyHostToDevice, state_->stream),
            "cudaMemcpyAsync");
    } else if (turn < pieces) {
      check(cudaMemcpyAsync(state_->pinned[slot], source + turn * kPiece, size_of(turn),
                            cudaMemcpyDeviceToHost, state_->stream),
            "cudaMemcpyAsync");
    }
    if (turn < pieces) check(cudaEventRecord(state_->taken[slot], state_->stream), "cudaEventRecord");
    if (comes && turn > 0) {
      const std::size_t done = turn - 1;
      check(cudaEventSynchronize(state_->taken[done % kPieces]), "cudaEventSynchronize");
      std::memcpy(target + done * kPiece, state_->pinned[done % kPieces], size_of(done));
    }
  }
}

void Queue::clear(void* memory, std::size_t bytes) {
  if (bytes == 0) return;
  make_current();
  check(cudaMemsetAsync(memory, 0, bytes, state_->stream), "cudaMemsetAsync");
}

void Queue::make_current() {
  check(cudaSetDevice(state_->index), "cudaSetDevice");
}

void Queue::synchronize() {
  check(cudaStreamSynchronize(state_->stream), "waiting for the device");
}

namespace {

std::string version_text(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

/// Devices whose facts the driver reports; the others report errors when they are opened.
std::vector<VisibleDevice> visible_devices(int count) {
  std::vector<VisibleDevice> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp facts{};
    if (cudaGetDeviceProperties(&facts, i) == cudaSuccess)
      devices.push_back({facts.name, facts.major * 10 + facts.minor});
  }
  cudaGetLastError();
  return devices;
}

}  // namespace

std::string driver_text() {
  int driver = 0, runtime = 0;
  const bool known = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  cudaRuntimeGetVersion(&runtime);
  cudaGetLastError();
  return known ? fmt::format("CUDA {}, runtime {}", version_text(driver), version_text(runtime))
               : fmt::format("none, runtime {}", version_text(runtime));
}

int usable_devices(std::string& reason) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  reason.clear();
  if (code == cudaSuccess && count > 0) {
    const std::vector<VisibleDevice> devices = visible_devices(count);
    if (!devices.empty()) reason = all_too_old(devices);
    return reason.empty() ? count : 0;
  }
  cudaGetLastError();
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    reason =
        driver == 0
            ? std::string("there is no NVIDIA driver on this machine")
            : fmt::format("the NVIDIA driver knows CUDA {} and this program needs {}; install a newer driver",
                          version_text(driver), version_text(runtime));
  } else if (code == cudaErrorNoDevice || code == cudaSuccess) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    reason = visible != nullptr ? fmt::format("no device is visible: CUDA_VISIBLE_DEVICES is '{}'", visible)
                                : std::string("the driver finds no device");
  } else {
    reason = text_of(code);
  }
  return 0;
}

namespace {

// Streams and events of the CUDA runtime.

cudaStream_t stream_of(void* handle) {
  return static_cast<cudaStream_t>(handle);
}
cudaEvent_t event_of(void* handle) {
  return static_cast<cudaEvent_t>(handle);
}

}  // namespace

void Streams::make_current() {
  queue_.make_current();
}

std::string Streams::identity() {
  cudaDeviceProp facts{};
  queue_.check(cudaGetDeviceProperties(&facts, index_), "cudaGetDeviceProperties");
  std::string uuid = "GPU-";
  for (const char byte : facts.uuid.bytes) uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return fmt::format("{} at {:08x}:{:02x}:{:02x}", uuid, facts.pciDomainID, facts.pciBusID,
                     facts.pciDeviceID);
}

// Priority above that of the operators: a transfer that can go on should not wait for the blocks of a large
// kernel.
void* Streams::make_stream() {
  make_current();
  int least = 0, greatest = 0;
  queue_.check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  queue_.check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
               "cudaStreamCreateWithPriority");
  return stream;
}

void Streams::release_stream(void* stream) noexcept {
  if (stream != nullptr) cudaStreamDestroy(stream_of(stream));
}

void* Streams::make_event() {
  make_current();
  cudaEvent_t event = nullptr;
  queue_.check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

void Streams::release_event(void* event) noexcept {
  if (event != nullptr) cudaEventDestroy(event_of(event));
}

void Streams::record(void* event, void* stream) {
  queue_.check(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
}

void Streams::wait(void* event, void* stream) {
  queue_.check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
}

bool Streams::reached(void* event) {
  const cudaError_t code = cudaEventQuery(event_of(event));
  if (code == cudaErrorNotReady) return false;
  queue_.check(code, "cudaEventQuery");
  return true;
}

}  // namespace tenon::cuda
