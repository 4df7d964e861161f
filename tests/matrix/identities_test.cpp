// Every precision, synchronisation, recovery and optimizer of this tree states when a run with it ends as one
// with something simpler (<tenon/identities.hpp>). Each statement is trained both ways: on a small GPT, and
// where it applies there on a DLRM, whose tables are updated row by row. With TENON_MATRIX=all on every
// model, and again with three replicas, micro-batches and clipping.
#include "cell.hpp"

#include "identities/stated.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/precision.hpp>
#include <tenon/recovery.hpp>
#include <tenon/registry.hpp>
#include <tenon/sync.hpp>
#include <tenon/testing/components.hpp>

namespace tenon::integration::identities_test {
namespace {

using identities::Stated;

struct Stating {
  std::string kind, id;

  std::string table() const { return kind.substr(0, kind.find('/')); }
  std::string name() const { return table() + "_" + id; }
};
void PrintTo(const Stating& stating, std::ostream* out) {
  *out << stating.name();
}

CellRuns& runs() {
  static CellRuns all;
  return all;
}

std::vector<Stating> components() {
  Registry registry;
  registry.discover_only({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  std::vector<Stating> all;
  for (const char* kind : {Precision::kKind, Sync::kKind, Recovery::kKind, Optimizer::kKind}) {
    for (const std::string& id : registry.ids(kind)) all.push_back({kind, id});
  }
  return all;
}

std::vector<Stated> stated(const Stating& stating) {
  Registry& registry = runs().runtime().registry();
  testing::QuietHost host;
  return identities::stated_by(registry, host, stating.kind,
                               identities::needed_options(registry, stating.kind, stating.id));
}

bool everything() {
  const char* const wanted = std::getenv("TENON_MATRIX");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

/// A run of two replicas and eight slots.
Config base_of(const char* model, const std::vector<std::string>& sets = {}) {
  Choices choices{.precision = "type = \"fp32\"\n", .replicas = true, .slots = 8};
  choices.sets = sets;
  return cell_config(model_named(model), choices);
}

std::vector<Config> bases() {
  if (!everything()) return {base_of("gpt_neo"), base_of("dlrm")};
  std::vector<Config> all;
  for (const Model& model : kModels) {
    all.push_back(base_of(model.name));
    all.push_back(base_of(model.name, {"parallel.ranks=3", "run.accumulate=2", "run.clip=0.5"}));
  }
  return all;
}

/// Whether both runs can be built.
bool applies(const identities::Sides& sides) {
  for (const Config* side : {&sides.own, &sides.other}) {
    try {
      runs().runtime().check(*side, nullptr);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      return false;
    }
  }
  return true;
}

RunResult train(const Config& config) {
  static const Scratch scratch;
  static int count = 0;
  TrainRequest request;
  request.run_dir = (scratch / std::to_string(++count)).string();
  request.quiet = true;
  return runs().runtime().train(config, request);
}

std::string difference(const identities::Sides& sides, double within) {
  const auto files = make_posix_files();
  const RunResult own = train(sides.own), other = train(sides.other);
  return identities::difference(*files, own, other, within);
}

class Identities : public ::testing::TestWithParam<Stating> {};

TEST_P(Identities, HoldOnModelsWithAndWithoutTables) {
  const std::vector<Stated> all = stated(GetParam());
  ASSERT_FALSE(all.empty()) << "states none; see ComponentIdentities";
  for (const Stated& identity : all) {
    int held = 0;
    for (const Config& base : bases()) {
      const identities::Sides sides = identities::sides_of(base, GetParam().table(), identity);
      if (!applies(sides)) continue;
      EXPECT_EQ(difference(sides, identity.within), "")
          << base.find("model.type")->text() << " on " << base.find("parallel.ranks")->integer()
          << " ranks: " << identity.why;
      ++held;
    }
    EXPECT_GT(held, 0) << "applies to no model: " << identity.why;
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, Identities, ::testing::ValuesIn(components()),
                         [](const auto& tested) { return tested.param.name(); });

/// Two rates that differ by a millionth, as an identity that does not hold.
Stated false_identity(double within) {
  const auto table = [](const char* text) { return Config::parse(text, "identities", {}).root(); };
  return {.why = "rates do not matter",
          .own = table("type = 'sgd'\nlr = 0.1"),
          .other = table("type = 'sgd'\nlr = 0.1000001"),
          .given = {},
          .within = within};
}

TEST(IdentitiesThatDoNotHold, AreFoundByBitsAndByBounds) {
  for (const double within : {0.0, 1e-12, 1e-9}) {
    const auto sides = identities::sides_of(base_of("gpt_neo"), "optimizer", false_identity(within));
    EXPECT_THAT(difference(sides, within), ::testing::HasSubstr(within == 0 ? "weights_hash" : "differs by"));
  }
  const auto sides = identities::sides_of(base_of("gpt_neo"), "optimizer", false_identity(1e-3));
  EXPECT_EQ(difference(sides, 1e-3), "");
}

}  // namespace
}  // namespace tenon::integration::identities_test
