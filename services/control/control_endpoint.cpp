// Endpoints and tokens (control_endpoint.hpp).
#include "control/control_endpoint.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <random>

TENON_ABI_BEGIN

ControlEndpoint control_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  const int port = colon == std::string::npos ? 0 : std::atoi(text.c_str() + colon + 1);
  if (port < 1 || port > 65535) {
    fail_config(fmt::format("control plane: '{}' is not HOST:PORT, e.g. 10.0.0.1:29500", text));
  }
  return {text.substr(0, colon), static_cast<std::uint16_t>(port)};
}

std::string random_control_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

TENON_ABI_END
