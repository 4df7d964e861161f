// A text has one spelling, so the parser writes what it has read and compares.
#include "store/canary.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

namespace tenon::checkpoint {
namespace {

constexpr std::string_view kFirstLine = "tenon canary 1";
constexpr std::string_view kCanarySuffix = ".canary";
constexpr std::string_view kCanaryPrefix = "rank";

std::string without_crc(const CanaryRecord& record) {
  return fmt::format(
      "{}\nslot {}\nposition {}\nrank {}\nloss_sum {:016x}\nloss_count {:016x}\nsetting {}\n"
      "facts {}\n",
      kFirstLine, record.slot, record.position, record.rank, record.loss_sum, record.loss_count,
      record.setting, record.facts);
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

template <typename Number>
Number number_in(std::string_view text, int base) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

}  // namespace

std::string canary_name(int rank) {
  return fmt::format("{}{}{}", kCanaryPrefix, rank, kCanarySuffix);
}

std::optional<int> canary_rank(std::string_view name) {
  if (!name.starts_with(kCanaryPrefix) || !name.ends_with(kCanarySuffix)) return std::nullopt;
  const auto rank = number_in<int>(name.substr(kCanaryPrefix.size()), 10);
  if (rank < 0 || canary_name(rank) != name) return std::nullopt;
  return rank;
}

std::string canary_text(const CanaryRecord& record) {
  const std::string body = without_crc(record);
  return fmt::format("{}crc32c {:08x}\n", body, crc32c(std::as_bytes(std::span(body))));
}

CanaryRecord parse_canary(std::string_view text, const std::string& label) {
  std::string_view rest = text;
  next_line(rest);
  const auto value_of = [&](std::string_view key) {
    std::string_view line = next_line(rest);
    line.remove_prefix(std::min(line.size(), key.size() + 1));
    return line;
  };
  CanaryRecord record;
  record.slot = number_in<std::int64_t>(value_of("slot"), 10);
  record.position = number_in<std::int64_t>(value_of("position"), 10);
  record.rank = number_in<int>(value_of("rank"), 10);
  record.loss_sum = number_in<std::uint64_t>(value_of("loss_sum"), 16);
  record.loss_count = number_in<std::uint64_t>(value_of("loss_count"), 16);
  record.setting = value_of("setting");
  record.facts = value_of("facts");
  if (record.slot < 0 || record.position < 0 || record.rank < 0 || canary_text(record) != text)
    fail_run(
        fmt::format("{}: no record of a loss, or its CRC-32C differs: it is damaged, or of another "
                    "version; expected '{}', seven lines and their CRC-32C",
                    label, kFirstLine));
  return record;
}

}  // namespace tenon::checkpoint
