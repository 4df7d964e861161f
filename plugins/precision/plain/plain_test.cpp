// Properties of the plain precisions: dtypes, sites left to the core, and refusal of non-finite updates.
#include <tenon/precision.hpp>
#include <tenon/testing/components.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace tenon::testing {
namespace {

TEST(PlainPrecision, HasTheDtypesOfItsName) {
  QuietHost host;
  Registry registry;
  registry.discover({});
  const std::tuple<const char*, DType, DType> cases[] = {{"fp32", DType::kF32, DType::kF32},
                                                         {"fp64", DType::kF64, DType::kF64},
                                                         {"bf16", DType::kBF16, DType::kF32}};
  for (const auto& [type, activations, parameters] : cases) {
    const auto precision = make<Precision>(registry, host, type, "");
    EXPECT_EQ(precision->activations(), activations) << type;
    EXPECT_EQ(precision->parameters(), parameters) << type;
    EXPECT_EQ(precision->loss_scale(), 1.0) << type;
  }
}

TEST(PlainPrecision, RefusesUpdatesThatAreNotFinite) {
  QuietHost host;
  Registry registry;
  registry.discover({});
  const auto precision = make<Precision>(registry, host, "bf16", "");
  EXPECT_TRUE(precision->after_backward({.slot = 3, .found_non_finite = false, .loss = 1.0}));
  EXPECT_FALSE(precision->after_backward(
      {.slot = 4, .found_non_finite = true, .loss = std::numeric_limits<double>::quiet_NaN()}));
  EXPECT_TRUE(precision->after_backward({.slot = 5, .found_non_finite = false, .loss = 1.0}))
      << "it holds no grudge";
}

}  // namespace
}  // namespace tenon::testing
