// Every precision policy runs stepwise. Where a scale is made from one row, or from a part of it, the logits
// are those of the whole sequence to the bit on reference kernels; where it is made from a whole operand, or
// from rows together, they depend on the pass, since a pass has other rows.
#include "language.hpp"

#include <gtest/gtest.h>

#include <tuple>

namespace tenon::testing::policies_test {
namespace {

struct Policy {
  const char* name;
  const char* type;
  const char* toml;
  bool exact;  ///< N10 to the bit on reference kernels
};
void PrintTo(const Policy& policy, std::ostream* out) {
  *out << policy.name;
}

constexpr Policy kPolicies[] = {
    {"fp32", "fp32", "", true},
    {"fp64", "fp64", "", true},
    {"bf16", "bf16", "", true},
    {"fp16", "fp16", "", true},
    {"fp8_current", "fp8", "recipe = \"current\"\nkeep_first = 0\nkeep_last = 0\n", false},
    {"fp8_delayed", "fp8", "recipe = \"delayed\"\nkeep_first = 0\nkeep_last = 0\n", false},
    {"fp8_block", "fp8", "recipe = \"block\"\nkeep_first = 0\nkeep_last = 0\n", true},
    {"mxfp8", "mxfp8", "keep_first = 0\nkeep_last = 0\n", true},
    {"mxfp4", "mxfp4", "keep_first = 0\nkeep_last = 0\n", true},
    {"nvfp4", "nvfp4", "keep_first = 0\nkeep_last = 0\n", false},
    {"mor", "mor", "keep_first = 0\nkeep_last = 0\n", false},
};

/// The largest difference that the formats of `bench` make to whole sequences.
double rounding_of(LanguageBench& bench, const LanguageCase& model) {
  LanguageBench exact(model, "cpu", "reference", "fp32");
  double worst = 0;
  for (int i = 0; i < 14; ++i) {
    const Sequence text = exact.sequence("policies" + std::to_string(i), kContext);
    const auto found = bench.whole_logits(text), expected = exact.whole_logits(text);
    for (std::size_t at = 0; at < expected.size(); ++at)
      worst = std::max(worst, relative_error(found[at], expected[at]));
  }
  return worst;
}

class Policies : public ::testing::TestWithParam<std::tuple<Policy, const char*>> {};

TEST_P(Policies, N10_HoldsToTheBitExactlyWhereScalesAreOfRows) {
  const auto& [policy, name] = GetParam();
  const LanguageCase& model = language_case(name);
  LanguageBench bench(model, "cpu", "reference", policy.type, policy.toml);
  const double worst = worst_of_random_passes(bench, "policies", 14);
  if (policy.exact) {
    EXPECT_EQ(worst, 0);
    return;
  }
  EXPECT_GT(worst, 0) << "decision 0063 says that this policy depends on the rows of a pass";
  // Both are as far from the logits without rounding as the formats put them.
  EXPECT_LE(worst, 2 * rounding_of(bench, model));
}

INSTANTIATE_TEST_SUITE_P(All, Policies,
                         ::testing::Combine(::testing::ValuesIn(kPolicies),
                                            ::testing::Values("decoder", "hybrid", "hybrid_documents")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace tenon::testing::policies_test
