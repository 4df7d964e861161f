#include "subject.hpp"

namespace tenon::conformance {

std::span<const Check> layer_checks() {
  return {};
}

}  // namespace tenon::conformance
