// Two records of the same slots side by side: the first tensor that differs, in the order in which a slot
// makes its tensors, and how many were compared.
#pragma once

#include "witness/witness_file.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tenon::train {

struct WitnessDifference {
  std::int64_t slot = 0;
  int rank = 0;
  WitnessName name;
  std::int64_t micro = 0;
  std::string problem;  ///< "" = other bits; else why there is nothing to compare it with
  std::int64_t differing = 0, compared = 0;  ///< tensors of this slot, of all ranks
};

struct WitnessComparison {
  std::vector<std::int64_t> slots;  ///< that both have
  std::int64_t tensors = 0;         ///< compared, of all ranks
  int ranks = 0;
  std::optional<WitnessDifference> first;
};

struct SlotRange {
  std::int64_t first = 0, last = std::numeric_limits<std::int64_t>::max();
};

/// Compares the slots of `range` that both runs recorded. a, b: by rank. Throws Error(kConfig), with the
/// names of the runs, where the numbers of ranks differ, one has no witness, or no slot is common.
WitnessComparison compare_witnesses(const std::vector<WitnessRecord>& a, const std::string& name_a,
                                    const std::vector<WitnessRecord>& b, const std::string& name_b,
                                    const SlotRange& range = {});

/// Slots that rank 0 recorded.
std::set<std::int64_t> recorded_slots(const std::vector<WitnessRecord>& records);
/// "0, 100, 200", or the first and last of many.
std::string slots_text(const std::set<std::int64_t>& slots);

}  // namespace tenon::train
