// Most frequently used: the rows read most often since each was saved (CPR-MFU). 4 bytes per row.
#pragma once

#include "tracker.hpp"

namespace tenon::recovery_cpr {

class Mfu final : public Tracker {
 public:
  explicit Mfu(const std::vector<TrackedTable>& tables);
  void accessed(std::size_t table, std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts,
                std::int64_t slot) override;
  std::vector<std::int64_t> select(std::size_t table) override;
  void saved_all() override;
  void answered(bool committed) override;
  void restored(int group) override;
  void state(StateVisitor& visitor) override;
  std::int64_t bytes() const override;

  /// Returns the reads of a row since it was saved; saturates at the largest number.
  std::uint32_t count(std::size_t table, std::int64_t row) const;

 private:
  struct Saved {
    std::size_t table = 0, row = 0;
    std::uint32_t count = 0;
  };
  static void add(std::uint32_t& count, std::uint32_t more);

  const std::vector<TrackedTable>& tables_;
  std::vector<std::vector<std::uint32_t>> counts_;
  std::vector<Saved> unanswered_;  ///< counters zeroed by saves whose outcome is pending
};

}  // namespace tenon::recovery_cpr
