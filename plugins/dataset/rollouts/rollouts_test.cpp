// The data set against a generator whose answers a test knows: layout of samples, groups on any number of
// replicas, rewards that fail, its state, and files with mistakes.
#include "rollouts.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

namespace tenon::rollouts {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

/// Its value is the number that an answer is; "x" throws, "n" is NaN, and "t" gives a part twice.
class Worth final : public Reward {
 public:
  static constexpr ComponentInfo kInfo{.id = "worth", .summary = "the number that an answer is"};
  explicit Worth(const Options&) {}
  void score(const RewardSample& sample, RewardParts& parts) const override {
    if (sample.answer == "x") fail_run("no number");
    if (sample.answer == "t") parts.add("number", 0);
    parts.add("number", sample.answer == "n" ? std::nan("") : static_cast<double>(sample.answer.size()));
    const Value* const bonus = sample.sample->find("bonus");
    parts.add("the bonus", bonus != nullptr ? bonus->real() : 0);
  }
  void* query(std::string_view) override { return nullptr; }
};

/// Bytes, but 'W' is "a4", 'X' is "2\n" and 'Z' ends a text.
class Pairs final : public ByteTokenizer {
 public:
  static constexpr ComponentInfo kInfo{.id = "pairs", .summary = "bytes, and tokens of two of them"};
  explicit Pairs(const Options&) {}
  std::int32_t end_of_text() const override { return 'Z'; }
  std::string_view token_bytes(std::int32_t id) const override {
    return id == 'W' ? "a4" : id == 'X' ? "2\n" : ByteTokenizer::token_bytes(id);
  }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "test.rollouts", .version = "1.0.0", .summary = "rollouts"},
                    Rollouts, Worth, Pairs)

/// A host that collects numbers and messages.
class SinkHost final : public Host, public MetricSink {
 public:
  void log(LogLevel, std::string_view message) override { messages.emplace_back(message); }
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view, std::function<void(Actor&)>) override { return nullptr; }
  double deadline() const override { return 1; }
  void* query(std::string_view id) override {
    return id == MetricSink::kId ? static_cast<MetricSink*>(this) : nullptr;
  }
  void record(std::string_view name, double value) override { numbers[std::string(name)].push_back(value); }
  void add(std::int64_t, Split, std::string_view, double) override {}
  std::map<std::string, std::vector<double>> numbers;
  std::vector<std::string> messages;
};

/// Writes answer(sequence), and has -0.5 - position / 8 as the log-probability of each token.
class Scripted final : public Generator {
 public:
  explicit Scripted(std::function<std::string(std::uint64_t)> answer) : answer_(std::move(answer)) {}
  std::int64_t context() const override { return context_; }
  std::int64_t vocabulary() const override { return 256; }
  std::vector<Generated> generate(std::span<const tenon::Prompt> prompts, const GenerationSpec& spec,
                                  const TokenSink& sink) override {
    specs.push_back(spec);
    std::vector<Generated> all;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      asked.emplace_back(prompts[i].ids.begin(), prompts[i].ids.end());
      const std::string text = answer_(prompts[i].sequence);
      Generated one;
      for (std::int64_t t = 0; t < spec.most && t < static_cast<std::int64_t>(text.size()); ++t) {
        one.ids.push_back(static_cast<unsigned char>(text[t]));
        one.log_probs.push_back(-0.5 - static_cast<double>(t) / 8);
        if (!sink(i, one.ids.back(), one.log_probs.back())) break;
      }
      if (spec.thinking.tokens >= 0 && static_cast<std::int64_t>(one.ids.size()) > spec.thinking.tokens + 1) {
        one.inserted_at = spec.thinking.tokens;
        one.inserted = 2;
      }
      all.push_back(one);
    }
    return all;
  }
  std::vector<GenerationSpec> specs;
  std::vector<std::string> asked;
  std::int64_t context_ = 1000;

 private:
  std::function<std::string(std::uint64_t)> answer_;
};

/// Answers of 1 to 4 letters, ended by a line.
std::string letters(std::uint64_t sequence) {
  return std::string(1 + sequence % 4, static_cast<char>('a' + sequence % 26)) + "\nnever";
}

