// For tests: counts heap allocations by Tenon's own objects while a call runs. Those of oneDNN and OpenMP are
// not counted.
#pragma once

#include <functional>

namespace tenon::testing {

int own_allocations(const std::function<void()>& call);

}  // namespace tenon::testing
