// Distances, and the copy from which they are measured.
#include "scar.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace tenon::recovery_cpr {
namespace {

constexpr std::int64_t kChunkRows = 4096;

/// Calls use(rows, values) for all rows that `table` holds, in chunks; values is [rows, width].
template <typename Use>
void for_each_chunk(const TrackedTable& table, Use use) {
  std::vector<std::int64_t> ids;
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < table.held; begin += kChunkRows) {
    const std::int64_t count = std::min(kChunkRows, table.held - begin);
    ids.resize(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), table.first + begin);
    values.resize(static_cast<std::size_t>(count * table.rows->width()));
    table.rows->read(ids, {values.data(), {count, table.rows->width()}});
    use(std::span<const std::int64_t>(ids), std::span<const float>(values));
  }
}

}  // namespace

Scar::Scar(const std::vector<TrackedTable>& tables) : tables_(tables) {
  for (const TrackedTable& table : tables) {
    if (table.rows->dtype() != DType::kF32) {
      fail_config(
          "recovery cpr: tracker \"scar\" compares f32 rows, and a table has another type; choose "
          "\"mfu\" or \"ssu\"");
    }
    const std::int64_t width = table.rows->width();
    copies_.push_back({std::vector<float>(static_cast<std::size_t>(table.held * width)), width});
  }
  take_all();
}

void Scar::take_all() {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    for_each_chunk(tables_[t], [&](std::span<const std::int64_t> ids, std::span<const float> values) {
      std::copy(values.begin(), values.end(),
                copies_[t].values.begin() + (ids.front() - tables_[t].first) * copies_[t].width);
    });
  }
}

void Scar::take(std::size_t index, std::span<const std::int64_t> rows, bool undoable) {
  const TrackedTable& table = tables_[index];
  Copy& copy = copies_[index];
  std::vector<float> now(static_cast<std::size_t>(copy.width));
  for (const std::int64_t row : rows) {
    table.rows->read({&row, 1}, {now.data(), {1, copy.width}});
    const auto at = copy.values.begin() + (row - table.first) * copy.width;
    if (undoable) unanswered_.push_back({index, row, {at, at + copy.width}});
    std::copy(now.begin(), now.end(), at);
  }
}

std::vector<std::int64_t> Scar::select(std::size_t index) {
  const TrackedTable& table = tables_[index];
  const Copy& copy = copies_[index];
  struct Moved {
    double distance = 0;  ///< squared; NaN counts as farthest
    std::int64_t row = 0;
  };
  std::vector<std::vector<Moved>> moved(static_cast<std::size_t>(table.groups()));
  for_each_chunk(table, [&](std::span<const std::int64_t> ids, std::span<const float> values) {
    const float* now = values.data();
    const float* then = copy.values.data() + (ids.front() - table.first) * copy.width;
    for (const std::int64_t row : ids) {
      double sum = 0;
      for (std::int64_t i = 0; i < copy.width; ++i, ++now, ++then) {
        const double change = static_cast<double>(*now) - static_cast<double>(*then);
        sum += change * change;
      }
      // A row that became NaN counts as far from its saved value once, not at every later save.
      if (std::isnan(sum)) {
        const auto bytes = static_cast<std::size_t>(copy.width) * sizeof(float);
        sum = std::memcmp(now - copy.width, then - copy.width, bytes) == 0 ? 0 : HUGE_VAL;
      }
      if (sum > 0) moved[static_cast<std::size_t>(table.group_of(row))].push_back({sum, row});
    }
  });
  std::vector<std::int64_t> chosen;
  for (std::size_t group = 0; group < moved.size(); ++group) {
    std::vector<Moved>& rows = moved[group];
    const auto most = std::min(rows.size(), static_cast<std::size_t>(table.quota[group]));
    std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(most), rows.end(),
                     [](const Moved& a, const Moved& b) {
                       return a.distance != b.distance ? a.distance > b.distance : a.row < b.row;
                     });
    for (std::size_t i = 0; i < most; ++i) chosen.push_back(rows[i].row);
  }
  std::sort(chosen.begin(), chosen.end());
  take(index, chosen, true);
  return chosen;
}

void Scar::saved_all() {
  before_all_ = copies_;
  take_all();
}

void Scar::answered(bool committed) {
  if (!committed) {
    for (auto saved = unanswered_.rbegin(); saved != unanswered_.rend(); ++saved) {
      Copy& copy = copies_[saved->table];
      std::copy(saved->before.begin(), saved->before.end(),
                copy.values.begin() + (saved->row - tables_[saved->table].first) * copy.width);
    }
    if (!before_all_.empty()) copies_.swap(before_all_);
  }
  unanswered_.clear();
  before_all_ = {};
}

void Scar::restored(int group) {
  std::vector<std::int64_t> rows;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    rows.clear();
    for (std::int64_t i = 0; i < tables_[t].held; ++i) {
      if (tables_[t].group_of(tables_[t].first + i) == group) rows.push_back(tables_[t].first + i);
    }
    take(t, rows, false);
  }
}

// A checkpoint holds the saved values, which are in the tables by now.
void Scar::state(StateVisitor& visitor) {
  if (visitor.loading()) take_all();
}

std::int64_t Scar::bytes() const {
  std::int64_t sum = 0;
  for (const Copy& copy : copies_) sum += static_cast<std::int64_t>(copy.values.size() * sizeof(float));
  return sum;
}

std::span<const float> Scar::saved(std::size_t table, std::int64_t row) const {
  const Copy& copy = copies_[table];
  return {copy.values.data() + (row - tables_[table].first) * copy.width,
          static_cast<std::size_t>(copy.width)};
}

}  // namespace tenon::recovery_cpr
