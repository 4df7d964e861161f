#include "witness/witness_comparison.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace tenon::train {
namespace {

constexpr std::size_t kShownSlots = 8;

/// One rank's record of a slot in both runs.
struct Pair {
  const WitnessRecord& a;
  const WitnessRecord& b;
  const WitnessSlot& in_a;
  const WitnessSlot& in_b;
};

/// Why the tensors at `at` cannot be compared; "" where they can. Both slots made tensors in one order unless
/// something went another way, e.g. an update was refused.
std::string unlike(const Pair& pair, std::size_t at) {
  const auto text = [at](const WitnessRecord& record, const WitnessSlot& slot) -> std::string {
    if (at >= slot.entries.size()) return "nothing more";
    const WitnessName& name = record.names[slot.entries[at].name];
    return fmt::format("{} '{}'", name.phase, name.tensor);
  };
  const bool there = at < pair.in_a.entries.size() && at < pair.in_b.entries.size();
  if (there) {
    const WitnessEntry &a = pair.in_a.entries[at], &b = pair.in_b.entries[at];
    if (pair.a.names[a.name] == pair.b.names[b.name] && a.micro == b.micro) return "";
  }
  return fmt::format("the first run recorded {} here, the second {}", text(pair.a, pair.in_a),
                     text(pair.b, pair.in_b));
}

class SlotComparison {
 public:
  SlotComparison(std::int64_t slot, WitnessComparison& result) : slot_(slot), result_(result) {}

  void add(int rank, const Pair& pair) {
    const std::size_t entries = std::max(pair.in_a.entries.size(), pair.in_b.entries.size());
    for (std::size_t at = 0; at < entries; ++at) {
      const std::string problem = unlike(pair, at);
      if (!problem.empty()) return note(rank, pair, at, problem);  // what follows is out of step
      ++compared_;
      if (pair.in_a.entries[at].digest == pair.in_b.entries[at].digest) continue;
      note(rank, pair, at, "");
    }
  }
  void finish() {
    result_.tensors += compared_;
    if (!first_ || result_.first) return;
    first_->differing = differing_;
    first_->compared = compared_;
    result_.first = std::move(first_);
  }

 private:
  void note(int rank, const Pair& pair, std::size_t at, const std::string& problem) {
    ++differing_;
    // An exchange takes an error to the other ranks, so the earliest tensor of all ranks is nearest to it.
    if (first_ && at >= place_) return;
    place_ = at;
    const bool in_a = at < pair.in_a.entries.size();
    const WitnessEntry& entry = in_a ? pair.in_a.entries[at] : pair.in_b.entries[at];
    first_ = {slot_, rank, (in_a ? pair.a : pair.b).names[entry.name], entry.micro, problem, 0, 0};
  }

  const std::int64_t slot_;
  WitnessComparison& result_;
  std::int64_t compared_ = 0, differing_ = 0;
  std::size_t place_ = 0;
  std::optional<WitnessDifference> first_;
};

}  // namespace

std::set<std::int64_t> recorded_slots(const std::vector<WitnessRecord>& records) {
  std::set<std::int64_t> slots;
  if (records.empty()) return slots;
  for (const WitnessSlot& slot : records.front().slots) slots.insert(slot.slot);
  return slots;
}

std::string slots_text(const std::set<std::int64_t>& slots) {
  if (slots.size() <= kShownSlots) return fmt::format("{}", fmt::join(slots, ", "));
  const auto second = std::next(slots.begin());
  return fmt::format("{}, {}, ..., {}", *slots.begin(), *second, *slots.rbegin());
}

WitnessComparison compare_witnesses(const std::vector<WitnessRecord>& a, const std::string& name_a,
                                    const std::vector<WitnessRecord>& b, const std::string& name_b,
                                    const SlotRange& range) {
  for (const auto& [records, name] : {std::pair(&a, &name_a), std::pair(&b, &name_b)}) {
    if (records->empty())
      fail_config(fmt::format("{} has no witness; train it with [run] witness_every above 0", *name));
  }
  if (a.size() != b.size())
    fail_config(
        fmt::format("{} has witnesses of {} rank(s) and {} of {}; ranks of equal numbers hold unlike "
                    "parts, so only runs of equally many ranks can be compared",
                    name_a, a.size(), name_b, b.size()));
  WitnessComparison result;
  result.ranks = static_cast<int>(a.size());
  const std::set<std::int64_t> in_a = recorded_slots(a), in_b = recorded_slots(b);
  for (const std::int64_t slot : in_a) {
    if (slot >= range.first && slot <= range.last && in_b.contains(slot)) result.slots.push_back(slot);
  }
  if (result.slots.empty())
    fail_config(fmt::format("{} and {} have no recorded slot in common: {} and {}", name_a, name_b,
                            slots_text(in_a), slots_text(in_b)));
  for (const std::int64_t slot : result.slots) {
    SlotComparison comparison(slot, result);
    for (std::size_t rank = 0; rank < a.size(); ++rank) {
      const WitnessSlot *in_first = a[rank].find(slot), *in_second = b[rank].find(slot);
      // A killed run may lack its last slot on some ranks.
      if (in_first != nullptr && in_second != nullptr)
        comparison.add(static_cast<int>(rank), {a[rank], b[rank], *in_first, *in_second});
    }
    comparison.finish();
  }
  return result;
}

}  // namespace tenon::train
