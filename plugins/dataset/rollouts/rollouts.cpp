// Every draw is keyed by the sample's number in the global order, and a group lies in one micro-batch, so no
// replica needs another one for its samples.
#include "rollouts.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/permutation.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>

namespace tenon::rollouts {
namespace {

/// Takes the parts of a score, and refuses those that are none.
class Parts final : public RewardParts {
 public:
  explicit Parts(Score& score) : score_(score) {}
  void add(std::string_view name, double value) override {
    if (!std::isfinite(value)) fail_run(fmt::format("part '{}' of the reward is {}", name, value));
    if (!score_.parts.emplace(name, value).second)
      fail_run(fmt::format("the reward gives part '{}' twice", name));
    score_.sum += value;
  }

 private:
  Score& score_;
};

/// The name of a metric, which has no spaces.
std::string part_metric(std::string_view part) {
  std::string name = fmt::format("reward/{}", part);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '\t' || c == '\n'; }, '_');
  return name;
}

}  // namespace

std::vector<double> advantages_of(std::span<const std::optional<double>> rewards, double eps) {
  // Relative to the first one, so that equal rewards have no deviation from rounding.
  const auto first = std::ranges::find_if(rewards, [](const auto& reward) { return reward.has_value(); });
  double sum = 0, count = 0, squares = 0;
  for (const auto& reward : rewards) {
    if (!reward) continue;
    sum += *reward - **first;
    ++count;
  }
  const double mean = count > 0 ? **first + sum / count : 0;
  for (const auto& reward : rewards)
    if (reward) squares += (*reward - mean) * (*reward - mean);
  const double deviation = count > 0 ? std::sqrt(squares / count) : 0;
  std::vector<double> advantages(rewards.size(), 0);
  for (std::size_t i = 0; i < rewards.size(); ++i)
    if (rewards[i] && deviation > 0) advantages[i] = (*rewards[i] - mean) / (deviation + eps);
  return advantages;
}

Rollouts::Rollouts(const Options& options, Host& host)
    : path_(options.text("path")),
      scored_(options.text("scored")),
      reward_(options.component<Reward>("reward")),
      tokenizer_(options.component<Tokenizer>("tokenizer")),
      conversations_(options.component<Dataset>("conversations")),
      answers_(options.integer("answers")),
      batch_(options.integer("batch")),
      context_(options.integer("context")),
      answer_tokens_(options.integer("answer_tokens")),
      period_(options.integer("period")),
      seed_(options.integer("seed")),
      temperature_(options.real("temperature")),
      eps_(options.real("eps")),
      most_dropped_(options.real("most_dropped")),
      think_(options.has("think") ? options.integer("think") : -1),
      think_grace_(options.integer("think_grace")),
      think_close_(options.text("think_close")),
      host_(host) {
  for (const std::string_view stop : options.texts("stop")) {
    if (stop.empty()) fail_config("data.rollouts: option 'stop' has an empty text");
    stops_.emplace_back(stop);
  }
  if (batch_ % answers_ != 0)
    fail_config(
        fmt::format("data.rollouts: option 'batch' must be a multiple of the {} answers to a prompt, "
                    "found {}; a group is never split",
                    answers_, batch_));
  if (conversations_ != nullptr && tokenizer_ != nullptr)
    fail_config(
        "data.rollouts: both [data.tokenizer] and [data.conversations] are given; the conversations have a "
        "tokenizer, leave the first one out");
  if (tokenizer_ == nullptr) tokenizer_ = &bytes_;
  // What the bits of f64 are kept in has no digits to lose, whatever the activations are.
  info_.fields = {{"tokens", DType::kI32, Shape{context_}},
                  {"targets", DType::kI32, Shape{context_}},
                  {"drawn", DType::kI64, Shape{context_}},
                  {"advantages", DType::kI64, Shape{context_}}};
  info_.tokens_per_sample = context_;
}

