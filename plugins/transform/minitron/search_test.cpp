// The search of a shape: what lists make, sizes against the executor's own bytes, bounds, and the order of
// shapes; then the transform with a search.
#include "search.hpp"
#include "testing_decoders.hpp"

#include <tenon/error.hpp>
#include <tenon/language_model.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tenon::minitron::search_test {
namespace {

using namespace testing_decoders;
using ::testing::HasSubstr;
using ::testing::Not;

/// Options of one table [[transform.search]].
class Lists {
 public:
  explicit Lists(const std::string& toml)
      : config_(Config::parse(toml, "search.toml", std::vector<std::string>{})),
        options_(resolve_options(
                     {.table = config_.root(), .owner = "search", .specs = option_list(kSearchOptions)})
                     .options) {}
  const Options& operator*() const { return *options_; }

 private:
  Config config_;
  std::unique_ptr<ResolvedOptions> options_;
};

Candidate candidate(std::int64_t width, std::int64_t parameters, double loss, std::int64_t cache = 0,
                    std::int64_t state = 0) {
  Candidate out;
  out.targets.width = width;
  out.size = {parameters, 4 * parameters, cache, state};
  out.loss = loss;
  return out;
}

TEST(MinitronSearch, ListsMakeEveryCombinationOverTheTargets) {
  Targets base;
  base.heads = 2;
  const auto all = combinations(*Lists("width = [8, 6]\nhidden = [5, 4, 3]\n"), base);
  ASSERT_EQ(all.size(), 6u);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const Targets& targets : all) {
    seen.emplace(*targets.width, *targets.hidden);
    EXPECT_EQ(targets.heads, 2);
    EXPECT_FALSE(targets.kv_heads);
  }
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(shape_text(all[1]), "width 8, hidden 4, heads 2");
  const auto refusal = [&](const std::string& toml) {
    return testing::error_of([&] { combinations(*Lists(toml), base); });
  };
  EXPECT_THAT(refusal("heads = [1, 2]"), HasSubstr("heads is a target and a list of [transform.search]"));
  EXPECT_THAT(refusal("parameters = 5"), HasSubstr("has no list to choose from"));
  EXPECT_THAT(refusal("width = [0]"), HasSubstr("width = 0 in [transform.search]; expected at least 1"));
  std::string many = "1";
  for (int i = 2; i <= 70; ++i) many += ", " + std::to_string(i);
  EXPECT_THAT(refusal("width = [" + many + "]\nhidden = [" + many + "]"), HasSubstr("more than 4096 shapes"));
}

// The closed form against what executors of the cut models hold, for attention, FFNs and Mamba layers.
TEST(MinitronSearch, SizesAreThoseOfExecutorsOfTheCutModels) {
  constexpr std::int64_t kPositions = 64;
  // Per Mamba layer: document numbers beside the columns of the ring, and rounding up to 64 bytes twice.
  constexpr std::int64_t kRounding = 256;
  for (const char* name : {"hybrid", "llama", "plain"}) {
    SCOPED_TRACE(name);
    Decoders decoders;
    const Twin& of = twin(name);
    const auto model = decoders.recorded_model(of);
    const DecoderShape shape = read_shape(*model);
    Plan plan = make_plan(shape, of.targets, nullptr);
    PrunedModel cut(*model, shape, plan, of.targets, any_kept(shape, plan), false);
    const DataInfo data = token_info();
    const ModelSize size = size_of(cut.parameters(), cut.graph(data), kPositions, 8);

    std::int64_t elements = 0, layers = 0;
    for (const StoredTensor& tensor : cut.parameters()) elements += tensor.shape.elements();
    EXPECT_EQ(size.parameters, elements);
    EXPECT_EQ(size.weight_bytes, 8 * elements) << "weights are f64 here";

    GraphSpec graph = cut.graph(data);
    std::erase_if(graph.nodes, [](const NodeSpec& node) { return node.type == "head_cross_entropy"; });
    for (const NodeSpec& node : graph.nodes) layers += node.type == "attention" || node.type == "mamba2";
    const auto f64 = decoders.bench.make_component<Precision>("fp64", "");
    ExecutorSpec spec;
    spec.layers = decoders.bench.layers.get();
    spec.device = &*decoders.bench.device;
    spec.host = &decoders.bench.host;
    spec.precision = &*f64;
    spec.training = false;
    spec.batch = 1;
    spec.positions = kPositions;
    DataInfo one = data;
    one.fields = {{"tokens", DType::kI32, {1}}};
    Executor executor(spec, graph, one);
    const std::int64_t held = executor.make_sequences(1)->bytes();
    EXPECT_LE(size.cache_bytes + size.state_bytes, held);
    EXPECT_GE(size.cache_bytes + size.state_bytes + kRounding * layers, held);
    EXPECT_EQ(size.state_bytes > 0, std::string(name) == "hybrid");
  }
}

