// For the rewards of this plugin: a base class, options that several of them have, and fields of a sample
// with errors that name them.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/reward.hpp>

#include <string>
#include <string_view>

namespace tenon::reward_basic {

inline constexpr double kLargest = 1e6;  ///< of an option that becomes a part: sums of them stay finite

constexpr OptionSpec right_option() {
  return option::real("right", "1")
      .between(-kLargest, kLargest)
      .doc_text("value of the part for a right answer");
}
constexpr OptionSpec wrong_option() {
  return option::real("wrong", "0")
      .between(-kLargest, kLargest)
      .doc_text("value of the part for any other answer");
}
constexpr OptionSpec name_option(const char* default_toml) {
  return option::text("name", default_toml)
      .doc_text("name of the part; two rewards of one kind in a sum need different ones");
}

/// A reward of one part without further interfaces.
class RewardBase : public Reward {
 public:
  explicit RewardBase(const Options& options);
  void* query(std::string_view) override { return nullptr; }

 protected:
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// The field of a sample that `reward` reads. Throws Error(kRun) where there is no sample, or no such field.
const Value& field(const RewardSample& given, std::string_view reward, std::string_view name);
/// Throws Error(kRun): place, field, what is expected, and what was found.
[[noreturn]] void refuse_field(const Value& value, std::string_view name, std::string_view expected);

/// Without blanks, tabs and line ends at both ends.
std::string_view trimmed(std::string_view text) noexcept;

}  // namespace tenon::reward_basic
