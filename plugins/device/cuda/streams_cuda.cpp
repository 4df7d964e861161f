// Streams and events of the CUDA runtime (streams.hpp).
#include "streams.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

namespace tenon::cuda {
namespace {

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
