// What components say of the machine that they run on: whether a device can be used at all, which `[device]
// type = "auto"` asks, and facts and probes for `tenon doctor`. Both are reached through query() and may be
// absent.
#pragma once

#include <tenon/abi.hpp>

#include <string_view>

TENON_ABI_BEGIN

/// Of a device that need not be open.
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
