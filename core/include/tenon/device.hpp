// Memory and operators of one kind of processor. A device offers its operators as small families, each asked
// for by id through query(); layers that need an absent family are refused at check.
#pragma once

#include <tenon/abi.hpp>
#include <tenon/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// Settings that open() passes to a device.
struct DeviceSpec {
  int local_rank = 0;
  int threads = 1;           ///< of this rank
  std::string_view kernels;  ///< [device] kernels: "auto", or a name of kernel_choices()
};

/// Operators act on views in this device's memory space, complete before they return (CPU) or in stream order
/// (accelerators), allocate nothing after preparation, and give the same bits for the same arguments, kernel
/// choice and thread count. Several threads may use one device when each uses its own plans.
class Device {
 public:
  using Interface = Device;
  static constexpr const char* kKind = "device/1";
  virtual ~Device();
  virtual void open(const DeviceSpec& spec) = 0;
  virtual MemorySpace space() const = 0;
  /// 64-byte aligned, zero-filled; throws Error(kRun) with size and what was free.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory, std::size_t bytes) noexcept = 0;
  virtual void copy(TensorView from,
                    TensorView to) = 0;  ///< same shape and dtype; between host and device too
  virtual void synchronize() = 0;
  /// Kernel set in use and the processor's features, for the manifest, e.g. "avx512" and "avx2 avx512
  /// amx_bf16".
  virtual std::string_view kernel_choice() const = 0;
  virtual std::string_view features() const = 0;
  /// Operator family by id; null when absent.
  virtual void* query(std::string_view interface_id) = 0;

  /// Family as its interface, e.g. device.family<Blas>(); throws Error(kConfig) that names device and family.
  template <typename Family>
  Family& family() {
    return *static_cast<Family*>(require(Family::kId));
  }

 private:
  void* require(std::string_view interface_id);
};

/// Whether a device can be used. The device need not be open.
class DeviceAvailability {
 public:
  static constexpr const char* kId = "tenon.device.availability/1";
  virtual ~DeviceAvailability();
  /// Among devices that can be used "auto" takes the highest; 0: only a configuration that names it does.
  virtual int preference() const = 0;
  /// Returns how many ranks of this machine can have a device each; 0 = it cannot be used now.
  virtual int usable() const = 0;
  /// Returns why it cannot be used, and what to do; "" where it can. Valid as long as the object.
  virtual std::string_view reason() const = 0;
};

/// Receives facts. Texts are read before a call returns.
class FactReport {
 public:
  virtual ~FactReport();
  /// "driver", "CUDA 13.0".
  virtual void fact(std::string_view name, std::string_view value) = 0;
  /// Reports whether a claim of the component holds, from a computation compared with numbers of the host.
  /// `text`: how it was compared, or what went wrong.
  virtual void probe(std::string_view claim, bool holds, std::string_view text) = 0;
};

/// Offered by any component. A device is asked once it is open, or unopened where it cannot be used.
class ComponentFacts {
 public:
  static constexpr const char* kId = "tenon.facts/1";
  virtual ~ComponentFacts();
  virtual void report(FactReport& report) = 0;
};

/// Offered through query(kId) by a device whose operators run in stream order. Handles are those of the
/// device's own library (cudaStream_t); null is a valid handle. Any thread.
class DeviceStreams {
 public:
  static constexpr const char* kId = "tenon.device.stream/1";
  virtual ~DeviceStreams();
  /// Makes this the device of later calls of other libraries by this thread.
  virtual void make_current() = 0;
  /// Returns the UUID and the place on the bus: equal for two ranks, of any machines, exactly if they share
  /// one device.
  virtual std::string identity() = 0;
  /// Returns the stream in which the device's operators run.
  virtual void* stream() = 0;
  /// Makes another stream.
  virtual void* make_stream() = 0;
  virtual void release_stream(void* stream) noexcept = 0;
};

/// Events in streams (cudaEvent_t), offered through query(kId) by a device that has DeviceStreams. Any
/// thread.
class DeviceEvents {
 public:
  static constexpr const char* kId = "tenon.device.event/1";
  virtual ~DeviceEvents();
  virtual void* make_event() = 0;
  virtual void release_event(void* event) noexcept = 0;
  /// The event completes when all work submitted to `stream` so far has run.
  virtual void record(void* event, void* stream) = 0;
  /// Work submitted to `stream` from here on waits for the event.
  virtual void wait(void* event, void* stream) = 0;
  /// Whether the event has completed. Throws Error(kDeviceLost) when the device is lost.
  virtual bool reached(void* event) = 0;
};

// Tensors of a device for code that runs on the host: the tensor itself where the device's memory is the
// host's, and otherwise a copy. Such code does the same on every device, but costs two transfers where there
// is a copy: use it for what is small, rare, or has no operator.

/// Memory for one tensor at a time, kept for the next: a steady step allocates nothing. One thread.
class HostStage {
 public:
  /// Returns the elements of `view`; valid until the next call of read() or room().
  TensorView read(Device& device, const TensorView& view) {
    const TensorView here = room(view);
    if (here.data != view.data && view.elements() > 0) {
      device.copy(view, here);
      device.synchronize();
    }
    return here;
  }
  /// Returns room for as many elements, with unspecified values.
  TensorView room(const TensorView& view) {
    if (view.space == MemorySpace::kHost) return view;
    const std::size_t bytes = view.bytes();
    if (memory_.size() * sizeof(Line) < bytes) memory_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
    return {memory_.data(), view.shape, view.dtype, MemorySpace::kHost};
  }
  /// Copies the current content of what read() or room() returned for `view` to the device.
  void write(Device& device, const TensorView& view) {
    if (view.space == MemorySpace::kHost || view.elements() == 0) return;
    device.copy({memory_.data(), view.shape, view.dtype, MemorySpace::kHost}, view);
    device.synchronize();
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory_;
};

TENON_ABI_END
