// `tenon check --shapes`: totals of the shipped shapes to the last parameter, operations and bytes by hand,
// in under a second and little memory, without data, device or a whole run. What it refuses.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace tenon::integration::shapes_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kConfigs = TENON_SOURCE_DIR "/configs/";

json shapes_of(const std::string& config, std::vector<std::string> more = {}) {
  const Scratch scratch;
  std::vector<std::string> words{"check", config, "--shapes", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Ended ended = scratch.run(words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  return json::parse(ended.out, nullptr, false);
}

struct Published {
  const char* file;
  std::int64_t parameters, cache_per_token, cache_of_context;
  std::int64_t state = 0;
};

/// Parameters as published; bytes of keys and values: 2 x 2 bytes x layers x heads x width of a head.
const Published kPublished[] = {
    {"llama3_8b", 8'030'261'248, 4 * 32 * 8 * 128, 8192LL * 4 * 32 * 8 * 128},
    {"llama3_70b", 70'553'706'496, 4 * 80 * 8 * 128, 8192LL * 4 * 80 * 8 * 128},
    {"llama3_405b", 405'853'388'800, 4 * 126 * 8 * 128, 131072LL * 4 * 126 * 8 * 128},
    {"phi3_mini", 3'821'079'552, 4 * 32 * 32 * 96, 2047LL * 4 * 32 * 32 * 96},
    {"phi3_small", 7'392'272'384, 4 * 32 * 8 * 128, 8192LL * 4 * 32 * 8 * 128},
    // A Mamba-2 layer in bf16 keeps 4 bytes per head x state x width of it, 2 x 3 columns of D + 2 groups x
    // state.
    {"nemotron_h_4b", 4'489'223'040, 4 * 4 * 8 * 128, 8192LL * 4 * 4 * 8 * 128,
     24LL * (4 * 112 * 128 * 64 + 6 * (112 * 64 + 2 * 8 * 128))},
    {"nemotron_h_8b", 8'100'852'736, 4 * 4 * 8 * 128, 8192LL * 4 * 4 * 8 * 128,
     24LL * (4 * 128 * 128 * 64 + 6 * (128 * 64 + 2 * 8 * 128))},
    {"nemotron_h_47b_code", 46'791'554'816, 4 * 5 * 8 * 128, 8192LL * 4 * 5 * 8 * 128,
     45LL * (4 * 256 * 256 * 64 + 6 * (256 * 64 + 2 * 8 * 256))},
    {"nemotron_h_47b_paper", 46'856'446'976, 4 * 5 * 8 * 128, 8192LL * 4 * 5 * 8 * 128,
     44LL * (4 * 256 * 256 * 64 + 6 * (256 * 64 + 2 * 8 * 256))},
    {"nemotron_h_56b", 56'324'350'464, 4 * 10 * 8 * 128, 8192LL * 4 * 10 * 8 * 128,
     54LL * (4 * 256 * 256 * 64 + 6 * (256 * 64 + 2 * 8 * 256))},
    {"nano_12b_v2", 12'310'001'152, 4 * 6 * 8 * 128, 131072LL * 4 * 6 * 8 * 128,
     28LL * (4 * 128 * 128 * 80 + 6 * (128 * 80 + 2 * 8 * 128))},
    {"nano_9b_v2", 8'888'227'328, 4 * 4 * 8 * 128, 131072LL * 4 * 4 * 8 * 128,
     27LL * (4 * 128 * 128 * 80 + 6 * (128 * 80 + 2 * 8 * 128))},
    {"phi4", 14'659'507'200, 4 * 40 * 10 * 128, 16384LL * 4 * 40 * 10 * 128},
};

TEST(Shapes, N1_OfPublishedModelsHaveTheirTotals) {
  for (const Published& model : kPublished) {
    const json shapes = shapes_of(kConfigs + "shapes/" + model.file + ".toml");
    EXPECT_EQ(shapes["parameters"], model.parameters) << model.file;
    EXPECT_EQ(shapes["trained_parameters"], model.parameters) << model.file;
    EXPECT_EQ(shapes["cache_bytes_per_token"], model.cache_per_token) << model.file;
    EXPECT_EQ(shapes["cache_bytes_of_context"], model.cache_of_context) << model.file;
    EXPECT_EQ(shapes["state_bytes"], model.state) << model.file;
    EXPECT_EQ(shapes["activations"], "bf16") << model.file;
    std::int64_t sum = 0;
    for (const json& part : shapes["parts"]) sum += part["parameters"].get<std::int64_t>();
    EXPECT_EQ(sum, model.parameters) << model.file;
  }
  EXPECT_EQ(std::size(kPublished),
            static_cast<std::size_t>(
                std::distance(fs::directory_iterator(kConfigs + "shapes"), fs::directory_iterator())));
}

TEST(Shapes, OperationsAreTwoPerWeightAndTheKeysThatPositionsSee) {
  const json llama = shapes_of(kConfigs + "shapes/llama3_8b.toml");
  const double weights = 8'030'261'248.0 - 128'256.0 * 4096 - 65 * 4096;  // not the embedding, not the norms
  const double attention = 32 * 4.0 * 4096 * (8193 / 2.0);
  EXPECT_DOUBLE_EQ(llama["forward_flops_per_token"], 2 * weights + attention);
  EXPECT_DOUBLE_EQ(llama["training_flops_per_token"], 3 * (2 * weights + attention));
  for (const json& part : llama["parts"]) {
    if (part["name"] == "model.layers.*.mlp") {
      EXPECT_EQ(part["layers"], 32);
      EXPECT_EQ(part["parameters"], 32LL * 3 * 4096 * 14336);
      EXPECT_DOUBLE_EQ(part["forward_flops_per_token"], 32 * 6.0 * 4096 * 14336);
    }
  }
  const json phi = shapes_of(kConfigs + "shapes/phi3_mini.toml");  // a window of 2047 of 4096
  const double seen = (2047 * 2048 / 2.0 + (4096 - 2047) * 2047.0) / 4096;
  EXPECT_DOUBLE_EQ(phi["forward_flops_per_token"],
                   2 * (3'821'079'552.0 - 32'064.0 * 3072 - 65 * 3072) + 32 * 4.0 * 3072 * seen);
}

TEST(Shapes, OperationsOfMambaDoNotGrowWithTheContext) {
  const double width = 128 * 64, channels = width + 2 * 8 * 128;
  const double products = 2.0 * 4096 * (width + channels + 128 + width);
  for (const char* context : {"8192", "131072"}) {
    const json shapes =
        shapes_of(kConfigs + "shapes/nemotron_h_8b.toml", {"--set", std::string("model.context=") + context});
    for (const json& part : shapes["parts"]) {
      if (part["name"] != "model.layers.*.mamba") continue;
      EXPECT_EQ(part["layers"], 24);
      EXPECT_DOUBLE_EQ(part["forward_flops_per_token"], 24 * (products + 4 * width * 128 + 2 * 4 * channels));
    }
  }
}

TEST(Shapes, OfTheLargestTakeLessThanASecondAndLittleMemory) {
  const auto usage = [] {
    rusage found{};
    ::getrusage(RUSAGE_CHILDREN, &found);
    return found;
  };
  const auto seconds = [](const rusage& found) {
    return static_cast<double>(found.ru_utime.tv_sec + found.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(found.ru_utime.tv_usec + found.ru_stime.tv_usec);
  };
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) {
    const double begin = seconds(usage());
    EXPECT_EQ(shapes_of(kConfigs + "shapes/llama3_405b.toml")["context"], 131072);
    times.push_back(seconds(usage()) - begin);
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[1], 1.0);
  EXPECT_LT(usage().ru_maxrss, 128 * 1024) << "KiB";
  std::cout << "median of 3: " << times[1] << " s, at most " << usage().ru_maxrss / 1024 << " MiB\n";
}

TEST(Shapes, NeedNeitherDataNorDeviceNorARun) {
  const Scratch scratch;
  write_file(scratch / "run.toml", "extends = [\"" + kConfigs +
                                       "base/llama_tiny.toml\"]\n[data]\npath = \"absent.txt\"\n"
                                       "[device]\ntype = \"cuda\"\n[model]\nvocabulary = 256\n");
  const Ended ended = scratch.run({"check", "run.toml", "--shapes"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out,
              ::testing::StartsWith("run.toml: ok\nmodel decoder: 803,968 parameters, 803,968 of them "
                                    "trained\nkey-value cache in f32: 2 KiB per token, 256 KiB for a "
                                    "context of 128 tokens\nFLOPs per token of such a context: "));
  EXPECT_THAT(ended.out, HasSubstr("model.layers.*.self_attn  4"));
  // Learned positions have as many rows as the data's samples, though the graph is inferred for one token.
  const json gpt = shapes_of(kConfigs + "base/gpt_tiny.toml", {"--set", "model.vocabulary=256"});
  EXPECT_EQ(gpt["parameters"], 840'960);
  const json tied = shapes_of(kConfigs + "base/llama_tiny.toml", {"--set", "model.tied=true"});
  EXPECT_EQ(tied["parameters"], 803'968 - 256 * 128);
}

TEST(Shapes, RefuseWhatTheyCannotSay) {
  const Scratch scratch;
  write_file(scratch / "model.toml", "[model]\ntype = \"decoder\"\npattern = \"*\"\nwidth = 8\nheads = 3\n");
  const std::string head = "tenon check --shapes does not read the data, so it needs ";
  const struct {
    std::vector<std::string> words;
    std::string says;
  } cases[] = {
      {{}, head + "model.context, the tokens of a sample"},
      {{"--set", "model.context=4"}, head + "model.vocabulary, the number of tokens that there are"},
      {{"--set", "model.context=4", "--set", "model.vocabulary=5"}, "'heads' 3 does not divide 'width' 8"},
      {{"--set", "model.headz=4"}, "headz"},
      {{"--set", "model.context=many"}, "context"},
      {{"--set", "model.type=lenet5", "--set", "model.context=4"}, "context"},
      {{"--print"}, "tenon check: --shapes goes with --json alone; leave --explain and --print out"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> words{"check", "model.toml", "--shapes"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Ended ended = scratch.run(words);
    EXPECT_EQ(ended.status, 2) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace tenon::integration::shapes_test
