// Between transports and devices whose memory is not the host's: a transport that reaches such memory itself
// is told of each rank's device, and a device that orders its work in streams lends them. Where either is
// absent the core moves tensors through host memory, and the transport never sees a device's view.
#pragma once

#include <tenon/abi.hpp>

#include <string>

TENON_ABI_BEGIN

class Device;

/// Of a transport whose communicators take views in a device's memory, by query(kId).
class DeviceTransport {
 public:
  static constexpr const char* kId = "tenon.transport.device/1";
  virtual ~DeviceTransport();
  /// What this machine lacks for it, in words that end a run; "" = nothing. Before connect as well.
  virtual std::string missing() = 0;
  /// By the thread of `world_rank`, once its device is open and before it opens a communicator; again when
  /// the rank is built again, after its communicators are closed. Collective over all ranks of the run. The
  /// device outlives the rank's communicators and may be gone afterwards; the rendezvous of connect is still
  /// there. Throws Error(kConfig) for a device that the transport cannot serve.
  virtual void attach(int world_rank, Device& device) = 0;
};

/// Of a device whose operators run in the order of a stream, by query(kId). Handles are those of the device's
/// own library (cudaStream_t); null is a handle like others. From any thread.
class DeviceStreams {
 public:
  static constexpr const char* kId = "tenon.device.stream/1";
  virtual ~DeviceStreams();
  /// Calls of other libraries by this thread concern this device from here on.
  virtual void make_current() = 0;
  /// Equal for two ranks, of any machines, exactly where they share one device: its UUID and place on the
  /// bus.
  virtual std::string identity() = 0;
  /// In which the device's operators run.
  virtual void* stream() = 0;
  /// One more, beside it.
  virtual void* make_stream() = 0;
  virtual void release_stream(void* stream) noexcept = 0;
};

/// Moments in streams (cudaEvent_t), by query(kId) of a device that has DeviceStreams. From any thread.
class DeviceEvents {
 public:
  static constexpr const char* kId = "tenon.device.event/1";
  virtual ~DeviceEvents();
  virtual void* make_event() = 0;
  virtual void release_event(void* event) noexcept = 0;
  /// The event is when everything that `stream` was given so far has run.
  virtual void record(void* event, void* stream) = 0;
  /// What `stream` is given from here on waits for the event.
  virtual void wait(void* event, void* stream) = 0;
  /// Whether it has come. Throws Error(kRun) when the device is lost.
  virtual bool reached(void* event) = 0;
};

TENON_ABI_END
