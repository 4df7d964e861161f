#include "subject.hpp"

namespace tenon::conformance {

std::span<const Check> model_checks() {
  return {};
}

}  // namespace tenon::conformance
