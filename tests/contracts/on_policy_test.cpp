// Runs on samples that the model draws from its current weights: when they are drawn, that any number of
// replicas sees the same, that a run goes on inside a period, and that the trained graph gives what was drawn
// the probability that it had.
#include "support.hpp"

#include <tenon/error.hpp>
#include <tenon/generator.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/reward.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

namespace rehearsal::on_policy_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;
using Sets = std::vector<std::string>;

/// All answers that were scored, in order of their texts.
struct Answers {
  std::mutex mutex;
  std::vector<std::string> all;
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex);
    std::sort(all.begin(), all.end());
    return std::exchange(all, {});
  }
} answers;

/// The share of even bytes; bytes below `refused` throw.
class Even final : public Reward {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("refused", "0")};
  static constexpr ComponentInfo kInfo{.id = "even", .summary = "share of even bytes", .options = kOptions};
  explicit Even(const Options& options) : refused_(options.integer("refused")) {}
  void score(const RewardSample& sample, RewardParts& parts) const override {
    double even = 0;
    bool low = false;
    for (const char byte : sample.answer) {
      even += static_cast<unsigned char>(byte) % 2 == 0 ? 1 : 0;
      low |= static_cast<unsigned char>(byte) < refused_;
    }
    {
      const std::lock_guard lock(answers.mutex);
      answers.all.push_back(std::string(sample.prompt) + "|" + std::string(sample.answer));
    }
    if (low) fail_run("a low byte");
    parts.add("even", even / static_cast<double>(sample.answer.size()));
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t refused_;
};

/// Asks for the generator where it is there, and where it is not.
class Asking final : public Observer, public TensorObserver {
 public:
  static constexpr ComponentInfo kInfo{.id = "asking", .summary = "asks for text"};
  Asking(const Options&, Host& host) : host_(host) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    auto* const generator = static_cast<Generator*>(host_.query(Generator::kId));
    if (generator == nullptr) return record_metric(host_, "between", 0);
    const std::int32_t ids[] = {'1', '+'};
    const Prompt prompt{ids, static_cast<std::uint64_t>(record.slot)};
    const auto text = generator->generate({&prompt, 1}, {.most = 3});
    record_metric(host_, "between", static_cast<double>(text.at(0).ids.size()));
    record_metric(host_, "context", static_cast<double>(generator->context()));
    record_metric(host_, "vocabulary", static_cast<double>(generator->vocabulary()));
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span& span) override {
    if (span.track == "generate") record_metric(host_, "span_" + std::string(span.name), 1);
  }
  void on_finish(std::string_view, std::string_view) override {}
  TensorRequest tensors(std::int64_t) override {
    record_metric(host_, "within", host_.query(Generator::kId) == nullptr ? 0 : 1);
    return {};
  }
  void on_output(const ObservedOutput&) override {}
  void on_parameters(std::span<const ObservedParameter>) override {}
  void* query(std::string_view id) override {
    if (id == TensorObserver::kId) return static_cast<TensorObserver*>(this);
    return id == kSpanObserverId ? this : nullptr;
  }

 private:
  Host& host_;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{
                        .id = "rehearsal.on_policy", .version = "1.0.0", .summary = "samples of the model"},
                    Even, Asking)

class OnPolicyRuns : public ::testing::Test {
 protected:
  OnPolicyRuns() {
    std::filesystem::create_directories(folder_.path);
    std::ofstream out(prompts());
    for (const char* prompt : {"1+1=", "2+2=", "3+", "a longer one"})
      out << "{\"prompt\": \"" << prompt << "\"}\n";
    answers.take();
  }
  std::string prompts() const { return folder_.path + "/prompts.jsonl"; }

