#include "subject.hpp"

namespace tenon::conformance {

std::span<const Check> transport_checks() {
  return {};
}

}  // namespace tenon::conformance
