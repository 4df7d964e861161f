// One definition of the weights of a run, and one way to feed them: `tenon evaluate` returns the run's own
// last val/* and `tenon export` the weights of its `weights_hash`, for every synchronisation strategy at a
// synchronisation round and between two, and for every shipped configuration under every precision policy,
// row tables and meshes included. The latter as a covering set; all of them with TENON_MATRIX=all
// (scripts/soak).
#include "cell.hpp"

#include <cmath>
#include <cstdlib>

namespace tenon::integration::evaluate_test {
namespace {

using Numbers = std::map<std::string, double>;

/// "val/loss": 2.5 and the like, of summary.json or of what a command prints.
Numbers val_metrics(const std::string& json) {
  static const std::regex pattern("\"(val/[a-z0-9_/]+)\": ([-+0-9.e]+)");
  Numbers found;
  for (std::sregex_iterator m(json.begin(), json.end(), pattern), end; m != end; ++m)
    found[(*m)[1]] = std::stod((*m)[2]);
  return found;
}

std::string text_of(const std::string& json, const std::string& key) {
  std::smatch found;
  return std::regex_search(json, found, std::regex("\"" + key + "\": \"([^\"]*)\"")) ? found[1].str()
                                                                                     : "no " + key;
}

/// Compares the commands' output for the newest checkpoint of `run` with the run's own at its end. Relative
/// to max(1, value): other groups of samples are summed, which costs a few roundings of f32.
void expect_one_answer(const Scratch& scratch, const std::string& run, double tolerance = 2e-6) {
  const std::string summary = read_file(scratch / run / "latest/summary.json");
  const Ended evaluated = scratch.run({"evaluate", run, "--json"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  EXPECT_EQ(evaluated.err, "");
  const Numbers expected = val_metrics(summary), measured = val_metrics(evaluated.out);
  ASSERT_TRUE(expected.contains("val/loss")) << summary;
  for (const auto& [metric, value] : expected) {
    ASSERT_TRUE(measured.contains(metric)) << metric << " in " << evaluated.out;
    EXPECT_NEAR(measured.at(metric), value, tolerance * std::max(1.0, std::abs(value))) << metric;
  }
  const Ended exported =
      scratch.run({"export", run, "--out", "out/model.safetensors", "--overwrite", "--json"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(text_of(exported.out, "weights_hash"), text_of(summary, "weights_hash"));
}

class EvaluateSync : public ::testing::TestWithParam<Strategy> {};

TEST_P(EvaluateSync, AtASyncRoundAndBetween) {
  const Strategy& strategy = GetParam();
  const Scratch scratch;
  write_file(scratch / "sync.toml",
             "extends = ['run.toml']\n[parallel]\nranks = 2\nservers = " + std::to_string(strategy.servers) +
                 "\n[transport]\ntype = 'thread'\n[sync]\n" + strategy.toml);
  for (const char* steps : {"12", "14"}) {
    SCOPED_TRACE(steps);
    std::vector<std::string> words{
        "train", "sync.toml", "--quiet",           "--set", "run.steps=" + std::string(steps), "--run-dir",
        "r",     "--set",     "recovery.every=100"};
    if (fs::exists(scratch / "r")) words.emplace_back("--resume");
    const Ended trained = scratch.run(words);
    ASSERT_EQ(trained.status, 0) << trained.err;
    expect_one_answer(scratch, "r");
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, EvaluateSync, ::testing::ValuesIn(kStrategies),
                         [](const ::testing::TestParamInfo<Strategy>& info) {
                           return std::string(info.param.name);
                         });

struct Shipped {
  const char* name;                ///< of configs/base
  std::vector<const char*> sizes;  ///< so that it takes a moment
};
const Shipped kShipped[] = {
    {"dlrm_adult", {"data.val_fraction=0.02"}},
    {"dlrm_synthetic",
     {"data.tables=3", "data.rows=[50]", "data.dense=4", "data.batch=16", "data.samples=200",
      "data.val_samples=60", "data.pairs=0"}},
    {"fno_darcy", {"model.width=4"}},
    {"fno_darcy_2x2", {"model.width=4"}},
    {"gpt_tiny",
     {"model.layers=1", "model.width=16", "model.heads=2", "data.context=16", "data.val_fraction=0.002"}},
    {"llama_tiny",
     {"model.repeat=1", "model.width=16", "model.heads=2", "model.kv_heads=1", "model.hidden=24",
      "data.context=16", "data.val_fraction=0.002"}},
    {"lenet5", {"data.batch=16", "data.val_fraction=0.01"}},
    {"lenet5_2x2", {"data.batch=16", "data.val_fraction=0.01"}},
    {"resnet18", {"model.width=8", "data.batch=4", "data.val_fraction=0.001"}},
    {"hybrid_tiny",
     {"model.width=16", "model.heads=2", "model.kv_heads=1", "model.hidden=24", "model.mamba_heads=4",
      "model.mamba_head_width=8", "model.mamba_state=8", "data.context=16", "data.val_fraction=0.002"}},
};
constexpr const char* kPolicies[] = {"fp32", "fp64", "bf16", "fp16", "fp8", "mxfp8", "mxfp4", "nvfp4", "mor"};

struct Cell {
  Shipped shipped;
  const char* policy;
  std::string name() const { return std::string(shipped.name) + "_" + policy; }
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name();
}

std::vector<Cell> cells() {
  const char* wanted = std::getenv("TENON_MATRIX");
  const bool all = wanted != nullptr && std::string_view(wanted) == "all";
  std::vector<Cell> chosen;
  for (std::size_t c = 0; c < std::size(kShipped); ++c) {
    for (std::size_t p = 0; p < std::size(kPolicies); ++p)
      if (all || (p + 2 * c) % 5 == 2) chosen.push_back({kShipped[c], kPolicies[p]});
  }
  return chosen;
}

class EvaluateShipped : public ::testing::TestWithParam<Cell> {};

TEST_P(EvaluateShipped, GivesTheValuesOfTheRun) {
  const Cell& cell = GetParam();
  const Scratch scratch;
  std::vector<std::string> words{"train",
                                 TENON_SOURCE_DIR "/configs/base/" + std::string(cell.shipped.name) + ".toml",
                                 "--quiet", "--run-dir", "r"};
  std::vector<std::string> sets{"run.steps=2", "run.eval_every=0", "run.eval_batches=0", "recovery.type=full",
                                "device.threads=1"};
  sets.insert(sets.end(), cell.shipped.sizes.begin(), cell.shipped.sizes.end());
  sets.push_back("precision.type=" + std::string(cell.policy));
  // Scales of earlier slots: the evaluation needs the state of the sites.
  if (std::string_view(cell.policy) == "fp8")
    sets.insert(sets.end(), {"precision.recipe=delayed", "precision.keep_first=0", "precision.keep_last=0"});
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  const Ended trained = scratch.run(words);
  ASSERT_EQ(trained.status, 0) << trained.err;
  // Over a mesh low formats round partial sums and blocks of shards; whole tensors have others.
  const std::string_view name = cell.shipped.name, policy = cell.policy;
  const bool rounds_shards = name.ends_with("2x2") && policy != "fp32" && policy != "fp64";
  expect_one_answer(scratch, "r", rounds_shards ? 1e-3 : 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Cells, EvaluateShipped, ::testing::ValuesIn(cells()),
                         [](const ::testing::TestParamInfo<Cell>& info) { return info.param.name(); });

}  // namespace
}  // namespace tenon::integration::evaluate_test
