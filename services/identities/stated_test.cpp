// Texts that are no identity are refused with what is wrong, and the sides of a good one differ in what it
// says and nothing else. Weights within bounds are compared by tests/matrix, which trains.
#include "identities/stated.hpp"

#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sync.hpp>
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tenon::identities {
namespace {

using ::testing::HasSubstr;

constexpr Identity kGood{.why = "nothing is nothing",
                         .options = "factor = 0.0",
                         .other = "type = 'stating'\nfactor = 0.0\nwhich = 1",
                         .given = "schedule.type = 'constant'"};

constexpr Identity with(std::string_view options, std::string_view other = kGood.other,
                        std::string_view given = kGood.given, double bound = 0) {
  return {.why = "a reason", .options = options, .other = other, .given = given, .within = bound};
}

constexpr Identity kStatements[] = {
    kGood,
    {.why = "", .options = kGood.options, .other = kGood.other},
    with("factor = = 1"),
    with("faktor = 1.0"),
    with("type = 'stating'"),
    with(kGood.options, "factor = 1.0"),
    with(kGood.options, "type = 'steting'"),
    with(kGood.options, "type = 'stating'\nwhich = 'two'"),
    with(kGood.options, kGood.other, "optimiser.lr = 0.1"),
    with(kGood.options, kGood.other, "", std::numeric_limits<double>::infinity()),
    with(kGood.options, kGood.other, "", -1e-9),
    with("factor = 0.5", "type = 'stating'"),
};

class StatingOne final : public OptimizerBase, private ComponentIdentities {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "0.1").doc_text("rate"), option::real("factor", "0.5").doc_text("of the step"),
      option::integer("which", "0").doc_text("statement"), option::boolean("silent", "false").doc_text("")};
  static constexpr ComponentInfo kInfo{
      .id = "stating", .summary = "states one identity", .options = kOptions};
  explicit StatingOne(const Options& options)
      : OptimizerBase(options), which_(options.integer("which")), silent_(options.boolean("silent")) {}
  void step(const UpdateContext&, const ParameterSlice&) override {}
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId && !silent_ ? static_cast<ComponentIdentities*>(this) : nullptr;
  }

 private:
  std::span<const Identity> identities() const override { return {kStatements + which_, 1}; }
  std::int64_t which_;
  bool silent_;
};

class BoundedRecovery final : public RecoveryBase, private IdentitiesOf<BoundedRecovery> {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("every", "1").doc_text("slots")};
  static constexpr ComponentInfo kInfo{.id = "bounded", .summary = "rounds weights", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "nearly", .options = "every = 2", .other = "type = 'bounded'", .within = 1e-6}};
  explicit BoundedRecovery(const Options&) {}
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }
};

class PlainSync final : public SyncBase, private IdentitiesOf<PlainSync> {
 public:
  static constexpr ComponentInfo kInfo{.id = "plain", .summary = "states"};
  static constexpr Identity kIdentities[] = {
      {.why = "of the inner one alone", .options = "", .other = "type = 'around'\ninner = {type = 'plain'}"}};
  explicit PlainSync(const Options&) {}
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }
};

class AroundSync final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::component("inner", "sync/1").mandatory().doc_text("strategy")};
  static constexpr ComponentInfo kInfo{.id = "around", .summary = "states nothing", .options = kOptions};
  explicit AroundSync(const Options& options) : SyncDecorator(options.component<Sync>("inner")) {}
};

TENON_STATIC_PLUGIN(stating_plugin,
                    PluginInfo{.id = "test.stating", .version = "1.0.0", .summary = "states identities"},
                    StatingOne, BoundedRecovery, PlainSync, AroundSync)

class StatedTest : public ::testing::Test {
 protected:
  StatedTest() { registry_.add_builtin(stating_plugin); }
  std::vector<Stated> stated(std::string_view kind, std::string_view toml) {
    return stated_by(registry_, host_, kind, Config::parse(toml, "test", {}).root());
  }
  std::string refusal(std::string_view kind, std::string_view toml) {
    try {
      stated(kind, toml);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  Registry registry_;
  testing::QuietHost host_;
};

TEST_F(StatedTest, ReadsWhatAComponentStates) {
  const std::vector<Stated> all = stated("optimizer/1", "type = 'stating'");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].why, "nothing is nothing");
  EXPECT_EQ(all[0].own.inline_toml(), "{type = \"stating\", factor = 0.0}");
  EXPECT_EQ(all[0].within, 0);
  EXPECT_TRUE(stated("optimizer/1", "type = 'stating'\nsilent = true").empty());
}

