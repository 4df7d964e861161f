#include <tenon/options.hpp>

#include <gtest/gtest.h>

namespace tenon {
namespace {

TEST(Pattern, AStarStandsForAnyCharacters) {
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_TRUE(matches_pattern("h.*.mlp.*", "h.11.mlp.c_fc"));
  EXPECT_TRUE(matches_pattern("*fc", "h.0.fc.fc"));
  EXPECT_TRUE(matches_pattern("a*b*c", "a.b.b.c"));
  EXPECT_TRUE(matches_pattern("h**", "h"));
  EXPECT_FALSE(matches_pattern("h.1.*", "h.11.mlp"));
  EXPECT_FALSE(matches_pattern("h.*.attn.*", "h.3.mlp.c_fc"));
}

TEST(Pattern, AQuestionMarkStandsForOneCharacter) {
  EXPECT_TRUE(matches_pattern("h.?.fc", "h.3.fc"));
  EXPECT_TRUE(matches_pattern("*?", "h"));
  EXPECT_FALSE(matches_pattern("h.?.fc", "h.11.fc"));
  EXPECT_FALSE(matches_pattern("*?", ""));
}

TEST(Pattern, OtherCharactersStandForThemselvesAndTheNameIsDescribedAsAWhole) {
  EXPECT_TRUE(matches_pattern("h[0]", "h[0]"));
  EXPECT_FALSE(matches_pattern("fc", "fc2"));
  EXPECT_FALSE(matches_pattern("c", "fc"));
  EXPECT_FALSE(matches_pattern("", "fc"));
}

}  // namespace
}  // namespace tenon
