// Rows with the largest distance from their saved values (SCAR, arXiv 1810.07354, as CPR uses it). Needs a
// second copy of every tracked table.
#pragma once

#include "tracker.hpp"

namespace tenon::recovery_cpr {

class Scar final : public Tracker {
 public:
  explicit Scar(const std::vector<TrackedTable>& tables);
  void accessed(std::size_t, std::span<const std::int64_t>, std::span<const std::uint32_t>,
                std::int64_t) override {}
  std::vector<std::int64_t> select(std::size_t table) override;
  void saved_all() override;
  void answered(bool committed) override;
  void restored(int group) override;
  void state(StateVisitor& visitor) override;
  std::int64_t bytes() const override;

  /// Returns the saved value of a row: width numbers.
  std::span<const float> saved(std::size_t table, std::int64_t row) const;

 private:
  struct Copy {
    std::vector<float> values;
    std::int64_t width = 0;
  };
  struct Saved {
    std::size_t table = 0;
    std::int64_t row = 0;
    std::vector<float> before;
  };
  /// Copies the rows' current values; keeps the previous ones if `undoable`.
  void take(std::size_t table, std::span<const std::int64_t> rows, bool undoable);
  void take_all();

  const std::vector<TrackedTable>& tables_;
  std::vector<Copy> copies_;
  std::vector<Saved> unanswered_;
  std::vector<Copy> before_all_;  ///< while a complete save is pending
};

}  // namespace tenon::recovery_cpr