  /// A run of 6 slots on rollouts of a period of 2; `data` among the options of the data set.
  Sets sets(const Sets& more = {}, const std::string& data = "period=2, batch=4",
            const std::string& reward = "type='even'") const {
    Sets all = {"run.steps=6", "run.log_every=1",
                "data={type='rollouts', path='" + prompts() +
                    "', context=18, answers=2, answer_tokens=6, most_dropped=0.0, " + data + ", reward={" +
                    reward + "}}",
                "model={type='gpt_neo', layers=1, width=16, heads=2, init_scale=0.3, objective='policy'}",
                "optimizer={type='sgd', lr=0.5}"};
    for (const std::string& set : more) {
      // A whole table takes the place of the one here: tables of two types do not mix.
      const auto key = set.find("={");
      if (key != std::string::npos)
        std::erase_if(all, [&](const std::string& old) { return old.starts_with(set.substr(0, key + 2)); });
      all.push_back(set);
    }
    return all;
  }
  RunResult run(const std::string& name, const Sets& all, const std::string& toml = "", bool resume = false) {
    return train(plugin, toml, all, folder_, name, resume);
  }
  std::string refusal(const Sets& all, const std::string& toml = "") {
    try {
      const RunResult result = try_train(plugin, toml, all, folder_, "refused", false);
      return result.status == "failed" ? result.error : "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  }

  Folder folder_;
};

double most(const RunResult& result, const std::string& name) {
  return result.distributions.at(name).most;
}

TEST_F(OnPolicyRuns, DrawBeforeTheFirstSlotOfEachPeriod) {
  const RunResult result = run("run", sets());
  EXPECT_EQ(answers.take().size(), 3u * 2 * 4) << "three periods of two micro-batches of four";
  EXPECT_EQ(result.distributions.at("reward").count, 24u);
  EXPECT_EQ(result.distributions.at("clip_share").count, 6u) << "all slots had targets";
  EXPECT_LT(most(result, "log_prob_difference"), 1e-4) << "generator and trained graph have the same weights";
  // The first slot of a period trains on its own weights, the second no longer does.
  EXPECT_GT(most(result, "ratio_change_most"), 1e-3);
  std::ifstream lines(result.folder + "/metrics.jsonl");
  std::int64_t equal = 0, other = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"ratio_change_most\"") == std::string::npos) continue;
    const bool first = line.find("\"step\": 1,") != std::string::npos ||
                       line.find("\"step\": 3,") != std::string::npos ||
                       line.find("\"step\": 5,") != std::string::npos;
    const bool zero = line.find("\"value\": 0,") != std::string::npos;
    EXPECT_EQ(zero, first) << line;
    ++(zero ? equal : other);
  }
  EXPECT_EQ(equal, 3);
  EXPECT_EQ(other, 3);
}

TEST_F(OnPolicyRuns, GiveWhatWasDrawnARatioOfExactlyOneAtARateOfZero) {
  for (const char* kernels : {"reference", "auto"})
    for (const char* precision : {"fp32", "bf16"}) {
      const std::string name = std::string(kernels) + "-" + precision;
      const RunResult result = run(name, sets({std::string("device.kernels='") + kernels + "'",
                                               std::string("precision={type='") + precision + "'}",
                                               "optimizer.lr=0.0", "run.accumulate=2"}));
      EXPECT_EQ(result.distributions.at("ratio_change_most").count, 12u) << name;
      EXPECT_EQ(most(result, "ratio_change_most"), 0) << name;
      EXPECT_EQ(most(result, "clip_share"), 0) << name;
      EXPECT_GT(most(result, "reward"), 0) << name;
    }
}

TEST_F(OnPolicyRuns, TrainADecoder) {
  const std::string model =
      "model={type='decoder', pattern='*-', width=16, heads=2, hidden=24, init_scale=0.3, "
      "objective='policy'}";
  const RunResult still = run("still", sets({model, "optimizer.lr=0.0"}));
  EXPECT_EQ(still.distributions.at("ratio_change_most").count, 6u);
  EXPECT_EQ(most(still, "ratio_change_most"), 0);
  EXPECT_LT(most(still, "log_prob_difference"), 1e-4);
  EXPECT_GT(most(run("trained", sets({model})), "ratio_change_most"), 0);
}

