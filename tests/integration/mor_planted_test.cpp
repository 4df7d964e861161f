// A layer whose operands have a heavy tail, planted into a model that trains: one scale per tensor fails for
// them, a scale per block does not, and its neighbours are unaffected (docs/reproductions/mor-share.md).
#include "run_program.hpp"
#include "test_paths.hpp"

#include <regex>
#include <sstream>
#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

namespace tenon::integration::mor_planted_test {
namespace {

/// The share of each operand's tensors that went to E4M3: "h.1.mlp.c_proj/fprop.x" -> 0.75.
std::map<std::string, double> shares(const std::string& precision) {
  const Scratch scratch;
  Runtime runtime;
  runtime.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins", TENON_PLANTED});
  TrainRequest request;
  request.run_dir = (scratch / "run").string();
  request.quiet = true;
  const RunResult result = runtime.train(Config::parse(R"(
[device]
type = "cpu"
threads = 1
[data]
type = "text"
path = "data/text/tinyshakespeare.txt"
context = 128
batch = 2
[model]
type = "gpt_neo"
layers = 2
width = 128
heads = 4
[[model.insert]]
after = "transformer.h.1.mlp.act"
type = "spread"
name = "spread"
[optimizer]
type = "adamw"
lr = 1e-3
[run]
name = "planted"
steps = 3
log_every = 1
eval_batches = 1
[precision]
type = "mor"
)" + precision,
                                                       "planted.toml", {}),
                                         request);
  EXPECT_EQ(result.error, "");
  std::map<std::string, double> found;
  std::istringstream lines(read_file(fs::path(result.folder) / "metrics.jsonl"));
  const std::regex pattern(
      R"re("name": ?"mor/transformer\.([^"]+\.(?:x|w|dy))", ?"value": ?([-+0-9.eE]+))re");
  for (std::string line; std::getline(lines, line);) {
    std::smatch part;
    if (std::regex_search(line, part, pattern)) found[part[1]] = std::stod(part[2]);
  }
  return found;
}

TEST(MorPlanted, P40_AHeavyTailedLayerFallsBackUnderOneScaleAndNotInBlocks) {
  const auto tensor = shares("partition = 'tensor'\nstrategy = 'current'\n");
  const auto blocks = shares("partition = '128x128'\nstrategy = 'gam'\n");
  ASSERT_EQ(tensor.size(), 72u) << "two blocks of six products with six operands";
  ASSERT_EQ(blocks.size(), 72u);
  // After the planted layer the activations have its spread, and before it the gradients.
  for (const char* operand : {"h.1.mlp.c_proj/fprop.x", "h.1.mlp.c_proj/wgrad.x", "h.1.mlp.c_fc/dgrad.dy",
                              "h.1.mlp.c_fc/wgrad.dy"}) {
    EXPECT_EQ(tensor.at(operand), 0.0) << operand;
    EXPECT_EQ(blocks.at(operand), 1.0) << operand;
  }
  for (const char* operand : {"h.0.mlp.c_proj/fprop.x", "h.1.mlp.c_proj/fprop.w", "h.1.mlp.c_fc/fprop.x"})
    EXPECT_EQ(tensor.at(operand), 1.0) << operand;
}

}  // namespace
}  // namespace tenon::integration::mor_planted_test
