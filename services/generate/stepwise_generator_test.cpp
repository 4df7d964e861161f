// Generation against forwards over whole windows: the tokens and probabilities of one text, and that it is
// the same text whatever is drawn beside it, before it, or on another replica.
#include "generate/stepwise_generator.hpp"

#include "generate/test_thinking_rule.hpp"

#include <tenon/error.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>
#include <string>

namespace tenon::generate::stepwise_generator_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kVocabulary = 61, kContext = 24;
constexpr const char* kNeo = "layers = 2\nwidth = 16\nheads = 2\nwindow = 5\ninit_scale = 0.3";
constexpr const char* kDecoder =
    "pattern = '*-'\nrepeat = 2\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\ninit_scale = 0.3";

constexpr const char* kHybrid =
    "pattern = 'M-*-M-'\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\nposition = 'none'\n"
    "mamba_heads = 4\nmamba_head_width = 6\nmamba_state = 5\nmamba_groups = 2\nmamba_chunk = 7\n"
    "init_scale = 0.3";

DataInfo text_data(bool packed = false) {
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {kContext}}, {"targets", DType::kI32, {kContext}}};
  if (packed) {
    data.fields.push_back({"documents", DType::kI32, {kContext}});
    data.fields.push_back({"positions", DType::kI32, {kContext}});
  }
  data.attributes = {{"vocabulary", kVocabulary}};
  return data;
}

using Ids = std::vector<std::int32_t>;

Ids ids_of(std::size_t length, const std::string& name) {
  Ids ids(length);
  for (std::size_t i = 0; i < length; ++i)
    ids[i] = static_cast<std::int32_t>(random_below(random_key(1, name), 0, i, kVocabulary));
  return ids;
}

/// A model on one device with the kernels, the types and the weights that a case names.
class Language {
 public:
  Language(const char* model, const char* options, const char* kernels, const char* precision)
      : bench_("cpu", kernels, 1),
        policy_(bench_.make_component<Precision>(precision, "")),
        model_(bench_.make_component<Model>(model, options)) {}

  LanguageGraph graph() {
    return static_cast<LanguageModel*>(model_->query(LanguageModel::kId))
        ->language_graph(StepwiseGenerator::prompt_data(text_data()));
  }
  ExecutorSpec spec() {
    ExecutorSpec result;
    result.layers = bench_.layers.get(), result.device = &*bench_.device, result.host = &bench_.host;
    result.precision = &*policy_;
    result.training = false;
    return result;
  }
  std::unique_ptr<StepwiseGenerator> generator(std::int64_t batch, std::int64_t chunk = 8,
                                               const DataInfo& data = text_data()) {
    auto made =
        std::make_unique<StepwiseGenerator>(spec(), graph(), data, GeneratorSettings{batch, chunk, {}});
    made->bind(weights(made->parameters()), 0);
    return made;
  }
  ParameterSet& weights(const std::vector<ParameterInfo>& parameters) {
    if (weights_ == nullptr) {
      weights_ = make_parameter_set("live", parameters, *bench_.device, SetContents::kEverything);
      initialise(*weights_, 4, *bench_.device);
    }
    return *weights_;
  }
  void draw_others(std::uint64_t seed) {
    initialise(*weights_, seed, *bench_.device);
    weights_->touch(0);
  }
  /// Logits that follow the last of `ids`, of a forward over a whole window.
  std::vector<double> follow(const Ids& ids) {
    if (whole_ == nullptr) {
      const LanguageGraph language = graph();
      ExecutorSpec outside = spec();
      outside.keep = {language.logits};
      whole_ = std::make_unique<Executor>(outside, language.graph, text_data());
      whole_->bind(weights(whole_->parameters()));
    }
    Ids window(kContext, 0);
    std::ranges::copy(ids, window.begin());
    const TensorView tokens = whole_->inputs()[0];
    bench_.device->copy({window.data(), tokens.shape, DType::kI32, MemorySpace::kHost}, tokens);
    whole_->forward(*weights_, {.training = false});
    const TensorView logits = whole_->value(graph().logits).reshaped({kContext, kVocabulary});
    const auto last = static_cast<std::int64_t>(ids.size()) - 1;
    return ::tenon::testing::read(*bench_.device, logits.rows(last, last + 1));
  }