TEST_F(OnPolicyRuns, KeepDropoutOfTheSlotThatTrainsThem) {
  const RunResult result = run("run", sets({"optimizer.lr=0.0", "model.dropout=0.3", "run.accumulate=2"}));
  EXPECT_EQ(most(result, "ratio_change_most"), 0);
  EXPECT_GT(most(result, "log_prob_difference"), 1e-3) << "the generator has no dropout";
}

TEST_F(OnPolicyRuns, GoOnInsideAPeriodWithTheSameBits) {
  const std::string saves = "[recovery]\ntype = 'full'\nevery = 1\nkeep = 50\nasync = false\n";
  const Sets all = sets({"run.steps=8"}, "period=3, batch=4");
  const RunResult whole = run("whole", all, saves);
  const auto drawn = answers.take();
  for (const int stop : {1, 2, 3, 4, 5}) {
    Sets failing = all;
    failing.push_back("fault=[{rank=0, step=" + std::to_string(stop) + ", kind='crash'}]");
    const std::string name = "stopped" + std::to_string(stop);
    EXPECT_EQ(try_train(plugin, saves, failing, folder_, name, false).status, "failed");
    answers.take();
    const RunResult resumed = run(name, all, saves, true);
    EXPECT_EQ(resumed.weights_hash, whole.weights_hash) << stop;
    EXPECT_EQ(resumed.state_hash, whole.state_hash) << stop;
    const std::size_t periods = stop <= 0 ? 3 : stop <= 3 ? 2 : 1;
    EXPECT_EQ(answers.take().size(), (stop == 3 ? 2 : periods) * 12) << stop;
  }
  EXPECT_EQ(drawn.size(), 36u);
}

