// tenon transform with minitron, as a user starts it: a trained hybrid is measured on text and cut, a run
// goes on with the result, --dry-run says what it costs and writes nothing, and what a user may get wrong.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

namespace tenon::integration::minitron_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kModel =
    "model={type='decoder', pattern='M-*-', width=16, heads=4, kv_heads=2, hidden=24, ffn='squared_relu', "
    "position='none', mamba_heads=4, mamba_head_width=4, mamba_state=4, mamba_groups=2}";
constexpr const char* kSmallModel =
    "model={type='decoder', pattern='M-*-', width=12, heads=2, kv_heads=2, head_width=4, hidden=16, "
    "ffn='squared_relu', position='none', mamba_heads=2, mamba_head_width=2, mamba_state=4, mamba_groups=2}";
constexpr const char* kData =
    "data = {type = 'text', path = 'text.txt', context = 16, batch = 2}\nsamples = 9\n";
constexpr const char* kTargets =
    "width = 12\nhidden = 16\nheads = 2\nmamba_heads = 2\nmamba_head_width = 2\n";

class MinitronCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const Ended ended = train("source", {"--set", kModel});
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  Ended train(const std::string& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> words{"--run-dir", folder};
    words.insert(words.end(), more.begin(), more.end());
    return scratch_.train(words);
  }
  Ended transform(const std::string& lines, const std::vector<std::string>& more = {}) const {
    write_file(scratch_ / "t.toml",
               "[transform]\ntype = \"minitron\"\nfrom = [\"source\"]\nto = \"out\"\n" + lines);
    std::vector<std::string> words{"transform", "t.toml"};
    words.insert(words.end(), more.begin(), more.end());
    return scratch_.run(words);
  }
  json summary(const std::string& folder) const {
    return json::parse(read_file(scratch_ / (folder + "/1/summary.json")));
  }

  Scratch scratch_;
};