 private:
  ::tenon::testing::Bench bench_;
  ::tenon::testing::Made<Precision> policy_;
  ::tenon::testing::Made<Model> model_;
  std::unique_ptr<ParameterSet> weights_;
  std::unique_ptr<Executor> whole_;
};

std::vector<double> log_softmax(const std::vector<double>& logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  std::vector<double> result;
  for (const double logit : logits) result.push_back(logit - largest - std::log(sum));
  return result;
}

struct Case {
  const char *name, *model, *options, *kernels, *precision;
  double bound;  ///< of a log-probability
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}
// Fast kernels keep logits within 2e-5 of the largest, which is below 5 here; a log-probability is the
// difference of a logit and a mean of them.
constexpr Case kCases[] = {
    {"neo_reference_f64", "gpt_neo", kNeo, "reference", "fp64", 1e-12},
    {"neo_reference", "gpt_neo", kNeo, "reference", "fp32", 2e-6},
    {"neo_fast", "gpt_neo", kNeo, "auto", "fp32", 2 * 5 * 2e-5},
    {"decoder_reference_f64", "decoder", kDecoder, "reference", "fp64", 1e-12},
    {"decoder_fast", "decoder", kDecoder, "auto", "fp32", 2 * 5 * 2e-5},
    {"hybrid_reference_f64", "decoder", kHybrid, "reference", "fp64", 1e-12},
    {"hybrid_fast", "decoder", kHybrid, "auto", "fp32", 2 * 5 * 2e-5},
};

class Generation : public ::testing::TestWithParam<Case> {
 protected:
  Language language_{GetParam().model, GetParam().options, GetParam().kernels, GetParam().precision};
};
INSTANTIATE_TEST_SUITE_P(Models, Generation, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

std::vector<Generated> draw(Generator& generator, const std::vector<Ids>& prompts, const GenerationSpec& spec,
                            std::uint64_t first_sequence = 0) {
  std::vector<Prompt> asked;
  for (const Ids& ids : prompts) asked.push_back({ids, first_sequence + asked.size()});
  return generator.generate(asked, spec);
}

TEST_P(Generation, N10_TokensAndProbabilitiesAreThoseOfForwardsOverTheWholeText) {
  const auto generator = language_.generator(3);
  const std::vector<Ids> prompts = {ids_of(1, "a"), ids_of(7, "b"), ids_of(8, "c"), ids_of(19, "d"),
                                    ids_of(kContext, "e")};
  for (const double temperature : {0.0, 1.0}) {
    const auto drawn = draw(*generator, prompts, {.most = kContext, .temperature = temperature});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Ids text = prompts[i];
      ASSERT_EQ(drawn[i].ids.size(), kContext + 1 - text.size());
      EXPECT_EQ(drawn[i].end, i == 0 ? GenerationEnd::kMost : GenerationEnd::kContext);
      for (std::size_t t = 0; t < drawn[i].ids.size(); ++t) {
        const std::vector<double> expected = log_softmax(language_.follow(text));
        const std::int32_t token = drawn[i].ids[t];
        ASSERT_NEAR(drawn[i].log_probs[t], expected[token], GetParam().bound) << i << " " << t;
        if (temperature == 0) {
          ASSERT_EQ(token, std::ranges::max_element(expected) - expected.begin());
        }
        text.push_back(token);
      }
    }
  }
}

