// N10: the logits of a prompt that is read in any number of passes, and of the tokens after it one by one,
// are those of one pass over the whole sequence; and what that takes of memory.
#include "language.hpp"

#include <gtest/gtest.h>

namespace tenon::testing::splits_test {
namespace {

struct Setting {
  LanguageCase model;
  const char* device;
  const char* kernels;
  const char* policy;
  double bound;  ///< relative; 0: the same bits

  std::string name() const { return std::string(model.name) + "_" + device + "_" + kernels + "_" + policy; }
};
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name();
}

/// Other kernels sum in an order that depends on the number of rows: 2e-5 is the specification's; f64 has 29
/// bits more. In bf16 every sum rounds to 2^-9, and a few such steps are between a token and its logits.
std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const LanguageCase& model : kLanguageCases) {
    for (const char* policy : {"fp32", "fp64", "bf16"}) all.push_back({model, "cpu", "reference", policy, 0});
    all.push_back({model, "cpu", "auto", "fp32", 2e-5});
    all.push_back({model, "cpu", "auto", "fp64", 1e-12});
    all.push_back({model, "cuda_emulated", "auto", "fp32", 2e-5});
  }
  all.push_back({language_case("decoder"), "cpu", "auto", "bf16", 0.05});
  all.push_back({language_case("decoder"), "cuda_emulated", "auto", "bf16", 0.05});
  return all;
}

class Splits : public ::testing::TestWithParam<Setting> {
 protected:
  Splits() : bench_(GetParam().model, GetParam().device, GetParam().kernels, GetParam().policy) {}
  LanguageBench bench_;
};

TEST_P(Splits, N10_AnyPassesGiveTheLogitsOfTheWholeSequence) {
  EXPECT_LE(worst_of_random_passes(bench_, "N10", 14), GetParam().bound);
}

TEST_P(Splits, N10_APromptAtOnceAndThenTokenByToken) {
  const Sequence text = bench_.sequence("prompt", kContext);
  const auto expected = bench_.whole_logits(text);
  constexpr std::int64_t kPrompt = 12;
  const auto state = bench_.stepwise(1, kContext).make_sequences(1);
  auto found = bench_.pass(*state, kContext, std::vector<PassRow>{{&text, 0, kPrompt, 0}});
  found.resize(kPrompt);
  for (std::int64_t at = kPrompt; at < kContext; ++at)
    found.push_back(bench_.pass(*state, 1, std::vector<PassRow>{{&text, at, 1, 0}})[0]);
  for (std::size_t at = 0; at < expected.size(); ++at)
    EXPECT_LE(relative_error(found[at], expected[at]), GetParam().bound) << "position " << at;
}

INSTANTIATE_TEST_SUITE_P(All, Splits, ::testing::ValuesIn(settings()),
                         [](const auto& info) { return info.param.name(); });

/// Elements of keys and values of a position, of all attention layers: the closed form.
std::int64_t kept_elements(const GraphSpec& graph, std::int64_t width, std::int64_t& layers) {
  std::int64_t elements = 0;
  layers = 0;
  for (const NodeSpec& node : graph.nodes) {
    if (node.type != "attention") continue;
    std::int64_t heads = 0, kv_heads = 0;
    for (const NamedOption& option : node.options) {
      if (option.name == "heads") heads = std::get<std::int64_t>(option.value);
      if (option.name == "kv_heads") kv_heads = std::get<std::int64_t>(option.value);
    }
    if (kv_heads == 0) kv_heads = heads;
    elements += 2 * kv_heads * (width / heads);
    ++layers;
  }
  return elements;
}

