// For tests: how often Tenon's own objects asked the heap for memory while a call ran. What oneDNN and OpenMP
// take for themselves is not counted.
#pragma once

#include <functional>

namespace tenon::testing {

int own_allocations(const std::function<void()>& call);

}  // namespace tenon::testing