void Rollouts::open(std::uint64_t seed_order) {
  seed_order_ = seed_order;
  const ConversationText* conversations = nullptr;
  if (conversations_ != nullptr) {
    conversations_->open(seed_order);
    auto* const text = static_cast<TokenizedText*>(conversations_->query(TokenizedText::kId));
    conversations = static_cast<ConversationText*>(conversations_->query(ConversationText::kId));
    if (text == nullptr || conversations == nullptr)
      fail_config(
          "data.rollouts: [data.conversations] is a data set that does not write messages as tokens; "
          "expected "
          "one that offers 'tenon.dataset.conversations/1', such as conversations");
    tokenizer_ = &text->tokenizer();
    const std::string end = tokenizer_->decode(conversations->answer_end());
    if (!end.empty()) stops_.push_back(end);
  }
  if (think_ >= 0)
    thinking_ =
        thinking_budget(*tokenizer_, think_, think_grace_, think_close_, "data.rollouts: think_close");
  prompts_ = prompts_of(path_, *tokenizer_, conversations, context_);
  info_.attributes = {{"vocabulary", tokenizer_->vocabulary()}};
  info_.sources = {{path_, sha256_of_file(*make_posix_files(), path_)}};
  if (conversations_ != nullptr)
    for (const DataSource& source : conversations_->info().sources) info_.sources.push_back(source);
  info_.train_samples = static_cast<std::int64_t>(prompts_.size()) * answers_;
}

void* Rollouts::query(std::string_view interface_id) {
  if (interface_id == OnPolicyDataset::kId) return static_cast<OnPolicyDataset*>(this);
  if (interface_id == TokenizedText::kId) return static_cast<TokenizedText*>(this);
  if (interface_id == ConversationText::kId && conversations_ != nullptr)
    return conversations_->query(interface_id);
  return nullptr;
}

std::size_t Rollouts::prompt_of(std::int64_t sample) const {
  const auto group = static_cast<std::uint64_t>(sample / answers_);
  const Permutation order(prompts_.size(), random_key(seed_order_, "order"), group / prompts_.size());
  return static_cast<std::size_t>(order(group % prompts_.size()));
}

std::int64_t Rollouts::row_of(std::int64_t sample) const {
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), sample);
  if (after == firsts_.begin()) return -1;
  const std::int64_t index = after - firsts_.begin() - 1, place = sample - firsts_[index];
  return place < batch_ ? index * batch_ + place : -1;
}

void Rollouts::read(const BatchRequest& request, std::span<const TensorView> fields) {
  const bool train = request.split == Split::kTrain;
  if (request.first < 0 || request.count < 0 || request.count > batch_ || (!train && request.count > 0))
    fail_run(fmt::format(
        "data.rollouts: samples {} to {} of the {} split were asked for; there are none of val, and at most "
        "{} at once",
        request.first, request.first + request.count, split_name(request.split), batch_));
  if (fields.size() != info_.fields.size())
    fail_run(fmt::format("data.rollouts: expected {} fields, found {}", info_.fields.size(), fields.size()));
  auto* const tokens = fields[0].as<std::int32_t>();
  auto* const targets = fields[1].as<std::int32_t>();
  auto* const drawn = fields[2].as<std::int64_t>();
  auto* const advantages = fields[3].as<std::int64_t>();
  const auto bits = [](double value) { return std::bit_cast<std::int64_t>(value); };
  for (std::int64_t i = 0; i < batch_; ++i) {
    const std::int64_t at = i * context_;
    std::fill_n(tokens + at, context_, 0);
    std::fill_n(targets + at, context_, -1);
    std::fill_n(drawn + at, context_, bits(0));
    std::fill_n(advantages + at, context_, bits(0));
    if (i >= request.count) continue;
    const std::int64_t sample = request.first + i;
    if (!prepared_) {  // prompts without answers
      const std::vector<std::int32_t>& ids = prompts_[prompt_of(sample)].ids;
      std::copy(ids.begin(), ids.end(), tokens + at);
      continue;
    }
    const std::int64_t row = row_of(sample);
    if (row < 0)
      fail_run(
          fmt::format("data.rollouts: sample {} was not drawn; go on with the batch, run.accumulate and "
                      "parallel.ranks of the run that drew the samples of this period",
                      sample));
    std::copy_n(tokens_.data() + row * context_, context_, tokens + at);
    std::copy_n(targets_.data() + row * context_, context_, targets + at);
    std::transform(drawn_.data() + row * context_, drawn_.data() + (row + 1) * context_, drawn + at, bits);
    std::transform(advantages_.data() + row * context_, advantages_.data() + (row + 1) * context_,
                   advantages + at, bits);
  }
}

