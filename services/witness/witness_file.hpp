// witness.rank<r>.txt: what a rank recorded of the tensors of some slots ([run] witness_every). Lines of
// text; a slot is complete with its `end` line, which holds a digest of its lines:
//
//   tenon witness 1
//   slot 120
//   name 0 output h.0.mlp h.0.mlp       (number, phase, layer, tensor; before its first use)
//   0 0 c8b1...                         (number of the tensor, micro-batch, xxh3-128 of its bytes)
//   end 120 1 4f0a...                   (tensors, xxh3-128 of the lines since `slot`, that one included)
//
// Names have '%' and two hexadecimal digits for blanks, control characters and '%'.
#pragma once

#include <tenon/files.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::train {

struct WitnessName {
  std::string phase;  ///< "input", "output", "gradient", "weight", "state" or "round"
  std::string layer, tensor;
  bool operator==(const WitnessName&) const = default;
};

struct WitnessDigest {
  std::uint64_t high = 0, low = 0;
  bool operator==(const WitnessDigest&) const = default;
};

struct WitnessEntry {
  std::size_t name = 0;  ///< in WitnessRecord::names
  std::int64_t micro = 0;
  WitnessDigest digest;
};

struct WitnessSlot {
  std::int64_t slot = 0;
  std::vector<WitnessEntry> entries;  ///< in the order in which the slot made them
};

struct WitnessRecord {
  std::vector<WitnessName> names;
  std::vector<WitnessSlot> slots;  ///< ascending

  /// Null where the slot was not recorded.
  const WitnessSlot* find(std::int64_t slot) const;
};

/// "witness.rank3.txt"
std::string witness_file_name(int rank);
inline constexpr std::int64_t kLargestWitness = std::int64_t{4} << 30;

/// Reads the text of a file. Throws Error(kRun) that begins with `label` and names the line of whatever is
/// damaged, incomplete or out of order.
WitnessRecord parse_witness(std::string_view text, const std::string& label);

/// The part of a file that a run goes on from: the slots before `end`.
struct WitnessHead {
  std::size_t bytes = 0;  ///< of the file, from its beginning
  std::vector<WitnessName> names;
  std::string damage;  ///< why slots before `end` are left out; "" as a rule
};
WitnessHead witness_head(std::string_view text, const std::string& label, std::int64_t end);

/// Text of the slots of one rank, to be appended to its file.
class WitnessText {
 public:
  /// Goes on after `names`.
  explicit WitnessText(std::span<const WitnessName> names = {});

  /// The first line of a file.
  static std::string header();
  void begin_slot(std::int64_t slot);
  /// digest: 32 hexadecimal digits.
  void add(std::string_view phase, std::string_view layer, std::string_view tensor, std::int64_t micro,
           std::string_view digest);
  /// Completes the slot and returns its lines, valid until the next begin_slot().
  std::string_view end_slot();
  bool in_slot() const { return in_slot_; }

 private:
  std::map<std::string, std::size_t, std::less<>> numbers_;  ///< by "phase layer tensor", written
  std::vector<std::string> fresh_;                           ///< of numbers_, since the slot began
  std::string text_;
  std::int64_t slot_ = 0, entries_ = 0;
  bool in_slot_ = false;
};

/// The records of all ranks of an attempt, by rank; empty where it has none. Throws Error(kRun) for damage,
/// or where the file of a rank before the last is missing.
std::vector<WitnessRecord> read_witnesses(FileSystem& files, const std::string& attempt);

}  // namespace tenon::train