struct Batch {
  explicit Batch(const Dataset& data)
      : context(data.info().fields[0].shape[0]),
        tokens(data.batch() * context, 7),
        targets(tokens),
        drawn(data.batch() * context, 7),
        advantages(drawn),
        views{{tokens.data(), Shape{data.batch(), context}, DType::kI32},
              {targets.data(), Shape{data.batch(), context}, DType::kI32},
              {drawn.data(), Shape{data.batch(), context}, DType::kI64},
              {advantages.data(), Shape{data.batch(), context}, DType::kI64}} {}
  Batch(const Batch&) = delete;
  template <typename Element>
  std::vector<Element> row(const std::vector<Element>& field, std::int64_t i) const {
    return {field.begin() + i * context, field.begin() + (i + 1) * context};
  }
  std::vector<double> reals(const std::vector<std::int64_t>& field, std::int64_t i) const {
    std::vector<double> values;
    for (const std::int64_t bits : row(field, i)) values.push_back(std::bit_cast<double>(bits));
    return values;
  }
  std::int64_t context;
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> drawn, advantages;
  std::vector<TensorView> views;
};

/// Keeps texts of what it visits, or gives them back.
class Memory final : public StateVisitor {
 public:
  bool loading() const override { return loads; }
  void integer(std::string_view name, std::int64_t& value) override {
    tensor(name, {&value, Shape{1}, DType::kI64});
  }
  void real(std::string_view name, double& value) override { tensor(name, {&value, Shape{1}, DType::kF64}); }
  void text(std::string_view, std::string&) override { fail_run("no text is expected"); }
  void tensor(std::string_view name, TensorView value) override {
    std::string& kept = all[std::string(name)];
    if (!loads) kept.assign(static_cast<const char*>(value.data), static_cast<std::size_t>(value.bytes()));
    ASSERT_EQ(kept.size(), static_cast<std::size_t>(value.bytes())) << name;
    std::memcpy(value.data, kept.data(), kept.size());
  }
  void enter(std::string_view) override {}
  void leave() override {}
  bool loads = false;
  std::map<std::string, std::string> all;
};

class RolloutsTest : public testing::FolderTest {
 protected:
  RolloutsTest() { registry_.add_builtin(plugin); }

  static constexpr const char* kPrompts =
      "{\"prompt\": \"1+1=\"}\n\n{\"prompt\": \"2+2=\", \"bonus\": 0.5}\n{\"prompt\": \"?\", \"bonus\": 1}\n";

  testing::Made<Dataset> make(const std::string& more = "", const std::string& prompts = kPrompts,
                              const std::string& stop = "\\n") {
    return testing::make<Dataset>(registry_, host_, "rollouts",
                                  "path = '" + write("prompts.jsonl", prompts) + "'\nstop = [\"" + stop +
                                      "\"]\ncontext = 8\n" + more + "\nreward = {type = 'worth'}\n");
  }
  testing::Made<Dataset> open(const std::string& more = "batch = 4\nanswers = 2",
                              const std::string& prompts = kPrompts, const std::string& stop = "\\n") {
    testing::Made<Dataset> made = make(more, prompts, stop);
    made->open(5);
    return made;
  }
  static OnPolicyDataset& policy(testing::Made<Dataset>& made) {
    return *static_cast<OnPolicyDataset*>(made->query(OnPolicyDataset::kId));
  }
  static std::vector<BatchRequest> requests(std::initializer_list<std::int64_t> firsts,
                                            std::int64_t count = 4) {
    std::vector<BatchRequest> all;
    for (const std::int64_t first : firsts) all.push_back({Split::kTrain, first, count});
    return all;
  }

  SinkHost host_;
  Registry registry_;
};

TEST(Advantages, Z10_SumToZeroInAGroupAndAreOfUnitSize) {
  using Rewards = std::vector<std::optional<double>>;
  EXPECT_THAT(advantages_of(Rewards{1.0, 3.0}, 0), ElementsAre(-1, 1));
  // The population's deviation of 1, 1, 4 is sqrt(2).
  EXPECT_THAT(advantages_of(Rewards{1.0, 1.0, 4.0}, 0),
              Pointwise(DoubleNear(1e-15), {-std::sqrt(0.5), -std::sqrt(0.5), std::sqrt(2)}));
  EXPECT_THAT(advantages_of(Rewards{1.0, 3.0}, 1), ElementsAre(-0.5, 0.5));
  const Rewards rewards{0.3, -2.7, 11.0, 0.1, 0.1, 5.25, 1e3};
  const std::vector<double> advantages = advantages_of(rewards, 1e-6);
  EXPECT_NEAR(std::accumulate(advantages.begin(), advantages.end(), 0.0), 0, 1e-12);
}