TEST_P(Generation, ATextIsTheSameAloneInABatchOnReplicasAndAfterOthers) {
  std::vector<Ids> prompts;
  for (std::size_t i = 0; i < 40; ++i) prompts.push_back(ids_of(1 + i % 13, fmt::format("p{}", i)));
  GenerationSpec spec{.most = 14, .top_p = 0.95};
  spec.stop_ids = {3, 17, 40, 41, 42};
  const auto many = language_.generator(16);
  const auto together = draw(*many, prompts, spec);
  const auto again = draw(*many, prompts, spec);
  std::set<std::size_t> lengths;
  for (const Generated& text : together) lengths.insert(text.ids.size());
  EXPECT_GT(lengths.size(), 5U) << "texts end at different times, or nothing goes on in a place of another";

  const auto one = language_.generator(1), five = language_.generator(5);
  const std::vector<Ids> first(prompts.begin(), prompts.begin() + 23),
      rest(prompts.begin() + 23, prompts.end());
  auto split = draw(*five, first, spec);
  for (Generated& text : draw(*five, rest, spec, 23)) split.push_back(std::move(text));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = draw(*one, {prompts[i]}, spec, i);
    EXPECT_EQ(together[i].ids, alone[0].ids) << i;
    EXPECT_EQ(together[i].log_probs, alone[0].log_probs) << i;
    EXPECT_EQ(together[i].end, alone[0].end) << i;
    EXPECT_EQ(together[i].ids, split[i].ids) << i;
    EXPECT_EQ(together[i].log_probs, split[i].log_probs) << i;
    EXPECT_EQ(together[i].ids, again[i].ids) << i;
    EXPECT_EQ(together[i].log_probs, again[i].log_probs) << i;
  }
}

TEST_P(Generation, ATextGoesOnFromItsOwnTokensAsItWouldHave) {
  const auto generator = language_.generator(2);
  const Ids ids = ids_of(5, "g");
  const Generated whole = draw(*generator, {ids}, {.most = 14}, 8)[0];
  for (const std::size_t part : {1, 6, 13}) {
    Ids longer = ids;
    longer.insert(longer.end(), whole.ids.begin(), whole.ids.begin() + part);
    EXPECT_EQ(draw(*generator, {longer}, {.most = 14 - static_cast<std::int64_t>(part)}, 8)[0].ids,
              Ids(whole.ids.begin() + part, whole.ids.end()));
  }
}

TEST_P(Generation, SlidesByForgettingTheOlderHalf) {
  const auto generator = language_.generator(4);
  const std::vector<Ids> prompts = {ids_of(5, "s"), ids_of(kContext + 9, "t")};
  const auto drawn = draw(*generator, prompts, {.most = 3 * kContext, .temperature = 0, .slides = true});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Ids seen(prompts[i].end() - std::min<std::ptrdiff_t>(prompts[i].size(), kContext), prompts[i].end());
    ASSERT_EQ(drawn[i].ids.size(), 3U * kContext);
    for (std::size_t t = 0; t < drawn[i].ids.size(); ++t) {
      const std::vector<double> expected = log_softmax(language_.follow(seen));
      ASSERT_NEAR(drawn[i].log_probs[t], expected[drawn[i].ids[t]], GetParam().bound) << i << " " << t;
      if (static_cast<std::int64_t>(seen.size()) == kContext)
        seen.erase(seen.begin(), seen.begin() + kContext / 2);
      seen.push_back(drawn[i].ids[t]);
    }
  }
}

TEST_P(Generation, AThinkingBudgetInsertsTheTagAndLeavesAllOtherDrawsToTheirPositions) {
  const auto many = language_.generator(3), one = language_.generator(1);
  std::vector<Ids> prompts;
  for (std::size_t i = 0; i < 11; ++i) prompts.push_back(ids_of(1 + i, fmt::format("th{}", i)));
  GenerationSpec spec{.most = 12, .slides = true};
  // Tokens of one in six end a line.
  spec.thinking = {3, 4, {58, 59, 58}, {0, 6, 12, 18, 24, 30, 36, 42, 48, 54}};
  const auto together = draw(*many, prompts, spec);
  std::set<std::size_t> begins;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Ids ids;
    std::vector<std::int64_t> places;
    std::vector<double> log_probs;
    while (ids.size() < 12) {
      Ids text = prompts[i];
      text.insert(text.end(), ids.begin(), ids.end());
      const std::int32_t inserted = inserted_after(spec.thinking, prompts[i].back(), ids);
      if (inserted >= 0) {
        begins.insert(ids.size());
        places.push_back(static_cast<std::int64_t>(ids.size()));
        ids.push_back(inserted);
        log_probs.push_back(log_softmax(language_.follow(text))[inserted]);
      } else {
        const Generated next = draw(*one, {text}, {.most = 1}, i)[0];
        ids.push_back(next.ids[0]);
        log_probs.push_back(next.log_probs[0]);
      }
    }
    EXPECT_EQ(together[i].ids, ids) << i;
    EXPECT_EQ(together[i].inserted, static_cast<std::int64_t>(places.size())) << i;
    EXPECT_EQ(together[i].inserted_at, places.empty() ? 0 : places.front()) << i;
    ASSERT_EQ(together[i].log_probs.size(), ids.size());
    for (std::size_t t = 0; t < ids.size(); ++t)
      EXPECT_NEAR(together[i].log_probs[t], log_probs[t], GetParam().bound) << i << " " << t;
  }
  EXPECT_GT(begins.size(), 3U) << "newlines are at different places, and some sequences have none";
}