bool Rollouts::add_token(AnswerText& answer, std::int32_t token) const {
  return token != tokenizer_->end_of_text() && answer.add(token_text(*tokenizer_, token));
}

std::vector<Generated> Rollouts::draw(std::int64_t slot, Generator& generator) const {
  if (generator.context() < context_)
    fail_config(fmt::format("data.rollouts: option 'context' is {}, and the model sees {} positions",
                            context_, generator.context()));
  std::vector<tenon::Prompt> asked;
  GenerationSpec spec;
  spec.most = answer_tokens_;
  spec.temperature = temperature_;
  spec.seed = seed_order_;
  spec.purpose = fmt::format("rollouts {}", seed_);
  for (const std::int64_t first : firsts_)
    for (std::int64_t i = 0; i < batch_; ++i)
      asked.push_back({prompts_[prompt_of(first + i)].ids, static_cast<std::uint64_t>(first + i)});
  spec.thinking = thinking_;
  std::vector<AnswerText> texts(asked.size(), AnswerText(stops_));
  const TokenSink sink = [&](std::size_t index, std::int32_t token, double) {
    return add_token(texts[index], token);
  };
  std::vector<Generated> answers = generator.generate(asked, spec, sink);
  if (answers.size() != asked.size())
    fail_run(fmt::format("data.rollouts: slot {}: the generator gave {} answers to {} prompts", slot,
                         answers.size(), asked.size()));
  return answers;
}

void Rollouts::make_rows(std::span<const BatchRequest> requests) {
  firsts_.clear();
  for (const BatchRequest& request : requests) firsts_.push_back(request.first);
  const std::size_t elements = firsts_.size() * static_cast<std::size_t>(batch_ * context_);
  tokens_.assign(elements, 0);
  targets_.assign(elements, -1);
  drawn_.assign(elements, 0);
  advantages_.assign(elements, 0);
  generated_.assign(elements, 0);
}

std::string Rollouts::answer_text(const Generated& answer) const {
  AnswerText text(stops_);
  for (const std::int32_t id : answer.ids)
    if (!add_token(text, id)) break;
  return text.text();
}

Score Rollouts::score_of(const PromptLine& prompt, const Generated& answer) const {
  Score score;
  Parts parts(score);
  const std::string text = answer_text(answer);
  reward_->score({prompt.text, text, &*prompt.sample}, parts);
  if (score.parts.empty()) fail_run("the reward has no part");
  return score;
}

void Rollouts::write_row(std::int64_t row, const PromptLine& prompt, const Generated& answer) {
  std::int32_t* const tokens = tokens_.data() + row * context_;
  std::int32_t* const targets = targets_.data() + row * context_;
  double* const generated = generated_.data() + row * context_;
  std::copy(prompt.ids.begin(), prompt.ids.end(), tokens);
  const auto before = static_cast<std::int64_t>(prompt.ids.size());
  // The last token of an answer may be beyond the sample: it is a target alone.
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(answer.ids.size()); ++i) {
    const std::int64_t at = before + i;
    if (at > context_) break;
    if (at < context_) tokens[at] = answer.ids[i];
    // The policy is not learned from tokens that it did not draw.
    const bool inserted = i >= answer.inserted_at && i < answer.inserted_at + answer.inserted;
    if (!inserted) targets[at - 1] = answer.ids[i];
    generated[at - 1] = answer.log_probs[i];
  }
}

