// Draws: a composition is a function of its seed and number; every component comes up equally often; values
// are legal by their specs.
#include "fuzz/space.hpp"

#include "fuzz/option_values.hpp"
#include "test_paths.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace tenon::fuzz::space_test {
namespace {

class SpaceTest : public ::testing::Test {
 protected:
  SpaceTest() { registry_.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"}); }
  Space space(std::uint64_t seed, std::vector<std::string> kinds = {}) {
    return Space(registry_, {.seed = seed, .kinds = std::move(kinds), .base = {}, .folder = "/tmp"});
  }
  Registry registry_;
};

TEST_F(SpaceTest, ACompositionDependsOnSeedAndNumberAlone) {
  const Space one = space(7), other = space(7), third = space(8);
  int differing = 0;
  for (const std::uint64_t index : {0u, 1u, 41u, 999u}) {
    for (int attempt = 0; attempt < Space::kAttempts; ++attempt) {
      // In another order, and after other draws.
      other.draw(5, 0);
      const Composition again = other.draw(index, attempt);
      const Composition first = one.draw(index, attempt);
      EXPECT_EQ(to_toml(first.root, false), to_toml(again.root, false)) << index << " " << attempt;
      EXPECT_EQ(one.draw(index, attempt).root, first.root);
      differing += to_toml(third.draw(index, attempt).root, false) == to_toml(first.root, false) ? 0 : 1;
    }
  }
  EXPECT_GT(differing, 20);
}

TEST_F(SpaceTest, EveryComponentOfEveryKindComesUpAsOftenAsTheOthersOfItsKind) {
  const Space drawn = space(1);
  std::map<std::string, int> times;
  for (std::uint64_t index = 0; index < 380; ++index)
    for (const std::string& component : components_of(drawn.draw(index).root, registry_)) ++times[component];
  for (const std::string& component : drawn.components()) {
    // Tiers need row tables and power a source; the others are in every composition.
    const bool is_rare = component.starts_with("tier.") || component.starts_with("power.");
    EXPECT_GE(times[component], is_rare ? 3 : 380 / 18) << component;
  }
  for (const char* const model : {"model.gpt_neo", "model.decoder", "model.dlrm", "model.logistic_regression",
                                  "model.mlp", "model.lenet5", "model.resnet", "model.fno"})
    EXPECT_GE(times[model], 20) << model;
}

TEST_F(SpaceTest, EveryPairOfSyncAndPrecisionComesUp) {
  const Space drawn = space(1);
  std::set<std::pair<std::string, std::string>> pairs;
  for (std::uint64_t index = 0; index < 1500; ++index) {
    const Value root = drawn.draw(index).root;
    pairs.emplace(root.find("sync")->find("type")->text(), root.find("precision")->find("type")->text());
  }
  EXPECT_EQ(pairs.size(), registry_.ids("sync/1").size() * registry_.ids("precision/1").size());
}

TEST_F(SpaceTest, EveryPairOfATierAndAnotherComponentComesUpAndIsKept) {
  const Space drawn = space(1);
  std::set<std::pair<std::string, std::string>> pairs;
  for (std::uint64_t index = 0; index < 1300; ++index) {
    // Others are drawn beside the pair by now.
    const std::set<std::string> found = components_of(drawn.draw(index, 11).root, registry_);
    for (const std::string& one : found)
      for (const std::string& other : found)
        if (one.starts_with("tier.")) pairs.emplace(one, other);
  }
  const std::vector<std::string> all = drawn.components();
  for (const std::string& tier : all) {
    if (!tier.starts_with("tier.")) continue;
    for (const std::string& other : all) {
      if (other.starts_with("tier.")) continue;
      EXPECT_EQ(pairs.count({tier, other}), 1u) << tier << " " << other;
    }
  }
}

TEST_F(SpaceTest, OnlyTheKindsAskedForAreDrawn) {
  const Space drawn = space(1, {"sync"});
  for (std::uint64_t index = 0; index < 20; ++index) {
    const Value root = drawn.draw(index).root;
    EXPECT_NE(root.find("sync"), nullptr);
    EXPECT_EQ(root.find("precision"), nullptr);
    EXPECT_EQ(root.find("observe"), nullptr);
    EXPECT_EQ(root.find("optimizer")->find("type")->text(), "sgd");
  }
  for (const std::string& component : drawn.components())
    EXPECT_TRUE(component.starts_with("sync.")) << component;
}

TEST_F(SpaceTest, MostCompositionsSaveSoThatAResumeShowsSomething) {
  const Space drawn = space(1);
  int saving = 0;
  for (std::uint64_t index = 0; index < 100; ++index) {
    const Value root = drawn.draw(index, Space::kAttempts - 1).root;
    const Value* const recovery = root.find("recovery");
    if (recovery != nullptr && recovery->find("type")->text() != "none") ++saving;
  }
  EXPECT_GT(saving, 65) << "of 100";
}

TEST_F(SpaceTest, AnUnknownKindIsRefused) {
  try {
    space(1, {"synk"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("--kinds: 'synk' is none of device, precision, optimizer"));
  }
}

constexpr const char* kWords[] = {"red", "green", nullptr};
constexpr OptionSpec kSpecs[] = {
    option::integer("narrow", "3").between(2, 5),
    option::integer("wide", nullptr).between(0, 1e18),
    option::integer("begin", "1000").at_least(0).in_unit("slots"),
    option::integer("piece", "0").at_least(0).in_unit("byte"),
    option::real("share", "0.5").between(0, 1),
    option::real("open", "1e-3").at_least(0),
    option::real("wait", "60").at_least(0).in_unit("s"),
    option::text("word", "'red'").one_of(kWords),
    option::integers("three", nullptr).between(1, 9).length(3),
    option::reals("betas", "[0.9, 0.999]").between(0, 0.9999999).length(2),
    option::boolean("flag", "false"),
};

TEST_F(SpaceTest, ValuesAreLegalByTheirSpecsAndReachTheEdges) {
  Draws draws(3, "values", 0);
  OptionRequest request{.registry = registry_, .draws = draws};
  std::set<std::int64_t> narrow, pieces;
  std::set<double> share;
  for (int i = 0; i < 400; ++i) {
    Value table;
    for (const OptionSpec& spec : kSpecs) {
      const std::optional<Value> value = draw_value(spec, request);
      ASSERT_TRUE(value) << spec.name;
      table.set(spec.name, *value, {});
    }
    EXPECT_NO_THROW(resolve_options({.table = table, .owner = "values", .specs = option_list(kSpecs)}))
        << to_toml(table, false);
    narrow.insert(table.find("narrow")->integer());
    share.insert(table.find("share")->real());
    EXPECT_LE(table.find("wide")->integer(), 64);
    pieces.insert(table.find("piece")->integer());
    EXPECT_LE(table.find("begin")->integer(), 8) << "later nothing would begin in a run of a few slots";
    EXPECT_LE(table.find("wait")->real(), 0.01);
  }
  EXPECT_EQ(narrow, (std::set<std::int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(pieces.count(0), 1u);
  EXPECT_GT(*pieces.upper_bound(0), 500);  // a tensor of thousands of numbers is a few messages
  EXPECT_GT(pieces.size(), 5u);
  EXPECT_EQ(share.count(0), 1u);
  EXPECT_EQ(share.count(1), 1u);
  EXPECT_GT(share.size(), 10u);
}

TEST_F(SpaceTest, NamesOfInnerComponentsAreFound) {
  const Value root = Config::parse(
                         "[optimizer]\ntype = 'muon'\ninner = {type = 'sgd'}\n[[observe]]\ntype = 'csv'\n"
                         "[[tables.place]]\nmatch = '*'\ntier = {type = 'cached', front = {type = 'dram'}}\n",
                         "x", {})
                         .root();
  EXPECT_THAT(components_of(root, registry_),
              ::testing::UnorderedElementsAre("optimizer.muon", "optimizer.sgd", "observer.csv",
                                              "tier.cached", "tier.dram"));
}

}  // namespace
}  // namespace tenon::fuzz::space_test
