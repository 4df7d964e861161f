// Whole runs of a small GPT: the bits of bf16 with everything off, a switch without a jump, operand counts in
// closed form, refusal of a non-finite gradient.
#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>

namespace tenon {
namespace {

constexpr const char* kRun = R"(
[run]
steps = 20
eval_every = 20
log_every = 1
[device]
type = "cpu"
threads = 1
[data]
type = "text"
path = "FOLDER/text.txt"
context = 16
batch = 4
[model]
type = "gpt_neo"
layers = 2
width = 32
heads = 2
[optimizer]
type = "adamw"
lr = 1e-2
[precision]
type = "bf16"
)";

class QuantizedRun : public ::testing::Test {
 protected:
  QuantizedRun()
      : folder_(std::filesystem::temp_directory_path() / ("tenon-quantized-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "the quick brown fox " << i << '\n';
  }
  ~QuantizedRun() override { std::filesystem::remove_all(folder_); }

  RunResult train(const std::vector<std::string>& sets) {
    std::string toml = kRun;
    toml.replace(toml.find("FOLDER"), 6, folder_.string());
    Runtime runtime;
    runtime.discover({});
    TrainRequest request;
    request.run_dir = (folder_ / std::to_string(runs_++)).string();
    request.quiet = true;
    return runtime.train(Config::parse(toml, "run.toml", sets), request);
  }
  /// Training loss by slot.
  static std::map<int, double> losses(const RunResult& run) {
    std::map<int, double> result;
    std::ifstream file(run.folder + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto entry = nlohmann::json::parse(line);
      if (entry.at("split") == "train" && entry.at("name") == "loss")
        result[entry.at("step")] = entry.at("value");
    }
    return result;
  }

  std::filesystem::path folder_;
  int runs_ = 0;
};

TEST_F(QuantizedRun, P37_WithEverythingOffTheBitsAreThoseOfBf16) {
  const RunResult bf16 = train({});
  ASSERT_EQ(bf16.status, "completed") << bf16.error;
  for (const char* type : {"nvfp4", "mxfp4", "mxfp8", "fp8"}) {
    const std::string choice = std::string("precision.type=") + type;
    const RunResult off = train({choice, "precision.switch=all", "precision.switch_at=0.0"});
    EXPECT_EQ(off.weights_hash, bf16.weights_hash) << type << " " << off.error;
    EXPECT_EQ(off.quantized_operands, bf16.quantized_operands) << type;
    const RunResult on = train({choice});
    ASSERT_EQ(on.status, "completed") << on.error;
    EXPECT_NE(on.weights_hash, bf16.weights_hash) << type;
  }
}

TEST_F(QuantizedRun, P36_TheLossDoesNotJumpAtTheSwitch) {
  const auto run = [&](const char* which) {
    const RunResult result =
        train({"precision.type=nvfp4", std::string("precision.switch=") + which, "precision.switch_at=0.8",
               "run.steps=60", "data.batch=16", "optimizer.lr=3e-3"});
    EXPECT_EQ(result.status, "completed") << result.error;
    return losses(result);
  };
  const auto without = run("none");
  ASSERT_EQ(without.size(), 60u);
  for (const char* which : {"forward", "all"}) {
    const auto with = run(which);
    ASSERT_EQ(with.size(), 60u);
    // The bits are equal before the switch; in its slot the weights and the batch still are.
    const int first = with.begin()->first, at = first + 48;
    for (int slot = first; slot < at; ++slot) EXPECT_EQ(with.at(slot), without.at(slot)) << slot;
    EXPECT_NE(with.at(at), without.at(at));
    EXPECT_LT(with.at(at), without.at(at) * 1.001) << "no jump upward";
  }
}

TEST_F(QuantizedRun, CountsItsOperandsInClosedForm) {
  const RunResult run = train({"precision.type=nvfp4", "precision.keep_last=1"});
  ASSERT_EQ(run.status, "completed") << run.error;
  // A block has six products; one of the two blocks, and the head, stay in bf16.
  const std::int64_t sites = 6, kept = 7, slots = 20;
  const auto& counts = run.quantized_operands;
  const std::int64_t evaluations = counts.at("nvfp4_2d") / sites - slots * 2;  // forward passes
  EXPECT_GT(evaluations, 0);
  EXPECT_EQ(counts.at("nvfp4"), slots * sites * 4 + evaluations * sites);
  EXPECT_EQ(counts.at("nvfp4_2d"), slots * sites * 2 + evaluations * sites);
  EXPECT_EQ(counts.at("bf16"), slots * kept * 6 + evaluations * kept * 2);
}

// M has two products, * four, - two; the head is none of them: 2 + 2 + 4 + 2 + 2 + 2.
TEST_F(QuantizedRun, N16_OfAHybridTheFirstAndLastGemmsStayCountedByOperands) {
  const std::vector<std::string> hybrid = {
      "model={type=\"decoder\",pattern=\"M-*-M-\",width=32,heads=2,hidden=48,"
      "ffn=\"squared_relu\",position=\"none\",mamba_heads=4,"
      "mamba_head_width=8,mamba_state=8,mamba_chunk=8}",
      "precision={type=\"fp8\"}", "run.steps=6", "run.eval_every=6"};
  const std::int64_t sites = 14, slots = 6;
  const struct {
    const char* set;
    std::int64_t kept;  ///< beside the head
  } cases[] = {{"precision.keep_first_gemms=0", 0},
               {"precision.keep_first_gemms=4", 4},
               {"precision.keep_last_gemms=5", 5},
               {"precision.keep_last=1", 2},
               {"precision.keep_first=1", 2}};
  for (const auto& c : cases) {
    std::vector<std::string> sets = hybrid;
    sets.emplace_back(c.set);
    const RunResult run = train(sets);
    ASSERT_EQ(run.status, "completed") << c.set << ": " << run.error;
    const auto& counts = run.quantized_operands;
    const std::int64_t quantized = sites - c.kept, kept = c.kept + 1;
    // E5M2 is the format of gradients, which only training has: one of the operands of two products.
    EXPECT_EQ(counts.at("fp8_e5m2"), slots * quantized * 2) << c.set;
    const std::int64_t evaluations = (counts.at("fp8_e4m3") / quantized - slots * 4) / 2;
    EXPECT_GT(evaluations, 0) << c.set;
    EXPECT_EQ(counts.at("fp8_e4m3"), quantized * (slots * 4 + evaluations * 2)) << c.set;
    EXPECT_EQ(counts.at("bf16"), kept * (slots * 6 + evaluations * 2)) << c.set;
  }
}

TEST_F(QuantizedRun, RefusesUpdatesThatAreNotFinite) {
  // A step of 1e30 makes weights whose products overflow.
  const RunResult run = train({"precision.type=nvfp4", "optimizer.lr=1e30", "run.on_nan=stop"});
  EXPECT_NE(run.status, "completed");
  EXPECT_NE(run.error, "");
}

}  // namespace
}  // namespace tenon