TEST(StepwiseMemory, KeysAndValuesTakeTheClosedForm) {
  struct Row {
    const char* model;
    const char* policy;
    std::int64_t width, element;
  };
  for (const Row& row :
       {Row{"gpt_neo", "fp32", 16, 4}, Row{"gpt_neo", "bf16", 16, 2}, Row{"decoder", "fp64", 16, 8},
        Row{"decoder_window", "fp32", 16, 4}, Row{"decoder_documents", "bf16", 16, 2}}) {
    const LanguageCase& model = language_case(row.model);
    LanguageBench bench(model, "cpu", "reference", row.policy);
    std::int64_t layers = 0;
    const std::int64_t elements = kept_elements(bench.graph(), row.width, layers);
    ASSERT_GT(layers, 0);
    std::int64_t expected = kContext * elements * row.element;
    if (model.documents) expected += kContext * layers * 4;
    Executor& executor = bench.stepwise(2, 3);
    EXPECT_EQ(executor.make_sequences(1)->bytes(), expected) << row.model;
    EXPECT_EQ(executor.make_sequences(7)->bytes(), 7 * expected) << row.model;
    EXPECT_EQ(executor.make_sequences(7)->sequences(), 7);
    bool listed = false;
    for (const PlanLine& line : executor.memory_plan())
      listed |= line.what == "kept of each sequence of 19 positions" &&
                static_cast<std::int64_t>(line.bytes) == expected;
    EXPECT_TRUE(listed) << row.model;
  }
}

TEST(StepwiseMemory, OfMambaDoesNotGrowWithTheContext) {
  const auto bytes_at = [](LanguageBench& bench, std::int64_t positions) {
    Executor executor(bench.spec(1, positions), bench.graph(), bench.data(1));
    return executor.make_sequences(1)->bytes();
  };
  LanguageBench mamba(language_case("mamba"), "cpu", "reference", "fp32");
  const std::int64_t state = bytes_at(mamba, kContext);
  EXPECT_EQ(bytes_at(mamba, 64 * kContext), state);
  // Two layers, each of a state [3 heads, 5, 6] and 2 columns of the convolution's 18 + 2 * 5 channels, in
  // f32.
  const std::int64_t closed = 2 * 4 * (3 * 5 * 6 + 2 * (18 + 2 * 5));
  EXPECT_GE(state, closed);
  EXPECT_LE(state, closed + 2 * 2 * 128) << "numbers of documents, and two buffers rounded up per layer";
  LanguageBench hybrid(language_case("hybrid"), "cpu", "reference", "bf16");
  std::int64_t layers = 0;
  const std::int64_t keys_and_values = 2 * kept_elements(hybrid.graph(), 16, layers);
  EXPECT_EQ(layers, 1);
  EXPECT_EQ(bytes_at(hybrid, 64 * kContext) - bytes_at(hybrid, kContext), 63 * kContext * keys_and_values);
}

TEST(StepwiseMemory, OutlivesTheExecutorThatMadeIt) {
  LanguageBench bench(language_case("decoder"), "cpu", "reference", "fp32");
  const Sequence text = bench.sequence("outlives", 6);
  const auto expected = bench.whole_logits(text);
  std::unique_ptr<SequenceState> state;
  {
    Executor maker(bench.spec(3, kContext), bench.graph(), bench.data(5));
    state = maker.make_sequences(2);
  }
  bench.pass(*state, 4, std::vector<PassRow>{{&text, 0, 4, 1}});
  EXPECT_EQ(bench.pass(*state, 2, std::vector<PassRow>{{&text, 4, 2, 1}})[1], expected[5]);
}

TEST(StepwiseMemory, SequencesDoNotSeeEachOther) {
  LanguageBench bench(language_case("gpt_neo"), "cpu", "reference", "fp32");
  const Sequence text = bench.sequence("mine", 9), other = bench.sequence("other", 9);
  const auto expected = bench.whole_logits(text);
  const auto state = bench.stepwise(1, 1).make_sequences(3);
  bench.pass(*state, 4, std::vector<PassRow>{{&text, 0, 4, 1}});
  bench.pass(*state, kContext, std::vector<PassRow>{{&other, 0, 9, 0}, {&other, 0, 9, 2}});
  EXPECT_EQ(bench.pass(*state, 7, std::vector<PassRow>{{&text, 4, 5, 1}})[4], expected[8]);
}

}  // namespace
}  // namespace tenon::testing::splits_test
