#include "simulate/tasks.hpp"

#include <gtest/gtest.h>

namespace tenon::simulate {
namespace {

TEST(SimulateProgress, Line) {
  EXPECT_EQ(progress_line({.samples = 100}), "sample 0/100 (0.0 %) | ETA -:--");
  EXPECT_EQ(progress_line({.samples = 100, .finished = 12, .settled_here = 12, .seconds = 4}),
            "sample 12/100 (12.0 %) | 3 samples/s | ETA 0:29");
  EXPECT_EQ(progress_line({.samples = 9000, .finished = 900, .failed = 2, .settled_here = 2, .seconds = 2.5}),
            "sample 902/9000 (10.0 %) | 2 failed | 0.8 samples/s | ETA 2:48:43");
}

}  // namespace
}  // namespace tenon::simulate
