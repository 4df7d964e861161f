// Reward `exact`: an answer is right or wrong, and the sample says what is right: a number, the value of an
// expression, a sum, or a list in ascending order. Values are compared as fractions, never as floating-point
// numbers.
#pragma once

#include "common.hpp"
#include "numbers.hpp"

#include <optional>
#include <vector>

namespace tenon::reward_basic {

class Exact final : public RewardBase {
 public:
  enum class Read { kLast, kWhole };
  static constexpr auto kReads = option::choice<Read>({{"last", Read::kLast}, {"whole", Read::kWhole}});
  static constexpr OptionSpec kOptions[] = {
      option::text("read", "\"last\"")
          .one_of(kReads)
          .doc_text(
              "last: the last number of the text, or for a list the last numbers with nothing but blanks "
              "and commas between them; whole: all of the text, without blanks around it"),
      option::text("marker", nullptr)
          .doc_text(
              "only what follows the last one of these texts is read, e.g. \"####\"; absent: all of it"),
      option::boolean("needs_marker", "true")
          .doc_text("an answer without the marker is wrong; false: all of it is read"),
      right_option(),
      wrong_option(),
      name_option("\"exact\""),
  };
  static constexpr ComponentInfo kInfo{
      .id = "exact",
      .summary = "a number, an expression, a sum or a sorted list is right or wrong",
      .options = kOptions};

  explicit Exact(const Options& options);
  void score(const RewardSample& given, RewardParts& parts) const override;

 private:
  /// What is to be read of an answer; nothing where it lacks the marker.
  std::optional<std::string_view> read_part(std::string_view answer) const;
  bool is_number(std::string_view text, const Fraction& expected) const;
  bool is_list(std::string_view text, const std::vector<Fraction>& expected) const;

  Read read_;
  std::string marker_;
  bool needs_marker_;
  double right_, wrong_;
};

}  // namespace tenon::reward_basic
