// Homes of the abstract classes of <tenon/transport.hpp>, <tenon/clock.hpp> and
// <tenon/control.hpp>: their virtual tables and type information live in the core, so that every plugin
// shares one copy.
#include <tenon/clock.hpp>
#include <tenon/control.hpp>
#include <tenon/device.hpp>
#include <tenon/transport.hpp>

#include <array>

TENON_ABI_BEGIN

Clock::~Clock() = default;
ControlPlane::~ControlPlane() = default;
Communicator::~Communicator() = default;
CommunicatorDecorator::~CommunicatorDecorator() = default;
Transport::~Transport() = default;
Rendezvous::~Rendezvous() = default;
NotRepeatable::~NotRepeatable() = default;
DeviceTransport::~DeviceTransport() = default;
DeviceStreams::~DeviceStreams() = default;
DeviceEvents::~DeviceEvents() = default;

std::string_view purpose_name(Purpose purpose) noexcept {
  constexpr std::array<std::string_view, kPurposes> kNames = {
      "gradient", "parameter", "model", "state", "statistics", "actor", "recovery", "control"};
  const auto index = static_cast<std::size_t>(purpose);
  return index < kNames.size() ? kNames[index] : "unknown";
}

TENON_ABI_END