TEST(Advantages, Z10_AreZeroForEqualRewards) {
  using Rewards = std::vector<std::optional<double>>;
  for (const double eps : {0.0, 1e-6}) {
    EXPECT_EQ(advantages_of(Rewards(10, 0.1), eps), std::vector<double>(10, 0));
    EXPECT_EQ(advantages_of(Rewards{std::nullopt, 2.0, std::nullopt}, eps), std::vector<double>(3, 0));
    EXPECT_EQ(advantages_of(Rewards(3), eps), std::vector<double>(3, 0));
  }
  // Those without a reward are no part of the mean.
  EXPECT_THAT(advantages_of(Rewards{1.0, std::nullopt, 3.0}, 0), ElementsAre(-1, 0, 1));
}

TEST_F(RolloutsTest, WritesAnswersAsTargetsAfterTheirPrompts) {
  testing::Made<Dataset> data = open();
  EXPECT_EQ(data->info().train_samples, 6);
  EXPECT_EQ(data->info().attributes[0].value, 256);
  Scripted generator(letters);
  policy(data).prepare(0, requests({0, 4, 8}), generator);
  ASSERT_EQ(generator.specs.size(), 1u);
  EXPECT_EQ(generator.specs[0].most, 64);
  EXPECT_EQ(generator.specs[0].temperature, 1);
  EXPECT_EQ(generator.specs[0].seed, 5u);
  EXPECT_EQ(generator.asked.size(), 12u);

  Batch batch(*data);
  data->read({Split::kTrain, 4, 4}, batch.views);
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::string prompt = generator.asked[4 + i];
    EXPECT_EQ(prompt, generator.asked[4 + i / 2 * 2]) << "a group has one prompt";
    const std::string whole = prompt + letters(4 + i).substr(0, 1 + (4 + i) % 4) + "\n";
    std::vector<std::int32_t> tokens(8, 0), targets(8, -1);
    for (std::size_t t = 0; t < whole.size() && t < 8; ++t) tokens[t] = whole[t];
    for (std::size_t t = prompt.size(); t < whole.size(); ++t) targets[t - 1] = whole[t];
    EXPECT_EQ(batch.row(batch.tokens, i), tokens) << i;
    EXPECT_EQ(batch.row(batch.targets, i), targets) << i;
    seen.insert(prompt);
  }
  // The two answers of a group are worth their lengths, one apart.
  for (std::int64_t i = 0; i < 4; ++i)
    for (const double advantage : batch.reals(batch.advantages, i))
      EXPECT_NEAR(advantage, i % 2 == 0 ? -1 : 1, 1e-5) << i;
  EXPECT_EQ(host_.numbers["reward"].size(), 12u);
  EXPECT_EQ(host_.numbers["reward/the_bonus"].size(), 12u);
  EXPECT_THAT(host_.numbers["answer_tokens"], ElementsAre(2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5));
  EXPECT_EQ(host_.numbers["dropped"], std::vector<double>(12, 0));
}

// As `tenon generate --stop`.
TEST_F(RolloutsTest, AnAnswerEndsBeforeAStopTextHoweverTokensSplitIt) {
  const struct {
    const char *drawn, *tokens, *answer;
  } cases[] = {
      {"ba42.", "ba42", "ba"},       // by bytes
      {"bWX.", "bWX", "ba"},         // begins and ends within a token
      {"bW2.", "bW2", "ba"},         // begins within one
      {"bW.2Z7", "bW.2Z", "ba4.2"},  // is none, and a text ends
      {"bW.2", "bW.2", "ba4.2"},
  };
  for (const auto& c : cases) {
    testing::Made<Dataset> data =
        open("batch = 2\nanswers = 2\ntokenizer = {type = 'pairs'}", kPrompts, "42");
    Scripted generator([&](std::uint64_t) { return std::string(c.drawn); });
    host_.numbers.clear();
    policy(data).prepare(0, requests({0}, 2), generator);
    Batch batch(*data);
    data->read({Split::kTrain, 0, 2}, batch.views);
    std::string targets;
    for (const std::int32_t target : batch.row(batch.targets, 0))
      if (target >= 0) targets += static_cast<char>(target);
    EXPECT_EQ(targets, c.tokens);
    const auto bonus = host_.numbers["reward/the_bonus"][0];
    EXPECT_EQ(host_.numbers["reward"][0], static_cast<double>(std::string(c.answer).size()) + bonus)
        << c.drawn;
  }
}