TEST(MinitronSearch, MemoryIsWeightsKeysValuesAndStates) {
  Bounds limit;
  limit.memory_limit = 1000;
  limit.context = 16;
  EXPECT_EQ(distance({100, 400, 500, 100}, limit), 0) << "exactly the limit";
  EXPECT_GT(distance({100, 400, 500, 101}, limit), 0) << "states count";
  EXPECT_GT(distance({100, 400, 501, 100}, limit), 0) << "keys and values count";
  EXPECT_EQ(distance({1, 4, 0, 0}, limit), 0) << "a limit has no lower end";
  Bounds target;
  target.memory = 1000;
  EXPECT_EQ(distance({100, 400, 500, 149}, target), 0) << "4.9 % above";
  EXPECT_GT(distance({100, 400, 500, 151}, target), 0);
  EXPECT_GT(distance({100, 400, 500, 49}, target), 0);
  Bounds parameters;
  parameters.parameters = 1000;
  parameters.tolerance = 0.1;
  EXPECT_EQ(distance({1099, 1, 1, 1}, parameters), 0);
  EXPECT_NEAR(distance({1200, 1, 1, 1}, parameters), 0.1, 1e-12);
}

TEST(MinitronSearch, WithoutAShapeInTheBoundsTheNearestIsNamed) {
  Bounds bounds;
  bounds.parameters = 1000;
  bounds.context = 16;
  const std::vector<Candidate> all{candidate(8, 1300, 0), candidate(6, 900, 0), candidate(4, 500, 0)};
  EXPECT_THAT(
      testing::error_of([&] { within(all, bounds); }),
      HasSubstr("none of 3 shapes is within the bounds: 1000 parameters within 5 % at a context of 16; "
                "the nearest is width 6: 900 parameters, 3600 bytes (weights 3600, keys and values 0, "
                "states 0)"));
  bounds.parameters = 920;
  const auto left = within(all, bounds);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].targets.width, 6);
}

TEST(MinitronSearch, TheLeastLossComesFirstAndOfEqualOnesTheSmaller) {
  std::vector<Candidate> all{candidate(8, 1300, 2.5), candidate(6, 900, 2.5), candidate(4, 500, 2.4)};
  rank(all);
  EXPECT_EQ(all[0].targets.width, 4);
  EXPECT_EQ(all[1].targets.width, 6);
  Searched found;
  found.ranked = all;
  found.bounds.parameters = 900;
  found.enumerated = 12;
  found.taken = 1;
  EXPECT_THAT(search_json(found), HasSubstr("\"enumerated\": 12,\n  \"within\": 3,\n  \"taken\": 2"));
  EXPECT_THAT(search_json(found), HasSubstr("{\"width\": 6, \"parameters\": 900, "));
  EXPECT_THAT(search_svg(found), HasSubstr("taken: width 6"));
}

TEST(MinitronSearch, NeedsABound) {
  EXPECT_THAT(testing::error_of([] { read_bounds(*Lists("width = [8]")); }),
              HasSubstr("give parameters, memory or memory_limit"));
}

class SearchingTransform : public ::testing::Test {
 protected:
  std::string refusal(const std::string& options) {
    return testing::error_of([&] {
      const auto made =
          testing::make<Transform>(decoders_.bench.registry, decoders_.bench.host, "minitron", options);
      StoredModel* const sources[] = {&*model_};
      testing::transformed(*made, sources);
    });
  }
  Decoders decoders_;
  std::unique_ptr<testing::MemoryModel> model_ = decoders_.recorded_model(twin("hybrid"));
};

TEST_F(SearchingTransform, NeedsDataAndOneTable) {
  EXPECT_THAT(refusal("rank = 'random'\n[[search]]\nhidden = [4]\nparameters = 100\n"),
              HasSubstr("a search measures losses; give calibration data"));
}

}  // namespace
}  // namespace tenon::minitron::search_test
