// Stepwise graphs over a mesh: widths may be sharded, samples and positions not.
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>
#include <tenon/testing/mesh_ranks.hpp>

#include <gtest/gtest.h>

namespace tenon::testing::meshes_test {
namespace {

constexpr std::int64_t kBatch = 2, kTime = 6;

/// Embedding and positions over shards of the width, and a product that sums over them.
NodeList nodes(bool scatter) {
  return {{"words",
           "embedding",
           {"tokens"},
           {{"rows", std::int64_t{11}}, {"width", std::int64_t{8}}, {"axes", std::vector<std::int64_t>{0}}}},
          {"placed", "positions", {"words"}, {{"context", kTime}}},
          {"normal", "rms_norm", {"placed"}, {}},
          {"y", "linear", {"normal"}, {{"features", std::int64_t{5}}, {"scatter", scatter}}}};
}

TestField tokens(std::int64_t first, std::int64_t time) {
  const std::vector<double> all = integers(kBatch * kTime, 11, "tokens");
  TestField field{"tokens", {kBatch, time}, DType::kI32, {}};
  for (std::int64_t row = 0; row < kBatch; ++row) {
    const auto from = all.begin() + row * kTime + first;
    field.values.insert(field.values.end(), from, from + time);
  }
  return field;
}

/// Runs `body` with what a harness needs on each of two ranks; returns their errors.
std::vector<std::string> on_ranks(const std::function<void(HarnessSpec&)>& body) {
  MeshRanks ranks({2});
  return ranks.run([&](Mesh& mesh) {
    Bench bench("cpu", "reference", 1);
    const auto precision = bench.make_component<Precision>("fp32", "");
    HarnessSpec spec{
        .layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision};
    spec.training = false, spec.mesh = &mesh;
    body(spec);
  });
}

/// Attention and a state space model whose heads are shards; the ranks share the group of the latter.
NodeList nodes_of_heads() {
  const std::vector<std::int64_t> over = {0};
  const auto linear = [&](const char* name, const char* input, std::int64_t features) {
    return NodeSpec{name, "linear", {input}, {{"features", features}, {"axes", over}}};
  };
  return {{"words", "embedding", {"tokens"}, {{"rows", std::int64_t{11}}, {"width", std::int64_t{8}}}},
          linear("q", "words", 16),
          linear("k", "words", 8),
          linear("v", "words", 8),
          {"turned", "rotary", {"q"}, {{"heads", std::int64_t{4}}}},
          {"heads",
           "attention",
           {"turned", "k", "v"},
           {{"heads", std::int64_t{4}}, {"kv_heads", std::int64_t{2}}}},
          {"o", "linear", {"heads"}, {{"features", std::int64_t{8}}}},
          {"space",
           "mamba2",
           {"o"},
           {{"heads", std::int64_t{4}},
            {"head_width", std::int64_t{3}},
            {"state", std::int64_t{5}},
            {"chunk", std::int64_t{4}},
            {"dt_min", 0.1},
            {"dt_max", 1.0},
            {"axes", over}}},
          {"y", "linear", {"space"}, {{"features", std::int64_t{5}}}}};
}

/// Passes of 1, 3 and 2 positions against one over all of them, to the bit.
void expect_values_of_whole_sequences(const NodeList& graph) {
  const auto errors = on_ranks([&](HarnessSpec& spec) {
    LayerHarness whole(spec, graph, {}, {tokens(0, kTime)});
    whole.forward({.training = false});
    const std::vector<double> expected = whole.value("y");
    spec.positions = kTime;
    const std::int64_t splits[] = {1, 3, 2};
    std::unique_ptr<SequenceState> state;
    std::int64_t first = 0;
    for (const std::int64_t time : splits) {
      LayerHarness pass(spec, graph, {}, {tokens(first, time)});
      if (state == nullptr) state = pass.executor().make_sequences(kBatch);
      const std::vector<std::int64_t> begins(kBatch, first), counts(kBatch, time), kept{1, 0};
      pass.executor().step(pass.weights(), *state, {.first = begins, .count = counts, .kept = kept});
      const std::vector<double> found = pass.value("y");
      for (std::int64_t i = 0; i < std::ssize(found); ++i) {
        const std::int64_t row = i / 5 / time, position = first + i / 5 % time;
        EXPECT_EQ(found[i], expected[(row * kTime + position) * 5 + i % 5]) << "position " << position;
      }
      first += time;
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(StepwiseMeshes, N10_ShardedWidthsGiveTheValuesOfWholeSequences) {
  expect_values_of_whole_sequences(nodes(false));
}

TEST(StepwiseMeshes, N10_ShardedHeadsGiveTheValuesOfWholeSequences) {
  expect_values_of_whole_sequences(nodes_of_heads());
}

TEST(StepwiseMeshes, ShardedSamplesAreRefused) {
  const auto errors = on_ranks([](HarnessSpec& spec) {
    spec.positions = kTime;
    LayerHarness pass(spec, nodes(true), {}, {tokens(0, 2)});
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(
        error.find(
            "model node 'y' (linear) shards samples or positions over the mesh, which a graph that runs "
            "stepwise needs whole: "),
        0)
        << error;
  }
}

}  // namespace
}  // namespace tenon::testing::meshes_test