TEST_F(RolloutsTest, AThinkingBudgetGoesToTheGeneratorAndItsTagIsNotLearned) {
  testing::Made<Dataset> data =
      open("batch = 2\nanswers = 2\nthink = 1\nthink_grace = 9\nthink_close = '</'");
  Scripted generator([](std::uint64_t) { return std::string("a</b\n"); });
  policy(data).prepare(0, requests({0}, 2), generator);
  const ThinkingBudget& thinking = generator.specs[0].thinking;
  EXPECT_EQ(thinking.tokens, 1);
  EXPECT_EQ(thinking.grace, 9);
  EXPECT_THAT(thinking.close, ElementsAre('<', '/'));
  EXPECT_THAT(thinking.newlines, ElementsAre('\n'));
  Batch batch(*data);
  data->read({Split::kTrain, 0, 2}, batch.views);
  std::string tokens, targets;
  for (std::int64_t i = 0; i < 8; ++i) {
    if (batch.tokens[i] > 0) tokens += static_cast<char>(batch.tokens[i]);
    if (batch.targets[i] >= 0) targets += static_cast<char>(batch.targets[i]);
  }
  EXPECT_EQ(tokens, std::string(generator.asked[0] + "a</b\n").substr(0, 8));
  EXPECT_EQ(targets, "ab\n");
  testing::Made<Dataset> without = open();
  policy(without).prepare(0, requests({0}), generator);
  EXPECT_EQ(generator.specs[1].thinking.tokens, -1);
}

TEST_F(RolloutsTest, GoesThroughAllPromptsInEveryEpoch) {
  testing::Made<Dataset> data = open("batch = 6\nanswers = 2");
  Scripted generator(letters);
  policy(data).prepare(0, requests({0, 6, 12, 18}, 6), generator);
  std::set<std::vector<std::string>> orders;
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::string> order;
    for (std::size_t group = 0; group < 3; ++group) order.push_back(generator.asked[6 * epoch + 2 * group]);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_THAT(order, ElementsAre("1+1=", "2+2=", "?"));
  }
  EXPECT_GT(orders.size(), 1u);
}

TEST_F(RolloutsTest, AnswersThatFillTheContextEndAsATarget) {
  testing::Made<Dataset> data = open();
  Scripted generator([](std::uint64_t) { return std::string("987654321"); });
  policy(data).prepare(0, requests({0}), generator);
  Batch batch(*data);
  data->read({Split::kTrain, 0, 4}, batch.views);
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto before = static_cast<std::int64_t>(generator.asked[i].size());
    EXPECT_EQ(batch.row(batch.tokens, i)[7], '9' - (7 - before));
    EXPECT_EQ(batch.row(batch.targets, i)[7], '9' - (8 - before)) << "beyond the sample, a target alone";
  }
}

