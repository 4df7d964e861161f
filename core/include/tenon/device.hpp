// Memory and operators of one kind of processor. A device offers its operators as small families, each asked
// for by id through query(); a family that is absent makes the layers that need it be refused at check.
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

/// What the core tells a device before anything else.
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
  /// How many ranks of this machine can have one each; 0 = it cannot be used now.
  virtual int usable() const = 0;
  /// Why it cannot be used, and what to do; "" where it can. Valid as long as the object.
  virtual std::string_view reason() const = 0;
};

/// Where facts go. Texts are read before a call returns.
class FactReport {
 public:
  virtual ~FactReport();
  /// "driver", "CUDA 13.0".
  virtual void fact(std::string_view name, std::string_view value) = 0;
  /// Something that the component claims, and what came of trying it: computed, and compared with numbers of
  /// the host. `text`: how it was compared, or what went wrong.
  virtual void probe(std::string_view claim, bool holds, std::string_view text) = 0;
};

/// Of any component; a device is asked once it is open, or, where it cannot be used, without that.
class ComponentFacts {
 public:
  static constexpr const char* kId = "tenon.facts/1";
  virtual ~ComponentFacts();
  virtual void report(FactReport& report) = 0;
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

// Tensors of a device for code that runs on the host: the tensor itself where the device's memory is the
// host's, and otherwise a copy. What such code does is the same on every device; beyond the host it costs two
// transfers, so it is for what is small, rare, or has no operator.

/// Memory for one tensor at a time, kept for the next: a steady step asks the heap for nothing. Of one
/// thread.
class HostStage {
 public:
  /// The elements of `view`; valid until the next call of read() or room().
  TensorView read(Device& device, const TensorView& view) {
    const TensorView here = room(view);
    if (here.data != view.data && view.elements() > 0) {
      device.copy(view, here);
      device.synchronize();
    }
    return here;
  }
  /// As many elements, of any value.
  TensorView room(const TensorView& view) {
    if (view.space == MemorySpace::kHost) return view;
    const auto bytes = static_cast<std::size_t>(view.bytes());
    if (memory_.size() * sizeof(Line) < bytes) memory_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
    return {memory_.data(), view.shape, view.dtype, MemorySpace::kHost};
  }
  /// What read() or room() gave for `view`, as it is now, back to the device.
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
