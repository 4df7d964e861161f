// Address of the control plane, and the token by which processes of one run recognise each other.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <string>

TENON_ABI_BEGIN

struct ControlEndpoint {
  std::string host;
  std::uint16_t port = 0;
};

/// Parses "HOST:PORT". Throws Error(kConfig) for anything else.
ControlEndpoint control_endpoint(const std::string& text);
/// 16 random hexadecimal digits.
std::string random_control_token();

TENON_ABI_END
