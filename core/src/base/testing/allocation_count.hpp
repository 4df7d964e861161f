// Counts heap allocations of the calling thread, for tests of "a steady-state step allocates nothing".
// Linking tenon_test_allocations replaces operator new of the whole test program.
#pragma once

#include <cstdint>

namespace tenon::testing {

/// Calls of operator new by this thread since it began.
std::int64_t allocation_count() noexcept;

}  // namespace tenon::testing
