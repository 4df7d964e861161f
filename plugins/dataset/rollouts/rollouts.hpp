// Data set `rollouts` (contracts dataset/1 and tenon.dataset.on_policy/1): answers that the model itself
// gives to the prompts of a file, in groups, with the advantage of each within its group by a reward. It
// knows neither the loss that is made of them nor the layers of the model.
#pragma once

#include "prompts.hpp"

#include <tenon/dataset.hpp>
#include <tenon/host.hpp>
#include <tenon/on_policy.hpp>
#include <tenon/plugin.hpp>
#include <tenon/reward.hpp>
#include <tenon/sdk/answer_text.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/sdk/prompts.hpp>
#include <tenon/tokenizer.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::rollouts {

/// Sum of the parts of a reward, and the parts.
struct Score {
  double sum = 0;
  std::map<std::string, double, std::less<>> parts;
};

/// (r - mean) / (std + eps) over the rewards of a group, with the population's deviation; 0 for those without
/// a reward.
std::vector<double> advantages_of(std::span<const std::optional<double>> rewards, double eps);

class Rollouts final : public Dataset, public OnPolicyDataset, public TokenizedText {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::path("path", nullptr)
          .mandatory()
          .doc_text(
              "JSONL: a prompt per line, as \"prompt\" or as \"messages\" without the answer, beside what "
              "the reward reads"),
      option::component("reward", Reward::kKind).mandatory().doc_text("says how good an answer is"),
      option::component("tokenizer", Tokenizer::kKind)
          .doc_text("of prompts and answers; absent: bytes, or that of the conversations"),
      option::component("conversations", Dataset::kKind)
          .doc_text("data set that writes \"messages\" as tokens; absent: lines have \"prompt\""),
      option::integer("answers", "8").between(2, 1 << 16).doc_text("answers to each prompt: a group"),
      option::integer("batch", "16")
          .between(2, 1 << 20)
          .in_unit("samples")
          .doc_text("answers per micro-batch, a multiple of `answers`: a group is never split"),
      option::integer("context", "128").between(2, 1 << 20).in_unit("tokens").doc_text("length of a sample"),
      option::integer("answer_tokens", "64")
          .between(1, 1 << 20)
          .in_unit("tokens")
          .doc_text("longest answer; the context may end one earlier"),
      option::texts("stop", "[]")
          .doc_text("texts before which an answer ends; the tokens that hold one are learned; beside the "
                    "tokenizer's end of text"),
      option::integer("think", nullptr)
          .at_least(0)
          .in_unit("tokens")
          .doc_text("tokens of an answer after which the closing tag is inserted at the next end of a line; "
                    "absent: no bound"),
      option::integer("think_grace", "500")
          .at_least(0)
          .in_unit("tokens")
          .doc_text("and at most so many tokens later"),
      option::text("think_close", "\"</think>\"").doc_text("text of the closing tag"),
      option::integer("period", "1")
          .between(1, 1 << 20)
          .in_unit("slots")
          .doc_text("slots that train on the answers of one moment; then all are drawn anew"),
      option::real("temperature", "1").between(1e-3, 1e3).doc_text("divides the logits that are drawn from"),
      option::integer("seed", "1").at_least(0).doc_text("of the draws, beside run.seed_order"),
      option::text("scored", "\"lm_head\"")
          .doc_text("node of the trained graph with the log-probabilities of the targets"),
      option::real("eps", "1e-6").at_least(0).doc_text("added to the deviation of a group's rewards"),
      option::real("most_dropped", "0.1")
          .between(0, 1)
          .doc_text("share of answers without a valid reward above which the run ends"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "rollouts",
      .summary = "answers of the model to prompts, with advantages by a reward",
      .options = kOptions};

  Rollouts(const Options& options, Host& host);
  void open(std::uint64_t seed_order) override;
  std::int64_t batch() const override { return batch_; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override;
  void* query(std::string_view interface_id) override;

  // OnPolicyDataset
  std::int64_t period() const override { return period_; }
  void prepare(std::int64_t slot, std::span<const BatchRequest> requests, Generator& generator) override;
  std::string_view scored() const override { return scored_; }
  void score(const BatchRequest& request, const TensorView& value) override;
  void state(StateVisitor& visitor) override;

  // TokenizedText
  Tokenizer& tokenizer() override { return *tokenizer_; }

 private:
  /// Number of the prompt that a sample answers.
  std::size_t prompt_of(std::int64_t sample) const;
  /// Where the sample is among those that were made; -1: it is not.
  std::int64_t row_of(std::int64_t sample) const;
  void make_rows(std::span<const BatchRequest> requests);
  std::vector<Generated> draw(std::int64_t slot, Generator& generator) const;
  /// Without the text that ended it.
  std::string answer_text(const Generated& answer) const;
  Score score_of(const PromptLine& prompt, const Generated& answer) const;
  void write_row(std::int64_t row, const PromptLine& prompt, const Generated& answer);
  /// Says whether the answer goes on after `token`.
  bool add_token(AnswerText& answer, std::int32_t token) const;

  // Options.
  std::string path_, scored_;
  Reward* reward_;
  Tokenizer* tokenizer_;
  Dataset* conversations_;
  std::int64_t answers_, batch_, context_, answer_tokens_, period_, seed_;
  double temperature_, eps_, most_dropped_;
  std::int64_t think_, think_grace_;
  std::string think_close_;
  std::vector<std::string> stops_;  ///< texts before which an answer ends; from open() on with its own end

  Host& host_;
  ByteTokenizer bytes_;
  std::uint64_t seed_order_ = 0;
  std::vector<PromptLine> prompts_;
  ThinkingBudget thinking_;
  DataInfo info_;

  // Samples of the period, in the order of `firsts_`: `batch_` of each number and after it.
  bool prepared_ = false;
  std::vector<std::int64_t> firsts_;
  std::vector<std::int32_t> tokens_, targets_;  ///< [rows, context]
  std::vector<double> drawn_, advantages_;      ///< likewise
  std::vector<double> generated_;               ///< the generator's log-probabilities, until score()
};

}  // namespace tenon::rollouts
