#include "subject.hpp"

namespace tenon::conformance {

std::span<const Check> recovery_checks() {
  return {};
}

}  // namespace tenon::conformance
