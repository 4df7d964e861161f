#include "subject.hpp"

namespace tenon::conformance {

std::span<const Check> sync_checks() {
  return {};
}

}  // namespace tenon::conformance
