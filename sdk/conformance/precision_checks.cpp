#include "subject.hpp"

namespace tenon::conformance {

std::span<const Check> precision_checks() {
  return {};
}

}  // namespace tenon::conformance