TEST_F(OnPolicyRuns, ShowAnyNumberOfReplicasTheSame) {
  const RunResult one = run("one", sets({"run.accumulate=2", "optimizer.lr=0.05"}));
  const auto alone = answers.take();
  const RunResult two =
      run("two", sets({"optimizer.lr=0.05"}), std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n");
  // The first period is drawn from equal weights; later ones differ in the last bits of sums over replicas.
  EXPECT_EQ(answers.take().size(), alone.size());
  const RunResult still_one = run("still one", sets({"run.accumulate=2", "optimizer.lr=0.0"}));
  const auto still = answers.take();
  const RunResult still_two =
      run("still two", sets({"optimizer.lr=0.0"}), std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n");
  EXPECT_EQ(answers.take(), still);
  EXPECT_NEAR(still_two.distributions.at("reward").mean, still_one.distributions.at("reward").mean, 1e-12);
  double seconds = 0;
  for (const RankTime& rank : still_two.communication) seconds += rank.generate_s;
  EXPECT_GT(seconds, 0);
}

TEST_F(OnPolicyRuns, RefuseAnotherNumberOfReplicasInsideAPeriod) {
  const std::string saves =
      "[transport]\ntype = 'thread'\n[sync]\ntype = 'ddp'\n[recovery]\ntype = 'full'\n"
      "every = 1\nkeep = 50\nasync = false\n";
  for (const int stop : {3, 4}) {
    const std::string name = "run" + std::to_string(stop);
    const Sets two = sets({"parallel.ranks=2"}), one = sets({"run.accumulate=2"});
    Sets failing = two;
    failing.push_back("fault=[{rank=0, step=" + std::to_string(stop) + ", kind='crash'}]");
    EXPECT_EQ(try_train(plugin, saves, failing, folder_, name, false).status, "failed");
    if (stop == 4) {
      EXPECT_EQ(run(name, one, saves, true).steps, 6) << "where a period begins all is drawn anew";
      continue;
    }
    std::string message = "accepted";
    try {
      message = try_train(plugin, saves, one, folder_, name, true).error;
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr("the checkpoint of slot 3 holds samples that 2 replica(s) drew from the "
                                   "model, and this run has 1"));
  }
}

TEST_F(OnPolicyRuns, CountAnswersWithoutARewardAndEndAboveTheirShare) {
  const std::string reward = "type='even', refused=20", some = "period=2, batch=4, ";
  Sets all = sets({}, some + "seed=2", reward);
  for (std::string& set : all)
    if (const auto at = set.find("most_dropped=0.0"); at != std::string::npos)
      set.replace(at, 16, "most_dropped=1.0");
  const RunResult result = run("dropped", all);
  const Distribution& dropped = result.distributions.at("dropped");
  EXPECT_EQ(dropped.count, 24u);
  EXPECT_GT(dropped.mean, 0);
  EXPECT_LT(dropped.mean, 1);
  EXPECT_EQ(result.distributions.at("reward").count, 24 - std::llround(dropped.mean * 24));
  std::stringstream log;
  log << std::ifstream(result.folder + "/log.rank0.txt").rdbuf();
  EXPECT_THAT(log.str(), HasSubstr("is dropped (an answer to line "));
  EXPECT_THAT(log.str(), HasSubstr("a low byte"));
  EXPECT_THAT(refusal(sets({}, some + "seed=2", reward)),
              HasSubstr("have no valid reward, and option 'most_dropped' allows a share of 0"));
}

TEST_F(OnPolicyRuns, AnswerForTheGeneratorBetweenSlotsAlone) {
  for (const bool drawn : {true, false}) {
    Sets more = {"observe=[{type='asking'}]"};
    if (!drawn)
      more.insert(more.end(), {"data={type='text', context=18, batch=4}", "model.objective='tokens'"});
    const RunResult result = run(drawn ? "drawn" : "text", sets(more));
    EXPECT_EQ(result.distributions.at("between").mean, 3);
    EXPECT_EQ(most(result, "within"), 0);
    EXPECT_EQ(most(result, "context"), 18);
    EXPECT_EQ(most(result, "vocabulary"), 256);
    EXPECT_EQ(result.distributions.contains("span_draw"), drawn);
    EXPECT_EQ(result.distributions.contains("span_score"), drawn);
  }
  const RunResult none = run("none", {"observe=[{type='asking'}]", "optimizer={type='sgd', lr=0.1}"});
  EXPECT_EQ(most(none, "between"), 0) << "the model is no language model";
}

TEST_F(OnPolicyRuns, AreRefusedWhereSamplesCannotBeOfTheTrainedWeights) {
  const std::string two = kTwoReplicas;
  const struct {
    Sets sets;
    std::string toml, message;
  } cases[] = {
      {{"model={type='blank', layer=[{name='wte', type='embedding', inputs=['tokens'], rows=256, width=8}, "
        "{name='lm_head', type='head_cross_entropy', inputs=['wte', 'targets'], vocabulary=256}]}"},
       "",
       "data.rollouts draws its samples from the model, which this run cannot: "
       "model 'blank' is no language model; expected one that offers"},
      {{"parallel.workers=2"}, "", "parallel.workers = 2: workers that update the weights"},
      {{}, two + "[sync]\ntype = 'local_sgd'\n", "the replicas of sync strategy 'local_sgd' differ"},
      {{"data.scored='h'"}, "", "'h'"},
      {{"model.objective='tokens'"}, "", "'lm_head' has 2 elements for samples 0 to 4"},
      {{"data={type='text', context=18, batch=4}"},
       "",
       "model gpt_neo: objective = \"policy\" needs a data field 'drawn'"},
  };
  for (const auto& test : cases) EXPECT_THAT(refusal(sets(test.sets), test.toml), HasSubstr(test.message));
}

}  // namespace
}  // namespace rehearsal::on_policy_test