TEST_F(StatedTest, FillsInWhatAComponentNeeds) {
  EXPECT_EQ(needed_options(registry_, "sync/1", "around").inline_toml(),
            "{type = \"around\", inner = {type = \"plain\"}}");
  EXPECT_EQ(needed_options(registry_, "optimizer/1", "stating").inline_toml(), "{type = \"stating\"}");
}

TEST_F(StatedTest, TakesKeysOfTheCore) {
  EXPECT_EQ(stated("sync/1", "type = 'plain'\nbuffers = 'local'").size(), 1u);
}

TEST_F(StatedTest, RefusesTextsThatAreNoIdentity) {
  constexpr const char* kTexts[] = {
      "",
      "'why' is empty",
      "'options' is no TOML",
      "has no option 'faktor'",
      "'options' has a type",
      "'other' has no type",
      "steting",
      "'which'",
      "'given' has 'optimiser'",
      "'within' is inf",
      "'within' is -1e-09",
      "a run is not compared with itself",
  };
  static_assert(std::size(kTexts) == std::size(kStatements));
  for (std::size_t i = 1; i < std::size(kTexts); ++i) {
    const std::string text = refusal("optimizer/1", "type = 'stating'\nwhich = " + std::to_string(i));
    EXPECT_THAT(text, HasSubstr(kTexts[i]));
    EXPECT_THAT(text, HasSubstr("identity 1 of optimizer.stating in plugin test.stating"));
  }
  EXPECT_THAT(refusal("recovery/1", "type = 'bounded'"), HasSubstr("no recovery may change a weight"));
}

TEST_F(StatedTest, ADecoratorDoesNotAnswerForItsInner) {
  EXPECT_EQ(stated("sync/1", "type = 'plain'").size(), 1u);
  EXPECT_TRUE(stated("sync/1", "type = 'around'\ninner = {type = 'plain'}").empty());
}

Stated example(std::string_view given, double within) {
  const auto table = [](std::string_view text) { return Config::parse(text, "test", {}).root(); };
  return {.why = "why",
          .own = table("type = 'a'\nx = 1"),
          .other = table("type = 'b'"),
          .given = table(given),
          .within = within};
}

TEST(SidesOfAnIdentity, DifferInTheTableAlone) {
  const Config base = Config::parse(
      "[run]\nsteps = 8\n[optimizer]\ntype = 'adam'\nbetas = 1\n[sync]\ntype = 'c'\ny = 2\nbuffers = 'local'",
      "base.toml", {});
  const Sides sides = sides_of(base, "sync", example("optimizer.type = 'sgd'\nrun.steps = 4", 0));
  EXPECT_EQ(sides.own.find("sync")->inline_toml(), "{type = \"a\", x = 1, buffers = \"local\"}");
  EXPECT_EQ(sides.other.find("sync")->inline_toml(), "{type = \"b\", buffers = \"local\"}");
  for (const Config* side : {&sides.own, &sides.other}) {
    EXPECT_EQ(side->find("optimizer")->inline_toml(), "{type = \"sgd\"}");
    EXPECT_EQ(side->find("run.steps")->integer(), 4);
    EXPECT_EQ(side->find("recovery"), nullptr);
  }
}

TEST(SidesOfAnIdentity, ReplaceAnInnerTableAndSaveForABound) {
  const Config base = Config::parse("[sync]\ntype = 'c'\ninner = {type = 'd'}", "base.toml", {});
  const Sides sides = sides_of(base, "sync.inner", example("", 1e-9));
  EXPECT_EQ(sides.own.find("sync")->inline_toml(), "{type = \"c\", inner = {type = \"a\", x = 1}}");
  EXPECT_EQ(sides.other.find("sync")->inline_toml(), "{type = \"c\", inner = {type = \"b\"}}");
  EXPECT_EQ(sides.other.find("recovery.type")->text(), "full");
  EXPECT_THROW(sides_of(base, "optimizer.inner", example("", 0)), Error);
}

TEST(DifferenceOfRuns, SaysHowTheyEndedAndWhichWeights) {
  const auto files = make_posix_files();
  RunResult own, other;
  own.status = other.status = "completed";
  own.steps = other.steps = 8;
  own.weights_hash = other.weights_hash = "aa";
  EXPECT_EQ(difference(*files, own, other, 0), "");
  other.weights_hash = "bb";
  EXPECT_THAT(difference(*files, own, other, 0), HasSubstr("weights_hash is aa with its own settings, bb"));
  other.steps = 7;
  EXPECT_THAT(difference(*files, own, other, 0), HasSubstr("8 slots, the other 7"));
  other.status = "failed", other.error = "loss is nan";
  EXPECT_THAT(difference(*files, own, other, 0), HasSubstr("the other table ended as failed: loss is nan"));
}

}  // namespace
}  // namespace tenon::identities