void Rollouts::prepare(std::int64_t slot, std::span<const BatchRequest> requests, Generator& generator) {
  make_rows(requests);
  prepared_ = true;
  const std::vector<Generated> answers = draw(slot, generator);
  std::int64_t dropped = 0;
  std::string reason;
  std::vector<std::optional<double>> rewards(answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const std::int64_t sample = firsts_[row / batch_] + row % batch_;
    const PromptLine& prompt = prompts_[prompt_of(sample)];
    record_metric(host_, "answer_tokens", static_cast<double>(answers[i].ids.size()));
    try {
      const Score score = score_of(prompt, answers[i]);
      for (const auto& [name, value] : score.parts) record_metric(host_, part_metric(name), value);
      record_metric(host_, "reward", score.sum);
      rewards[i] = score.sum;
      write_row(row, prompt, answers[i]);
    } catch (const std::exception& error) {
      ++dropped;
      reason = error.what();
      host_.log(LogLevel::kWarning, fmt::format("rollout {} is dropped (an answer to line {} of {}): {}",
                                                sample, prompt.line, path_, reason));
    }
    record_metric(host_, "dropped", rewards[i] ? 0 : 1);
  }
  if (static_cast<double>(dropped) > most_dropped_ * static_cast<double>(answers.size()))
    fail_run(fmt::format(
        "data.rollouts: {} of {} answers before slot {} have no valid reward, and option 'most_dropped' "
        "allows "
        "a share of {}; the last one: {}. Correct the reward or the prompts; log.rank{}.txt names each",
        dropped, answers.size(), slot, most_dropped_, reason, host_.rank()));
  for (std::size_t group = 0; group < rewards.size(); group += static_cast<std::size_t>(answers_)) {
    const std::vector<double> mine =
        advantages_of(std::span(rewards).subspan(group, static_cast<std::size_t>(answers_)), eps_);
    for (std::size_t i = 0; i < mine.size(); ++i)
      std::fill_n(advantages_.begin() + static_cast<std::ptrdiff_t>(group + i) * context_, context_, mine[i]);
  }
}

void Rollouts::score(const BatchRequest& request, const TensorView& value) {
  const std::int64_t row = row_of(request.first);
  if (row < 0 || value.elements() != batch_ * context_)
    fail_run(fmt::format(
        "data.rollouts: value '{}' has {} elements for samples {} to {}; expected the "
        "log-probability of each of {} targets. Name its node with option 'scored'",
        scored_, value.elements(), request.first, request.first + request.count, batch_ * context_));
  double* next = drawn_.data() + row * context_;
  for_each_real(value, [&](double log_prob) { *next++ = log_prob; });
  for (std::int64_t i = row; i < row + batch_; ++i) {
    double most = 0;
    bool counts = false;
    for (std::int64_t at = i * context_; at < (i + 1) * context_; ++at) {
      if (targets_[at] < 0) continue;
      counts = true;
      most = std::max(most, std::abs(drawn_[at] - generated_[at]));
    }
    if (counts && std::isfinite(most)) record_metric(host_, "log_prob_difference", most);
  }
}

void Rollouts::state(StateVisitor& visitor) {
  auto rows = static_cast<std::int64_t>(firsts_.size());
  visitor.integer("requests", rows);
  prepared_ = rows > 0;
  if (visitor.loading()) make_rows(std::vector<BatchRequest>(static_cast<std::size_t>(rows)));
  if (rows == 0) return;
  const Shape shape{rows * batch_, context_};
  visitor.tensor("firsts", {firsts_.data(), Shape{rows}, DType::kI64});
  visitor.tensor("tokens", {tokens_.data(), shape, DType::kI32});
  visitor.tensor("targets", {targets_.data(), shape, DType::kI32});
  visitor.tensor("drawn", {drawn_.data(), shape, DType::kF64});
  visitor.tensor("advantages", {advantages_.data(), shape, DType::kF64});
}

}  // namespace tenon::rollouts

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.rollouts",
                               .version = "0.1.0",
                               .summary = "answers of the model as data"},
             tenon::rollouts::Rollouts)
