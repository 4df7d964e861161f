// Sub-sampled used: a short list of rows that were read, fed by every second access on average, with random
// eviction (CPR-SSU). 4 bytes per place of the list and one bit per row.
#pragma once

#include "tracker.hpp"

#include <tenon/random.hpp>

namespace tenon::recovery_cpr {

class Ssu final : public Tracker {
 public:
  Ssu(const std::vector<TrackedTable>& tables, std::uint64_t seed);
  void accessed(std::size_t table, std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts,
                std::int64_t slot) override;
  std::vector<std::int64_t> select(std::size_t table) override;
  void saved_all() override;
  void answered(bool committed) override;
  void restored(int group) override;
  void state(StateVisitor& visitor) override;
  std::int64_t bytes() const override;

  /// Returns the rows on the list of one group, unordered.
  std::vector<std::int64_t> listed(std::size_t table, int group) const;

 private:
  /// Places [0, used) of a list hold rows, relative to the table's first one.
  struct List {
    std::vector<std::uint32_t> places;
    std::int64_t used = 0;
  };
  struct Table {
    std::vector<List> groups;
    std::vector<bool> listed;  ///< by row
  };
  void insert(std::size_t table, int group, std::uint32_t row);
  void forget(Table& table, List& list);

  const std::vector<TrackedTable>& defined_;
  std::vector<Table> tables_;
  RandomKey sampling_, eviction_;
  std::int64_t evictions_ = 0;
  std::vector<std::int64_t> numbers_;  ///< content of state(): evictions, then places used
  struct Saved {
    std::size_t table = 0;
    int group = 0;
    std::uint32_t row = 0;
  };
  std::vector<Saved> unanswered_;
};

}  // namespace tenon::recovery_cpr
