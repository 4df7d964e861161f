// The shrinker against planted predicates: it finds the smallest run that fails, and never takes another
// failure for the one it was given.
#include "fuzz/shrink.hpp"

#include "fuzz/judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::fuzz::shrink_test {
namespace {

Value parsed(const char* toml) {
  return Config::parse(toml, "x.toml", {}).root();
}

constexpr const char* kRun = R"(
[run]
steps = 8
seed = 7
[sync]
type = "diloco"
interval = 4
inner = {type = "x", deep = [1, 2, 3]}
[precision]
type = "fp8"
head = true
[[observe]]
type = "csv"
[[observe]]
type = "health"
)";

const Value* at(const Value& root, const char* table, const char* key) {
  const Value* const found = root.find(table);
  return found == nullptr ? nullptr : found->find(key);
}

TEST(Shrink, EndsWithTheSmallestRunThatFails) {
  int tries = 0;
  const Value small =
      shrink(parsed(kRun), {.failure = "crash",
                            .judge =
                                [&](const Value& root) {
                                  ++tries;
                                  const Value* const steps = at(root, "run", "steps");
                                  const Value* const head = at(root, "precision", "head");
                                  return steps != nullptr && steps->integer() >= 3 && head != nullptr
                                             ? std::string("crash")
                                             : std::string();
                                },
                            .goes_on = [] { return true; }});
  EXPECT_EQ(small, parsed("[run]\nsteps = 4\n[precision]\nhead = true\n")) << to_toml(small, false);
  EXPECT_LT(tries, 120);
  EXPECT_LE(lines_of(small), 6u);
}

TEST(Shrink, DoesNotChangeTheFailure) {
  // Without [sync] a run fails, too, but for another reason.
  const Value small = shrink(parsed(kRun), {.failure = "repetition",
                                            .judge =
                                                [](const Value& root) {
                                                  return root.find("sync") == nullptr
                                                             ? std::string("check")
                                                             : std::string("repetition");
                                                },
                                            .goes_on = [] { return true; }});
  EXPECT_EQ(small, parsed("[sync]\n"));
}

TEST(Shrink, RunsThatEndFailAlikeByTheirWords) {
  const auto kind = [](const char* identity, const char* text) {
    return failure_kind({.identity = identity, .text = text, .commands = {}, .other = ""});
  };
  EXPECT_EQ(kind("trains", "status 1: rank 3: '/tmp/a/b' is late"),
            kind("trains", "status 1: rank 0: '/tmp/c' is late"));
  EXPECT_NE(kind("trains", "status 1: rank 3 is late"), kind("trains", "status 1: rank 3 is lost"));
  EXPECT_EQ(kind("repetition", "expected 1f, found a0"), kind("repetition", "expected ff, found ab"));
  EXPECT_NE(kind("repetition", ""), kind("trains", ""));
}

TEST(Shrink, TakesASmallerModelWhereThatFailsAlike) {
  const char* const large =
      "[data]\ntype = \"a\"\nrows = 4\n[model]\ntype = \"b\"\nwidth = 8\n[sync]\ntype = \"c\"\n";
  const auto shrunk = [&](const char* needed) {
    return shrink(
        parsed(large),
        {.failure = "crash",
         .judge =
             [&](const Value& root) {
               // A model needs its data, with all of their keys.
               const Value* const rows = at(root, "data", "rows");
               const Value* const type = at(root, "model", "type");
               const bool whole = type != nullptr && (type->text() == "small" || rows != nullptr);
               return std::string(whole && at(root, needed, "type") != nullptr ? "crash" : "");
             },
         .goes_on = [] { return true; },
         .models = {parsed("[data]\n[model]\ntype = \"small\"\n"),
                    parsed("[data]\ntype = \"long\"\na = 1\nb = 2\nc = 3\n[model]\ntype = \"small\"\n")}});
  };
  EXPECT_EQ(shrunk("sync"), parsed("[model]\ntype = \"small\"\n[sync]\ntype = \"c\"\n"));
  EXPECT_EQ(shrunk("data"), parsed("[data]\ntype = \"a\"\nrows = 1\n[model]\ntype = \"b\"\n"));
}

TEST(Shrink, TakesASmallerModelOnceNothingNamesTheLargerOne) {
  const Value small =
      shrink(parsed("[data]\ntype = \"a\"\nrows = 4\n[model]\ntype = \"b\"\n[train]\nnode = \"b.act\"\n"),
             {.failure = "crash",
              .judge =
                  [](const Value& root) {
                    const Value* const type = at(root, "model", "type");
                    if (type == nullptr) return std::string();
                    const bool small_one = type->text() == "small";
                    // The larger model needs its data; its node is in no other model.
                    const bool sound = small_one ? at(root, "train", "node") == nullptr
                                                 : at(root, "data", "rows") != nullptr;
                    return std::string(sound ? "crash" : "");
                  },
              .goes_on = [] { return true; },
              .models = {parsed("[data]\n[model]\ntype = \"small\"\n")}});
  EXPECT_EQ(small, parsed("[model]\ntype = \"small\"\n"));
}

TEST(Shrink, KeepsTheBestWhenTimeIsOver) {
  int left = 3;
  const Value small = shrink(parsed(kRun), {.failure = "crash",
                                            .judge = [](const Value&) { return std::string("crash"); },
                                            .goes_on = [&] { return left-- > 0; }});
  EXPECT_EQ(small.table().size(), 1u);
  EXPECT_THAT(smaller(small), ::testing::Not(::testing::IsEmpty()));
}

TEST(Shrink, SmallerFormsLeaveOutHalveAndNeverAdd) {
  const Value root = parsed("a = 9\nb = [1, {c = -8}]\n");
  std::vector<std::string> texts;
  for (const Value& form : smaller(root)) texts.push_back(form.inline_toml());
  EXPECT_THAT(texts, ::testing::UnorderedElementsAre(parsed("b = [1, {c = -8}]\n").inline_toml(),
                                                     parsed("a = 9\n").inline_toml(),
                                                     parsed("a = 9\nb = [{c = -8}]\n").inline_toml(),
                                                     parsed("a = 9\nb = [1]\n").inline_toml(),
                                                     parsed("a = 9\nb = [1, {}]\n").inline_toml(),
                                                     parsed("a = 4\nb = [1, {c = -8}]\n").inline_toml(),
                                                     parsed("a = 9\nb = [1, {c = -4}]\n").inline_toml()));
}

}  // namespace
}  // namespace tenon::fuzz::shrink_test
