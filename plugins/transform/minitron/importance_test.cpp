// Importance against PyTorch and NumPy (tests/reference/minitron.safetensors), the properties N14, what is
// not finite, and the file that keeps it.
#include "importance_file.hpp"
#include "testing_decoders.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tenon::minitron::importance_test {
namespace {

using namespace testing_decoders;
using ::testing::HasSubstr;

class ImportanceOf : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<double> expected(const std::string& tensor) const {
    return decoders_.recorded.values(fmt::format("{}.{}", GetParam(), tensor));
  }

  Decoders decoders_;
  TokenData data_;
  Calibration calibration_{decoders_.bench.host, data_, nullptr, nullptr, kSamples, 1};
  std::unique_ptr<MemoryModel> model_ = decoders_.recorded_model(twin(GetParam()));
};

TEST_P(ImportanceOf, PartsIsThatOfThePublicTool) {
  const Importance found = scores_of(calibration_, *model_);
  EXPECT_LT(error_of(found.width, expected("scores.width")), 1e-12);
  const DecoderShape shape = read_shape(*model_);
  for (const LayerShape& layer : shape.layers) {
    const std::string prefix = fmt::format("scores.layers.{}.", layer.number);
    if (layer.kind == LayerKind::kAttention)
      EXPECT_LT(error_of(found.heads.at(layer.number), expected(prefix + "heads")), 1e-12) << layer.number;
    else if (layer.kind == LayerKind::kFfn)
      EXPECT_LT(error_of(found.hidden.at(layer.number), expected(prefix + "hidden")), 1e-12) << layer.number;
    else
      EXPECT_LT(error_of(found.mamba.at(layer.number), expected(prefix + "mamba_channels")), 1e-12)
          << layer.number;
  }
}

TEST_P(ImportanceOf, OtherSumsAreTaken) {
  const struct {
    Sum sequence, batch;
    const char* name;
  } cases[] = {{Sum::kMean, Sum::kMean, "mean_mean"},
               {Sum::kL2, Sum::kL2, "l2_l2"},
               {Sum::kL2, Sum::kMean, "l2_mean"}};
  for (const auto& one : cases)
    EXPECT_LT(error_of(scores_of(calibration_, *model_, one.sequence, one.batch).width,
                       expected(std::string(one.name) + ".width")),
              1e-12)
        << one.name;
}

TEST_P(ImportanceOf, LayersIsWhatTheirRemovalCosts) {
  const DecoderShape shape = read_shape(*model_);
  EXPECT_LT(error_of(scores_of(calibration_, *model_).depth.at("bi").scores, expected("scores.depth.bi")),
            1e-12);
  Pass pass(calibration_, calibration_graph(*model_, data_.info(), shape, "logits"), *model_, {"logits"});
  EXPECT_NEAR(pass.loss(), expected("loss")[0], 1e-12);
  const auto measure = [&](const char* method, std::int64_t count, bool iterative) {
    return measure_depth(pass, calibration_, shape, method, count, iterative, "logits");
  };
  EXPECT_LT(error_of(measure("loss", 1, false).scores, expected("scores.depth.loss")), 1e-10);
  EXPECT_LT(error_of(measure("contiguous", 2, false).scores, expected("scores.depth.contiguous")), 1e-10);
  const Importance::Depth iterative = measure("logit_mse", 2, true);
  EXPECT_LT(error_of(iterative.scores, expected("scores.depth.logit_mse")), 1e-10);
  const std::vector<double> removed = expected("scores.depth.removed");
  EXPECT_EQ(iterative.removed, std::vector<std::int64_t>(removed.begin(), removed.end()));
  EXPECT_NEAR(pass.loss(), expected("loss")[0], 1e-12) << "a silent layer stayed silent";
}

INSTANTIATE_TEST_SUITE_P(Minitron, ImportanceOf, ::testing::Values("hybrid", "llama", "plain"),
                         [](const auto& info) { return info.param; });

class ImportanceRules : public ::testing::Test {
 protected:
  Importance scores(const Weights& weights, const char* name = "hybrid") {
    model_ = decoders_.model(twin(name).table, weights);
    return scores_of(calibration_, *model_);
  }

  Decoders decoders_;
  TokenData data_;
  Calibration calibration_{decoders_.bench.host, data_, nullptr, nullptr, kSamples, 1};
  std::unique_ptr<MemoryModel> model_;
};

