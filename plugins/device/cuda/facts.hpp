// What this device says of the machine: whether a GPU can be used, what the driver and the libraries are, and
// whether the operators that it offers compute what they should.
#pragma once

#include <tenon/device.hpp>

#include <string>

namespace tenon::cuda {

class CudaFacts final : public DeviceAvailability, public ComponentFacts {
 public:
  /// `device` may be closed; report() then tries no operator.
  explicit CudaFacts(Device& device) : device_(device) {}

  int preference() const override;
  int usable() const override;
  std::string_view reason() const override;
  void report(FactReport& report) override;

 private:
  Device& device_;
  mutable std::string reason_;
};

}  // namespace tenon::cuda
