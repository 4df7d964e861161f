// The plugin `tenon.reward_basic`: rewards that are rules. `exact` has files of its own.
#include "exact.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::reward_basic {

/// Reward `format`: a text in tags, and an answer after it, where they are asked for; no tag where they are
/// not.
class Format final : public RewardBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("open", "\"<think>\"").doc_text("tag that begins the text"),
      option::text("close", "\"</think>\"").doc_text("tag that ends it"),
      option::text("field", nullptr)
          .doc_text("field of the sample that is true where the tags are asked for"),
      option::text("flag", nullptr)
          .doc_text("the tags are asked for where the prompt has this text, e.g. \"detailed thinking on\""),
      right_option(),
      wrong_option(),
      name_option("\"format\""),
  };
  static constexpr ComponentInfo kInfo{
      .id = "format", .summary = "tags are present if and only if they are asked for", .options = kOptions};

  explicit Format(const Options& options)
      : RewardBase(options),
        open_(options.text("open")),
        close_(options.text("close")),
        field_(options.has("field") ? options.text("field") : ""),
        flag_(options.has("flag") ? options.text("flag") : ""),
        right_(options.real("right")),
        wrong_(options.real("wrong")) {
    if (open_.empty() || close_.empty() || open_ == close_)
      fail_config("'open' and 'close' are two different texts, none of them empty");
    if (options.has("field") && options.has("flag"))
      fail_config("'field' and 'flag' both say where the tags are asked for; keep one");
  }

  void score(const RewardSample& given, RewardParts& parts) const override {
    const bool right = is_asked(given) ? is_tagged(trimmed(given.answer)) : has_no_tag(given.answer);
    parts.add(name(), right ? right_ : wrong_);
  }

 private:
  bool is_asked(const RewardSample& given) const {
    if (!flag_.empty()) return given.prompt.find(flag_) != std::string_view::npos;
    if (field_.empty()) return true;
    const Value& asked = field(given, "reward format", field_);
    if (asked.type() != Value::Type::kBoolean) refuse_field(asked, field_, "true or false");
    return asked.boolean();
  }

  bool has_no_tag(std::string_view answer) const {
    return answer.find(open_) == std::string_view::npos && answer.find(close_) == std::string_view::npos;
  }

  /// The opening tag first, one closing tag, and something after it.
  bool is_tagged(std::string_view answer) const {
    if (!answer.starts_with(open_)) return false;
    const std::string_view inside = answer.substr(open_.size());
    const std::size_t end = inside.find(close_);
    if (end == std::string_view::npos || !has_no_tag(inside.substr(0, end))) return false;
    const std::string_view after = inside.substr(end + close_.size());
    return has_no_tag(after) && !trimmed(after).empty();
  }

  std::string open_, close_, field_, flag_;
  double right_, wrong_;
};

/// Reward `length`: a value for each character below or beyond limits.
class Length final : public RewardBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("least", "0").at_least(0).in_unit("characters").doc_text("shorter answers are judged"),
      option::integer("most", nullptr)
          .at_least(0)
          .in_unit("characters")
          .doc_text("longer answers are judged; absent: none"),
      option::real("per_character", "-0.001")
          .between(-kLargest, kLargest)
          .doc_text(
              "value of each character that is missing or too many: below 0 a penalty, above 0 a bonus"),
      option::real("limit", "1")
          .between(0, kLargest)
          .doc_text("the part is at most this, and at least its negative"),
      name_option("\"length\""),
  };
  static constexpr ComponentInfo kInfo{
      .id = "length", .summary = "a penalty or bonus for characters beyond limits", .options = kOptions};

  explicit Length(const Options& options)
      : RewardBase(options),
        least_(options.integer("least")),
        most_(options.has("most") ? options.integer("most") : std::numeric_limits<std::int64_t>::max()),
        per_character_(options.real("per_character")),
        limit_(options.real("limit")) {
    if (least_ > most_)
      fail_config(fmt::format("'least' is {} and 'most' is {}; expected at most that", least_, most_));
  }

  void score(const RewardSample& given, RewardParts& parts) const override {
    const std::int64_t length = characters(given.answer);
    const std::int64_t beyond = length < least_ ? least_ - length : std::max<std::int64_t>(0, length - most_);
    parts.add(name(), std::clamp(per_character_ * static_cast<double>(beyond), -limit_, limit_));
  }

 private:
  /// Characters of UTF-8: bytes that continue none. Any bytes have a number.
  static std::int64_t characters(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
  }

  std::int64_t least_, most_;
  double per_character_, limit_;
};

/// Reward `sum`: the parts of other rewards, each times the weight of its reward.
class Sum final : public Reward {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::components("part", Reward::kKind).mandatory().doc_text("the rewards whose parts are added"),
      option::reals("weights", "[]")
          .between(-kLargest, kLargest)
          .doc_text("a factor for each of them, in their order; empty: 1 for all"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "sum", .summary = "parts of several rewards, with weights", .options = kOptions};

  explicit Sum(const Options& options) : rewards_(options.components<Reward>("part")) {
    const auto weights = options.reals("weights");
    weights_.assign(weights.begin(), weights.end());
    if (rewards_.empty()) fail_config("'part' is an empty list; expected one reward or more");
    if (weights_.empty()) weights_.assign(rewards_.size(), 1.0);
    if (weights_.size() != rewards_.size()) {
      fail_config(fmt::format("'weights' has {} entries for {} rewards in 'part'; expected one for each",
                              weights_.size(), rewards_.size()));
    }
  }

  void score(const RewardSample& given, RewardParts& parts) const override {
    Weighted weighted(parts);
    for (std::size_t i = 0; i < rewards_.size(); ++i) {
      weighted.next(i, weights_[i]);
      rewards_[i]->score(given, weighted);
    }
  }

  void* query(std::string_view) override { return nullptr; }

 private:
  /// Passes the parts of one reward after another on.
  class Weighted final : public RewardParts {
   public:
    explicit Weighted(RewardParts& out) : out_(out) {}
    void next(std::size_t reward, double weight) { reward_ = reward, weight_ = weight; }

    void add(std::string_view name, double value) override {
      const double weighted = weight_ * value;
      if (!std::isfinite(weighted)) {
        fail_run(fmt::format(
            "'part.{}' gives the part '{}' the value {}, times the weight {}; a part of a reward is "
            "a finite number",
            reward_, name, value, weight_));
      }
      const auto before = std::find(names_.begin(), names_.end(), name);
      if (before != names_.end()) {
        fail_config(fmt::format("'part.{}' gives the part '{}', which is there already; set another 'name'",
                                reward_, name));
      }
      names_.emplace_back(name);
      out_.add(name, weighted);
    }

   private:
    RewardParts& out_;
    std::size_t reward_ = 0;
    double weight_ = 1;
    std::vector<std::string> names_;
  };

  std::vector<Reward*> rewards_;
  std::vector<double> weights_;
};

}  // namespace tenon::reward_basic

TENON_PLUGIN(
    tenon::PluginInfo{.id = "tenon.reward_basic",
                      .version = "0.1.0",
                      .summary = "rewards that are rules: right answers, tags, lengths, and sums of rewards"},
    tenon::reward_basic::Exact, tenon::reward_basic::Format, tenon::reward_basic::Length,
    tenon::reward_basic::Sum)