class GenerationOfNeo : public ::testing::Test {
 protected:
  Language language_{"gpt_neo", kNeo, "reference", "fp32"};
};

TEST_F(GenerationOfNeo, DrawsAreKeyedBySequenceAndNotByPlace) {
  const auto generator = language_.generator(4);
  const Ids ids = ids_of(6, "k");
  const std::vector<Prompt> asked = {{ids, 70}, {ids, 71}, {ids, 72}, {ids, 70}},
                            turned = {{ids, 72}, {ids, 71}};
  const GenerationSpec spec{.most = 12, .temperature = 1.5};
  const auto a = generator->generate(asked, spec), b = generator->generate(turned, spec);
  EXPECT_EQ(a[0].ids, a[3].ids);
  EXPECT_NE(a[0].ids, a[1].ids);
  EXPECT_EQ(a[1].ids, b[1].ids);
  EXPECT_EQ(a[2].ids, b[0].ids);
}

TEST_F(GenerationOfNeo, EndsAtTheMostAtStopsAtTheSinkAndAtTheContext) {
  const auto generator = language_.generator(2);
  const Ids ids = ids_of(4, "e");
  const std::vector<Prompt> asked = {{ids, 9}};
  const Generated free = generator->generate(asked, {.most = 10})[0];
  EXPECT_EQ(free.ids.size(), 10U);
  EXPECT_EQ(free.log_probs.size(), 10U);
  EXPECT_EQ(free.end, GenerationEnd::kMost);
  EXPECT_TRUE(generator->generate(asked, {.most = 0})[0].ids.empty());

  const std::int32_t stop = free.ids[6];
  const auto at = std::ranges::find(free.ids, stop) - free.ids.begin();
  const Generated stopped = generator->generate(asked, {.most = 10, .stop_ids = {kVocabulary + 5, stop}})[0];
  EXPECT_EQ(stopped.ids, Ids(free.ids.begin(), free.ids.begin() + at + 1)) << "the stop belongs to the text";
  EXPECT_EQ(stopped.end, GenerationEnd::kStop);

  Ids heard;
  const Generated sunk =
      generator->generate(asked, {.most = 10}, [&](std::size_t index, std::int32_t token, double log_prob) {
        EXPECT_EQ(index, 0U);
        EXPECT_EQ(log_prob, free.log_probs[heard.size()]);
        heard.push_back(token);
        return heard.size() < 3;
      })[0];
  EXPECT_EQ(heard, Ids(free.ids.begin(), free.ids.begin() + 3));
  EXPECT_EQ(sunk.ids, heard);
  EXPECT_EQ(sunk.end, GenerationEnd::kSink);

  const Generated full = generator->generate(asked, {.most = 100})[0];
  EXPECT_EQ(full.ids.size(), static_cast<std::size_t>(kContext - 4 + 1));
  EXPECT_EQ(full.end, GenerationEnd::kContext);
}

