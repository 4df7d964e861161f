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

TENON_ABI_END