TEST_F(ImportanceRules, N14_AnIdentityLayerCostsNothing) {
  Weights weights = decoders_.recorded_weights(twin("hybrid"));
  for (const char* map : {"model.layers.0.mamba.out_proj.weight", "model.layers.2.self_attn.o_proj.weight",
                          "model.layers.3.mlp.down_proj.weight"})
    std::ranges::fill(weights.at(map).second, 0.0);
  const std::vector<double> costs = scores(weights).depth.at("bi").scores;
  ASSERT_EQ(costs.size(), 7U);
  for (const std::size_t layer : {0, 2, 3}) EXPECT_NEAR(costs[layer], 0, 1e-15) << layer;
  for (const std::size_t layer : {1, 4, 5, 6}) EXPECT_GT(costs[layer], 1e-3) << layer;
}

TEST_F(ImportanceRules, WhatIsNotFiniteNamesNodeAndLayer) {
  const struct {
    const char *weight, *message;
  } cases[] = {
      {"model.layers.3.mlp.up_proj.weight",
       "the importance of neuron 0 of layer 3 is nan: the output of node "
       "'model.layers.3.mlp.act' is not finite"},
      {"model.layers.0.norm.weight", "of layer 0 is nan"},
      {"model.layers.5.self_attn.v_proj.weight",
       "the importance of head 0 of layer 5 is nan: the output of node 'model.layers.5.self_attn' is not "
       "finite on "
       "the calibration data; look for weights that are not finite in 'model.layers.5.*'"},
  };
  for (const auto& one : cases) {
    Weights weights = decoders_.recorded_weights(twin("hybrid"));
    weights.at(one.weight).second[0] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(testing::error_of([&] { scores(weights); }, ErrorKind::kRun), HasSubstr(one.message));
  }
}

TEST_F(ImportanceRules, DataOfAnotherVocabularyAreRefused) {
  model_ = decoders_.recorded_model(twin("plain"));
  TokenData other(24);
  Calibration calibration(decoders_.bench.host, other, nullptr, nullptr, kSamples, 1);
  EXPECT_EQ(testing::error_of([&] { scores_of(calibration, *model_); }),
            "transform minitron: the calibration data have a vocabulary of 24, and runs/model was trained on "
            "one of "
            "23; use the tokenizer that it was trained with");
}

TEST_F(ImportanceRules, TokensOfAnotherTokenizerAreRefused) {
  require_known_tokens(4.13, token_info(), "runs/model");  // ln 23 is 3.1355
  EXPECT_EQ(
      testing::error_of([&] { require_known_tokens(4.14, token_info(), "runs/model"); }),
      "transform minitron: the loss of runs/model on the calibration data is 4.14, and a uniform guess has "
      "3.135: their tokens are not those that it was trained on; use its own tokenizer");
}

TEST_F(ImportanceRules, AFileKeepsEveryScore) {
  Importance measured = scores(decoders_.recorded_weights(twin("hybrid")));
  measured.depth["loss"] = {{0, 1}, {0.5, -0.25}, {1}, 0};
  const DecoderShape shape = read_shape(*model_);
  const std::string bytes = importance_bytes(measured, shape, {{"folder", "a \"b\"\n"}});
  const Importance read = read_importance(bytes, "file");
  EXPECT_EQ(read.width, measured.width);
  EXPECT_EQ(read.hidden, measured.hidden);
  EXPECT_EQ(read.heads, measured.heads);
  EXPECT_EQ(read.mamba, measured.mamba);
  EXPECT_EQ(read.depth.at("bi").scores, measured.depth.at("bi").scores);
  EXPECT_EQ(read.depth.at("loss").numbers, measured.depth.at("loss").numbers);
  EXPECT_EQ(read.depth.at("loss").removed, measured.depth.at("loss").removed);
  require_scores_of(read, shape, "file");
  Importance deeper = read;
  deeper.depth["loss"].numbers[1] = 7;
  EXPECT_THAT(testing::error_of([&] { require_scores_of(deeper, shape, "file"); }),
              HasSubstr("file: depth.loss has a score for layer 7, which the model has not"));
  // Cut short or changed anywhere, it is read whole or refused.
  for (std::size_t size = 0; size < bytes.size(); size += 7)
    EXPECT_THAT(testing::error_of([&] { read_importance(std::string_view(bytes).substr(0, size), "file"); }),
                HasSubstr("file"));
  for (std::size_t at = 0; at < 700; ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 5);
    try {
      read_importance(damaged, "file");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    }
  }
}

}  // namespace
}  // namespace tenon::minitron::importance_test