TEST_F(GenerationOfNeo, TokensOfATagEndASequenceAsDrawnOnesDo) {
  const auto generator = language_.generator(2);
  const Ids ids = ids_of(4, "t");
  GenerationSpec spec{.most = 10};
  spec.thinking = {2, 0, {50, 51, 52}, {}};
  const Generated whole = draw(*generator, {ids}, spec)[0];
  ASSERT_EQ(Ids(whole.ids.begin() + 2, whole.ids.begin() + 5), (Ids{50, 51, 52}));
  spec.stop_ids = {51};
  const Generated stopped = draw(*generator, {ids}, spec)[0];
  EXPECT_EQ(stopped.ids, Ids(whole.ids.begin(), whole.ids.begin() + 4));
  EXPECT_EQ(stopped.end, GenerationEnd::kStop);
  spec.stop_ids = {};
  spec.most = 4;
  const Generated cut = draw(*generator, {ids}, spec)[0];
  EXPECT_EQ(cut.ids, stopped.ids) << "the end may fall into the tag";
  EXPECT_EQ(cut.end, GenerationEnd::kMost);
  Ids heard;
  const std::vector<Prompt> asked = {{ids, 0}};
  spec.most = 10;
  const Generated sunk = generator->generate(asked, spec, [&](std::size_t, std::int32_t token, double) {
    heard.push_back(token);
    return token != 50;
  })[0];
  EXPECT_EQ(heard, Ids(whole.ids.begin(), whole.ids.begin() + 3));
  EXPECT_EQ(sunk.end, GenerationEnd::kSink);
}

TEST_F(GenerationOfNeo, ABudgetOfAPromptThatFillsTheContextEndsWithTheContext) {
  const auto generator = language_.generator(1);
  GenerationSpec spec{.most = 5};
  spec.thinking = {0, 0, {50, 51}, {}};
  const Generated full = draw(*generator, {ids_of(kContext, "full")}, spec)[0];
  EXPECT_EQ(full.ids, Ids{50});
  EXPECT_EQ(full.end, GenerationEnd::kContext);
}

TEST_F(GenerationOfNeo, ReadsTheLastTokensOfALongPrompt) {
  const auto generator = language_.generator(1);
  const Ids ids = ids_of(2 * kContext, "long"), last(ids.end() - kContext, ids.end());
  const GenerationSpec likeliest{.most = 1, .temperature = 0};
  const Generated a = draw(*generator, {ids}, likeliest)[0], b = draw(*generator, {last}, likeliest)[0];
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.log_probs, b.log_probs);
}

TEST_F(GenerationOfNeo, SplitsOfAPromptChangeNoBit) {
  const Ids ids = ids_of(21, "split");
  const Generated whole = draw(*language_.generator(1, kContext), {ids}, {.most = 3})[0];
  for (const std::int64_t chunk : {1, 2, 5, 8, 20}) {
    const Generated split = draw(*language_.generator(1, chunk), {ids}, {.most = 3})[0];
    EXPECT_EQ(split.ids, whole.ids) << chunk;
    EXPECT_EQ(split.log_probs, whole.log_probs) << chunk;
  }
}

TEST_F(GenerationOfNeo, FollowsTheWeights) {
  const auto generator = language_.generator(1);
  const Ids ids = ids_of(5, "w");
  const Generated before = draw(*generator, {ids}, {.most = 5})[0];
  language_.draw_others(5);
  const Generated after = draw(*generator, {ids}, {.most = 5})[0];
  EXPECT_NE(before.log_probs, after.log_probs);
  EXPECT_EQ(draw(*language_.generator(1), {ids}, {.most = 5})[0].log_probs, after.log_probs);
}

TEST_F(GenerationOfNeo, KeepsKeysAndValuesAndNothingElse) {
  // 2 layers, keys and values of 16 elements per position, four bytes each.
  EXPECT_EQ(language_.generator(3)->sequence_bytes(), 2 * 2 * 16 * kContext * 4);
  Language grouped("decoder", kDecoder, "reference", "fp64");
  EXPECT_EQ(grouped.generator(3)->sequence_bytes(), 2 * 2 * (2 * 4) * kContext * 8);
}

// Per Mamba-2 layer: k - 1 columns of the channels x, B, C and their documents, and N x P numbers per head
// with two documents, each rounded up to whole lines.
TEST(GenerationOfHybrids, KeepsStatesThatDoNotGrowAndKeysAndValuesThatDo) {
  const auto up = [](std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; };
  const struct {
    const char* precision;
    std::int64_t element, number;  ///< bytes of activations and of the state
  } cases[] = {{"fp32", 4, 4}, {"fp64", 8, 8}, {"bf16", 2, 4}};
  for (const auto& c : cases) {
    Language language("decoder", kHybrid, "reference", c.precision);
    const std::int64_t channels = 4 * 6 + 2 * 2 * 5;
    const std::int64_t tail = up(up(3 * channels * c.element, 4) + 3 * 4, 16);
    const std::int64_t state = up(4 * 5 * 6 * c.number + 2 * 4, 16);
    const std::int64_t keys_and_values = 2 * (2 * 4) * kContext * c.element;
    EXPECT_EQ(language.generator(3)->sequence_bytes(),
              2 * (up(tail, 64) + up(state, 64)) + up(keys_and_values, 64))
        << c.precision;
  }
}

