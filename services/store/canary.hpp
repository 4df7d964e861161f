// The canary of a generation: the loss of the first micro-batch that was trained after it was saved, in
// `rank<r>.canary` beside its tensors. It tells of content that was wrong before its digest was taken. A file
// of its own, because it is known only once the slot after the save has run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::checkpoint {

inline constexpr std::int64_t kMaxCanaryBytes = std::int64_t{1} << 16;

struct CanaryRecord {
  std::int64_t slot = 0;      ///< of the generation, and of the loss
  std::int64_t position = 0;  ///< of the slot's first sample in the order of samples
  int rank = 0;
  std::uint64_t loss_sum = 0;    ///< bits of the sum over the micro-batch's targets
  std::uint64_t loss_count = 0;  ///< bits of their number
  std::string setting;           ///< digest of all on which these bits depend beside the generation
  std::string facts;             ///< what people know of that, one line: "ranks 2, kernels avx2, threads 1"
  bool operator==(const CanaryRecord& other) const = default;
};

/// "rank3.canary"
std::string canary_name(int rank);
/// The rank of such a name; nothing for other names.
std::optional<int> canary_rank(std::string_view name);
/// Ends with a CRC-32C of everything before it.
std::string canary_text(const CanaryRecord& record);
/// Throws Error(kRun) that begins with `label` for any text that canary_text does not write.
CanaryRecord parse_canary(std::string_view text, const std::string& label);

}  // namespace tenon::checkpoint
