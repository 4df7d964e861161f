// Facts about the machine that this device reports: whether a GPU can be used, the driver and the libraries,
// and whether the operators that it offers compute correctly.
#pragma once

#include <tenon/device.hpp>

#include <string>

namespace tenon::cuda {

class CudaFacts final : public DeviceAvailability, public ComponentFacts {
 public:
  /// `device` may be closed; report() then probes no operator.
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
