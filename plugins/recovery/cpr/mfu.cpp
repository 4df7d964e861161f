// Counts reads, and selects rows by count.
#include "mfu.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace tenon::recovery_cpr {

Mfu::Mfu(const std::vector<TrackedTable>& tables) : tables_(tables) {
  for (const TrackedTable& table : tables) counts_.emplace_back(static_cast<std::size_t>(table.held), 0u);
}

void Mfu::add(std::uint32_t& count, std::uint32_t more) {
  const std::uint32_t room = std::numeric_limits<std::uint32_t>::max() - count;
  count += std::min(more, room);
}

void Mfu::accessed(std::size_t table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts, std::int64_t) {
  std::vector<std::uint32_t>& mine = counts_[table];
  const std::int64_t first = tables_[table].first;
  for (std::size_t i = 0; i < ids.size(); ++i) add(mine[static_cast<std::size_t>(ids[i] - first)], counts[i]);
}

std::vector<std::int64_t> Mfu::select(std::size_t index) {
  const TrackedTable& table = tables_[index];
  std::vector<std::uint32_t>& counts = counts_[index];
  std::vector<std::vector<std::uint32_t>> used(static_cast<std::size_t>(table.groups()));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const int group = table.group_of(table.first + static_cast<std::int64_t>(i));
    used[static_cast<std::size_t>(group)].push_back(static_cast<std::uint32_t>(i));
  }
  std::vector<std::int64_t> chosen;
  for (std::size_t group = 0; group < used.size(); ++group) {
    std::vector<std::uint32_t>& rows = used[group];
    const auto most = std::min(rows.size(), static_cast<std::size_t>(table.quota[group]));
    std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(most), rows.end(),
                     [&](std::uint32_t a, std::uint32_t b) {
                       return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
                     });
    for (std::size_t i = 0; i < most; ++i) {
      chosen.push_back(table.first + rows[i]);
      unanswered_.push_back({index, rows[i], std::exchange(counts[rows[i]], 0)});
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void Mfu::saved_all() {
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    for (std::size_t i = 0; i < counts_[t].size(); ++i) {
      if (counts_[t][i] > 0) unanswered_.push_back({t, i, std::exchange(counts_[t][i], 0)});
    }
  }
}

void Mfu::answered(bool committed) {
  if (!committed) {
    for (const Saved& saved : unanswered_) add(counts_[saved.table][saved.row], saved.count);
  }
  unanswered_.clear();
}

void Mfu::restored(int group) {
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    for (std::size_t i = 0; i < counts_[t].size(); ++i) {
      if (tables_[t].group_of(tables_[t].first + static_cast<std::int64_t>(i)) == group) counts_[t][i] = 0;
    }
  }
}

void Mfu::state(StateVisitor& visitor) {
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    TensorView view;
    view.data = counts_[t].data();
    view.dtype = DType::kU32;
    view.shape = Shape{static_cast<std::int64_t>(counts_[t].size())};
    visitor.tensor("counts." + std::to_string(tables_[t].parameter), view);
  }
}

std::int64_t Mfu::bytes() const {
  std::int64_t sum = 0;
  for (const auto& counts : counts_) sum += static_cast<std::int64_t>(counts.size() * sizeof(std::uint32_t));
  return sum;
}

std::uint32_t Mfu::count(std::size_t table, std::int64_t row) const {
  return counts_[table][static_cast<std::size_t>(row - tables_[table].first)];
}

}  // namespace tenon::recovery_cpr