TEST_F(RolloutsTest, KeepsWhatTheTrainedGraphSaysAndTheDistanceFromTheGenerator) {
  testing::Made<Dataset> data = open();
  Scripted generator(letters);
  policy(data).prepare(0, requests({0, 8}), generator);
  EXPECT_EQ(policy(data).scored(), "lm_head");
  Batch batch(*data);
  for (const std::int64_t first : {0, 8}) {
    std::vector<float> said(32);
    for (std::size_t i = 0; i < said.size(); ++i) said[i] = -0.1F * static_cast<float>(first + 1) - 0.01F * i;
    policy(data).score({Split::kTrain, first, 4}, {said.data(), Shape{4, 8}, DType::kF32});
    data->read({Split::kTrain, first, 4}, batch.views);
    for (std::int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(batch.reals(batch.drawn, i),
                (std::vector<double>{said.begin() + i * 8, said.begin() + (i + 1) * 8}));
  }
  // Of sample 0: "a\n" with -0.5 and -0.625 from the last place of the prompt on.
  const std::size_t at = generator.asked[0].size() - 1;
  const auto distance = [&](std::size_t t) {
    return std::abs(static_cast<double>(-0.1F - 0.01F * static_cast<float>(at + t)) + 0.5 +
                    static_cast<double>(t) / 8);
  };
  ASSERT_EQ(host_.numbers["log_prob_difference"].size(), 8u);
  EXPECT_NEAR(host_.numbers["log_prob_difference"][0], std::max(distance(0), distance(1)), 1e-6);
  std::vector<float> few(16);
  EXPECT_THAT(testing::error_of(
                  [&] {
                    policy(data).score({Split::kTrain, 0, 4}, {few.data(), Shape{4, 4}, DType::kF32});
                  },
                  ErrorKind::kRun),
              HasSubstr("value 'lm_head' has 16 elements for samples 0 to 4; expected the log-probability of "
                        "each of 32 targets"));
}

// Micro-batch m of replica r of R is samples (m R + r) B ...
TEST_F(RolloutsTest, AnyNumberOfReplicasSeesTheSame) {
  const auto rows = [&](std::initializer_list<std::int64_t> firsts) {
    testing::Made<Dataset> data = open();
    Scripted generator(letters);
    policy(data).prepare(0, requests(firsts), generator);
    std::map<std::int64_t, std::vector<std::int64_t>> all;
    Batch batch(*data);
    for (const std::int64_t first : firsts) {
      data->read({Split::kTrain, first, 4}, batch.views);
      for (std::int64_t i = 0; i < 4; ++i) {
        std::vector<std::int64_t>& row = all[first + i];
        for (const std::int32_t token : batch.row(batch.tokens, i)) row.push_back(token);
        for (const std::int32_t target : batch.row(batch.targets, i)) row.push_back(target);
        for (const std::int64_t bits : batch.row(batch.advantages, i)) row.push_back(bits);
      }
    }
    return all;
  };
  const auto one = rows({0, 4, 8, 12});
  auto two = rows({0, 8});
  two.merge(rows({4, 12}));
  EXPECT_EQ(one.size(), 16u);
  EXPECT_EQ(two, one);
}

TEST_F(RolloutsTest, DropsAnswersWithoutAValidReward) {
  testing::Made<Dataset> data = open("batch = 4\nanswers = 4\nmost_dropped = 0.25");
  Scripted generator([](std::uint64_t sequence) {
    return std::string(sequence == 1       ? "x\n"
                       : sequence == 6     ? "n\n"
                       : sequence == 8     ? "t\n"
                       : sequence % 2 == 0 ? "aa\n"
                                           : "bbbb\n");
  });
  policy(data).prepare(0, requests({0, 4, 8}), generator);
  Batch batch(*data);
  for (const std::int64_t lost : {1, 6, 8}) {
    data->read({Split::kTrain, lost / 4 * 4, 4}, batch.views);
    EXPECT_EQ(batch.row(batch.targets, lost % 4), std::vector<std::int32_t>(8, -1)) << lost;
    EXPECT_EQ(batch.reals(batch.advantages, lost % 4), std::vector<double>(8, 0)) << lost;
    double sum = 0;
    for (std::int64_t i = 0; i < 4; ++i) sum += batch.reals(batch.advantages, i)[0];
    EXPECT_NEAR(sum, 0, 1e-12) << "the others are a group of their own";
    EXPECT_NE(batch.reals(batch.advantages, 3)[0], 0);
  }
  EXPECT_THAT(host_.numbers["dropped"], ElementsAre(0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0));
  ASSERT_EQ(host_.messages.size(), 3u);
  EXPECT_THAT(host_.messages[0], HasSubstr("rollout 1 is dropped (an answer to line "));
  EXPECT_THAT(host_.messages[0], HasSubstr("prompts.jsonl): no number"));
  EXPECT_THAT(host_.messages[1], HasSubstr("part 'number' of the reward is nan"));
  EXPECT_THAT(host_.messages[2], HasSubstr("the reward gives part 'number' twice"));
}

TEST_F(RolloutsTest, EndsTheRunAboveTheShareThatMayBeDropped) {
  testing::Made<Dataset> data = open("batch = 4\nanswers = 2\nmost_dropped = 0.25");
  const auto dropping = [](std::uint64_t count) {
    return Scripted(
        [count](std::uint64_t sequence) { return std::string(sequence < count ? "x\n" : "aa\n"); });
  };
  Scripted fine = dropping(2), many = dropping(3);
  policy(data).prepare(0, requests({0, 4}), fine);
  EXPECT_THAT(testing::error_of(
                  [&] {
                    policy(data).prepare(2, requests({0, 4}), many);
                  },
                  ErrorKind::kRun),
              HasSubstr("data.rollouts: 3 of 8 answers before slot 2 have no valid reward, and option "
                        "'most_dropped' allows a share of 0.25; the last one: no number."));
}

TEST_F(RolloutsTest, GoesOnFromItsState) {
  testing::Made<Dataset> data = open(), resumed = open(), early = open();
  Scripted generator(letters);
  Memory none;
  policy(data).state(none);
  policy(data).prepare(0, requests({0, 8}), generator);
  std::vector<float> said(32, -0.3F);
  policy(data).score({Split::kTrain, 8, 4}, {said.data(), Shape{4, 8}, DType::kF32});
  Memory kept;
  policy(data).state(kept);
  kept.loads = true;
  policy(resumed).state(kept);
  Batch before(*data), after(*resumed);
  for (const std::int64_t first : {0, 8}) {
    data->read({Split::kTrain, first, 4}, before.views);
    resumed->read({Split::kTrain, first, 4}, after.views);
    EXPECT_EQ(after.tokens, before.tokens);
    EXPECT_EQ(after.targets, before.targets);
    EXPECT_EQ(after.drawn, before.drawn);
    EXPECT_EQ(after.advantages, before.advantages);
  }
  none.loads = true;
  policy(early).state(none);
  early->read({Split::kTrain, 4, 4}, after.views);
  EXPECT_EQ(after.row(after.targets, 0), std::vector<std::int32_t>(8, -1));
}

TEST_F(RolloutsTest, HasPromptsWithoutTargetsUntilItIsPreparedAndThenWhatWasDrawn) {
  testing::Made<Dataset> data = open();
  Batch batch(*data);
  data->read({Split::kTrain, 2, 3}, batch.views);
  EXPECT_NE(batch.row(batch.tokens, 2)[0], 0);
  EXPECT_EQ(batch.row(batch.tokens, 3), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(batch.targets, std::vector<std::int32_t>(32, -1));
  Scripted generator(letters);
  policy(data).prepare(0, requests({8}), generator);
  for (const std::int64_t first : {0, 4, 9, 12})
    EXPECT_THAT(
        testing::error_of(
            [&] {
              data->read({Split::kTrain, first, 4}, batch.views);
            },
            ErrorKind::kRun),
        HasSubstr(
            "was not drawn; go on with the batch, run.accumulate and parallel.ranks of the run that drew"))
        << first;
  EXPECT_THAT(testing::error_of(
                  [&] {
                    data->read({Split::kVal, 0, 1}, batch.views);
                  },
                  ErrorKind::kRun),
              HasSubstr("of the val split were asked for; there are none of val"));
}

TEST_F(RolloutsTest, RefusesFilesAndOptionsWithMistakes) {
  const std::string fine = "batch = 4\nanswers = 2";
  const struct {
    std::string options, prompts, message;
  } cases[] = {
      {"batch = 6\nanswers = 4", kPrompts,
       "option 'batch' must be a multiple of the 4 answers to a prompt, found 6"},
      {fine, "\n \n", "prompts.jsonl' has no prompt"},
      {fine, "{\"prompt\": \"a\"}\n{\"prompt\": \n", "prompts.jsonl:2: not valid JSON"},
      {fine, "{\"question\": \"a\"}", "prompts.jsonl:1: expected an object with a text \"prompt\""},
      {fine, "{\"prompt\": 7}", "prompts.jsonl:1: expected an object with a text \"prompt\""},
      {fine, "[1]", "prompts.jsonl:1: expected an object with a text \"prompt\""},
      {fine, "{\"prompt\": \"\"}", "prompts.jsonl:1: the prompt has no token"},
      {fine, "{\"prompt\": \"123456789\"}",
       "prompts.jsonl:1: the prompt has 9 tokens, and data.context = 8 leaves no room for an answer to more "
       "than 8"},
      {fine, "{\"messages\": []}", "prompts.jsonl:1: the line has \"messages\", which [data.conversations]"},
      {fine + "\npath = 'nowhere.jsonl'", kPrompts, "path"},
      {fine + "\nthink = 1\nthink_close = ''", kPrompts,
       "data.rollouts: think_close: the closing tag of the thinking budget is empty, expected a text"},
      {fine + "\nthink = -1", kPrompts, "think"},
  };
  for (const auto& test : cases)
    EXPECT_THAT(testing::error_of([&] { open(test.options, test.prompts); }), HasSubstr(test.message));
  testing::Made<Dataset> data = open();
  Scripted generator(letters);
  generator.context_ = 7;
  EXPECT_THAT(testing::error_of([&] { policy(data).prepare(0, requests({0}), generator); }),
              HasSubstr("option 'context' is 8, and the model sees 7 positions"));
}

}  // namespace
}  // namespace tenon::rollouts
