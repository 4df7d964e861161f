#include "common.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::reward_basic {
namespace {

std::string placed(const Value& value) {
  return value.origin.file.empty() ? "" : value.origin.text() + ": ";
}

}  // namespace

RewardBase::RewardBase(const Options& options) : name_(options.text("name")) {
  if (name_.empty()) fail_config("'name' is empty; a part of a reward needs a name, for records");
}

const Value& field(const RewardSample& given, std::string_view reward, std::string_view name) {
  if (given.sample == nullptr) {
    fail_run(
        fmt::format("there is no sample to the prompt, and {} reads its field '{}'; give prompts as lines of "
                    "JSONL with this field",
                    reward, name));
  }
  const Value* const found = given.sample->find(name);
  if (found == nullptr) {
    fail_run(fmt::format("{}the sample lacks the field '{}', which {} reads; add it to the line",
                         placed(*given.sample), name, reward));
  }
  return *found;
}

void refuse_field(const Value& value, std::string_view name, std::string_view expected) {
  fail_run(
      fmt::format("{}field '{}': expected {}, found {}", placed(value), name, expected, value.description()));
}

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace tenon::reward_basic