TEST_F(GenerationOfNeo, NeedsNoMoreMemoryThanWithAllPassesMade) {
  const auto used = language_.generator(5, 11), planned = language_.generator(5, 11);
  planned->make_all();
  const std::int64_t before = used->allocated_bytes();
  std::vector<Ids> prompts;
  for (std::size_t i = 0; i < 40; ++i) prompts.push_back(ids_of(1 + i, fmt::format("m{}", i)));
  draw(*used, prompts, {.most = 9, .stop_ids = {3, 17, 40, 41, 42}, .slides = true});
  EXPECT_GT(used->allocated_bytes(), before);
  EXPECT_EQ(used->allocated_bytes(), planned->allocated_bytes());
}

TEST(GenerationOfDecoder, APromptIsOneDocumentWhateverTheSamplesAre) {
  Language language("decoder", kDecoder, "reference", "fp32");
  const Ids ids = ids_of(9, "packed");
  const Generated packed = draw(*language.generator(1, 8, text_data(true)), {ids}, {.most = 6})[0];
  EXPECT_EQ(packed.log_probs, draw(*language.generator(1), {ids}, {.most = 6})[0].log_probs);
}

TEST_F(GenerationOfNeo, RefusesWhatItCannotDo) {
  const auto generator = language_.generator(2);
  const auto refused = [&](const std::vector<Ids>& prompts, const GenerationSpec& spec) -> std::string {
    try {
      draw(*generator, prompts, spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "nothing was thrown";
  };
  const Ids good = {1, 2};
  EXPECT_EQ(refused({good, {}}, {.most = 1}),
            "generate: prompt 1 is empty; the model needs a token to go on from");
  EXPECT_EQ(refused({good, {5, kVocabulary}}, {.most = 1}),
            "generate: prompt 1 holds token 61, and the model knows 0 to 60");
  EXPECT_EQ(refused({{-1}}, {.most = 1}), "generate: prompt 0 holds token -1, and the model knows 0 to 60");
  EXPECT_EQ(refused({good}, {.most = 1, .top_p = 2}),
            "generate: top_p is 2, expected more than 0 and at most 1 (all tokens)");
  EXPECT_EQ(refused({good}, {.most = 1, .thinking = {1, 1, {2, kVocabulary}}}),
            "generate: thinking.close holds token 61, and the model knows 0 to 60");

  DataInfo images;
  images.fields = {{"images", DType::kF32, {3, 4}}};
  EXPECT_THROW(StepwiseGenerator(language_.spec(), language_.graph(), images), Error);
  LanguageGraph reads_targets = language_.graph();
  NodeSpec& head = reads_targets.graph.nodes.back();
  head = {"lm_head", "embedding", {"targets"}, {{"rows", kVocabulary}, {"width", kVocabulary}}};
  try {
    StepwiseGenerator(language_.spec(), reads_targets, text_data());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "generate: the language graph reads the data field 'targets', which a prompt does not have; "
                 "remove the nodes that read it");
  }
}

TEST_F(GenerationOfNeo, NamesTheTokenWhoseLogitIsNotFinite) {
  const auto generator = language_.generator(1);
  ParameterSet& weights = language_.weights({});
  for (const ParameterInfo& info : weights.parameters()) {
    if (info.spec.name != "transformer.wte.weight") continue;
    weights.tensor(info.index).as<float>()[16 * 7] = std::nanf("");
  }
  weights.touch(0);
  try {
    draw(*generator, {{1, 2, 3}}, {.most = 2}, 5);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    EXPECT_STREQ(
        error.what(),
        "generate: the logit of token 7 at position 3 of sequence 5 is nan; the weights are not usable");
  }
}

}  // namespace
}  // namespace tenon::generate::stepwise_generator_test
