// Update rules against recorded trajectories (layers.safetensors, optimizers.safetensors).
#pragma once

#include "reference/recorded.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/optimizer_harness.hpp>

#include <gtest/gtest.h>

namespace tenon::testing {

struct RecordedRun {
  const char *name, *options;
  double lr;
  std::vector<const char*> states;
  const char* file = "layers";
};

/// Trajectory and state in float64 and float32, with plain and fast kernels. The gradients come scaled by 1/4
/// and are scaled back as they are read.
inline void expect_recorded(const RecordedRun& run, std::string_view type) {
  constexpr std::int64_t kSteps = 8;
  const Recorded recorded(run.file);
  const std::string prefix = std::string(run.name) + ".";
  const Shape trajectory = recorded.shape(prefix + "w"), shape(trajectory.extents().subspan(1));
  for (const char* kernels : {"reference", "auto"}) {
    Bench bench("cpu", kernels, 1);
    const auto optimizer = bench.make_component<Optimizer>(type, run.options);
    ASSERT_EQ(optimizer->slots().size(), run.states.size());
    for (const auto& [dtype, bound] : {std::pair{DType::kF64, 1e-12}, std::pair{DType::kF32, 2e-6}}) {
      OptimizerHarness harness(*bench.device, *optimizer, dtype, recorded.row(prefix + "w", 0), "w", shape);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        auto gradients = recorded.row(prefix + "g", step);
        for (double& g : gradients) g /= 4;
        harness.step(gradients, run.lr, step + 1, 4.0, true);
        EXPECT_LT(relative_error(harness.weights(), recorded.row(prefix + "w", step + 1)), bound)
            << run.name << " " << kernels << " " << dtype_name(dtype) << " step " << step;
      }
      for (std::size_t i = 0; i < run.states.size(); ++i) {
        EXPECT_LT(relative_error(harness.state(i), recorded.values(prefix + run.states[i])), bound)
            << run.states[i];
      }
    }
  }
}

}  // namespace tenon::testing
