// Streams and events that a device lends to a transport that reaches its memory (tenon/device.hpp). Two
// implementations, as of queues: streams_cuda.cpp, and streams_emulated.cpp, where everything has run before
// a call returns.
#pragma once

#include "queue.hpp"

#include <tenon/device.hpp>

#include <memory>

namespace tenon::cuda {

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