TEST_F(MinitronCommand, N11_EverythingHasTheHashOfTheRun) {
  const std::string all =
      "width = 16\nhidden = 24\nheads = 4\nkv_heads = 2\nmamba_heads = 4\nmamba_head_width = 4\n"
      "layers = [0, 1, 2, 3]\n";
  const Ended ended = transform(all + kData, {"--json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(json::parse(ended.out)["weights_hash"], summary("source")["weights_hash"]);
}

TEST_F(MinitronCommand, ARunBeginsWithTheSmallerModel) {
  const Ended ended = transform(std::string(kTargets) + kData);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const char* file :
       {"importance.safetensors", "importance_width.svg", "importance_hidden.svg", "importance_heads.svg",
        "importance_mamba_heads.svg", "importance_mamba_head_width.svg", "importance_depth_bi.svg"})
    EXPECT_TRUE(fs::exists(scratch_ / ("out/about/" + std::string(file)))) << file;
  const Ended run = train("small", {"--set", kSmallModel, "--set", "init.from=out"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_LT(summary("small")["metrics"]["val/loss"].get<double>(), 6);
  // Equal sources and options give equal bytes, and a kept importance the same cut.
  ASSERT_EQ(transform(std::string(kTargets) + kData, {"-o", "again"}).status, 0);
  ASSERT_EQ(
      transform(std::string(kTargets) + "importance = 'out/about/importance.safetensors'\n", {"-o", "kept"})
          .status,
      0);
  for (const char* folder : {"again", "kept"})
    EXPECT_EQ(read_file(scratch_ / (std::string(folder) + "/model.safetensors")),
              read_file(scratch_ / "out/model.safetensors"))
        << folder;
  EXPECT_EQ(read_file(scratch_ / "again/about/importance.safetensors"),
            read_file(scratch_ / "out/about/importance.safetensors"));
}

TEST_F(MinitronCommand, DepthIsChosenByEveryMethod) {
  for (const char* depth : {"bi", "loss", "logit_mse", "contiguous"}) {
    const Ended ended = transform("keep_layers = 2\ndepth = \"" + std::string(depth) + "\"\n" + kData,
                                  {"-o", std::string("out_") + depth});
    ASSERT_EQ(ended.status, 0) << depth << ended.err;
    const std::string made = read_file(scratch_ / (std::string("out_") + depth + "/model.toml"));
    const std::size_t at = made.find("pattern = \"");
    ASSERT_NE(at, std::string::npos) << made;
    EXPECT_EQ(made.find('"', at + 11), at + 13) << "a pattern of two letters: " << made;
  }
}

TEST_F(MinitronCommand, ADryRunWritesNothingAndCountsWhatIsThen) {
  const auto before = tree(scratch_.folder());
  const Ended text = transform(std::string(kTargets) + kData, {"--dry-run", "--context", "100"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("after / before"), HasSubstr("bytes of keys and values, 100 tokens in f32"),
                    HasSubstr("bytes of recurrent state"), HasSubstr("forward FLOPs per token")));
  const Ended ended = transform(std::string(kTargets) + kData, {"--dry-run", "--context", "100", "--json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json costs = json::parse(ended.out);
  EXPECT_FALSE(fs::exists(scratch_ / "out"));
  EXPECT_EQ(tree(scratch_.folder()).size(), before.size() + 1) << "t.toml alone is new";
  // One attention layer of 2 heads of keys and values, 4 wide, in f32.
  EXPECT_EQ(costs["before"]["cache_bytes"], 100 * 2 * 2 * 4 * 4);
  EXPECT_EQ(costs["after"]["cache_bytes"], costs["before"]["cache_bytes"]);
  // 4 H N P of the scan, and conv - 1 columns of x, B, C.
  EXPECT_EQ(costs["before"]["state_bytes"], 4 * 4 * 4 * 4 + 4 * 3 * (16 + 16));
  EXPECT_EQ(costs["after"]["state_bytes"], 4 * 2 * 4 * 2 + 4 * 3 * (4 + 16));
  EXPECT_LT(costs["after"]["forward_flops_per_token"], costs["before"]["forward_flops_per_token"]);
  const Ended made = transform(std::string(kTargets) + kData, {"--json"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(json::parse(made.out)["elements"], costs["after"]["parameters"]);
  EXPECT_EQ(json::parse(made.out)["bytes"], costs["after"]["weight_bytes"]);
}

TEST_F(MinitronCommand, ADryRunOfOtherTransformsCounts) {
  write_file(scratch_ / "half.toml", "[transform]\ntype = \"cast\"\nfrom = [\"source\"]\ndtype = \"bf16\"\n");
  const Ended ended = scratch_.run({"transform", "half.toml", "--dry-run", "--json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json costs = json::parse(ended.out);
  EXPECT_EQ(costs["after"]["parameters"], costs["before"]["parameters"]);
  EXPECT_EQ(2 * costs["after"]["weight_bytes"].get<std::int64_t>(), costs["before"]["weight_bytes"]);
  EXPECT_FALSE(costs["after"].contains("cache_bytes")) << "the model has no context of its own";
  const Ended text = scratch_.run({"transform", "half.toml", "--dry-run"});
  EXPECT_THAT(text.out, HasSubstr("give --context N for cache, state and FLOPs"));
  EXPECT_THAT(scratch_.run({"transform", "half.toml", "--context", "8"}).err,
              HasSubstr("--context is for --dry-run alone"));
}

TEST_F(MinitronCommand, MistakesLeaveNothing) {
  const struct {
    std::string lines;
    const char* message;
  } cases[] = {
      {"width = 12\n", "nothing says what is important; give calibration data"},
      {std::string("width = 17\n") + kData, "width 17 is more than the 16 of the model"},
      {std::string("mamba_heads = 3\n") + kData, "mamba_heads 3 are no multiple of the 2 groups"},
      {std::string("heads = 3\n") + kData, "kv_heads 2 does not divide heads 3"},
      {std::string("layers = [0, 4]\n") + kData, "layers: 4 is no layer of the model"},
      {"width = 12\ndata = {type = 'npy', x = 'x.npy'}\n", ""},
      {"width = 12\nimportance = 'source/1/summary.json'\n", "expected importance.safetensors"},
      {std::string("withd = 12\n") + kData, "transform.minitron has no option 'withd'"},
  };
  for (const auto& one : cases) {
    const Ended ended = transform(one.lines);
    EXPECT_EQ(ended.status, 2) << one.lines << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(one.message)) << one.lines;
    EXPECT_FALSE(fs::exists(scratch_ / "out")) << one.lines;
  }
}

}  // namespace
}  // namespace tenon::integration::minitron_test
