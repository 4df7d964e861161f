// The work of the three trackers, and their names.
#include "trackers.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace tenon::recovery_cpr {

Tracker::~Tracker() = default;

// MFU: counts reads, and selects rows by count.

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
  for (std::size_t i = 0; i < ids.size(); ++i) add(mine[ids[i] - first], counts[i]);
}

std::vector<std::int64_t> Mfu::select(std::size_t index) {
  const TrackedTable& table = tables_[index];
  std::vector<std::uint32_t>& counts = counts_[index];
  std::vector<std::vector<std::uint32_t>> used(table.groups());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const int group = table.group_of(table.first + static_cast<std::int64_t>(i));
    used[group].push_back(static_cast<std::uint32_t>(i));
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
  return counts_[table][row - tables_[table].first];
}

// SSU: sampling, eviction, and selection of the list.

namespace {

/// One in this many accesses is sampled.
constexpr std::uint64_t kPeriod = 2;

}  // namespace

Ssu::Ssu(const std::vector<TrackedTable>& tables, std::uint64_t seed)
    : defined_(tables),
      sampling_(random_key(seed, "cpr.ssu.sampling")),
      eviction_(random_key(seed, "cpr.ssu.eviction")) {
  for (const TrackedTable& table : tables) {
    Table mine;
    mine.listed.assign(table.held, false);
    for (const std::int64_t quota : table.quota)
      mine.groups.push_back({std::vector<std::uint32_t>(quota, 0), 0});
    tables_.push_back(std::move(mine));
  }
}

// Draws by slot and row: a counter over ascending rows would select the same rows at every step.
void Ssu::accessed(std::size_t table, std::span<const std::int64_t> ids, std::span<const std::uint32_t>,
                   std::int64_t slot) {
  const TrackedTable& defined = defined_[table];
  const auto step = static_cast<std::uint64_t>(slot) * static_cast<std::uint64_t>(defined_.size()) + table;
  for (const std::int64_t id : ids) {
    // Four rows share the words of one draw.
    const auto words = random_words(sampling_, step, static_cast<std::uint64_t>(id) / 4);
    if (words[static_cast<std::size_t>(id) % 4] % kPeriod != 0) continue;
    insert(table, defined.group_of(id), static_cast<std::uint32_t>(id - defined.first));
  }
}

void Ssu::insert(std::size_t index, int group, std::uint32_t row) {
  Table& table = tables_[index];
  if (table.listed[row]) return;
  List& list = table.groups[group];
  if (list.places.empty()) return;
  std::size_t place = list.used;
  if (place < list.places.size()) {
    ++list.used;
  } else {
    place = random_below(eviction_, 0, static_cast<std::uint64_t>(evictions_++), list.places.size());
    table.listed[list.places[place]] = false;
  }
  list.places[place] = row;
  table.listed[row] = true;
}

void Ssu::forget(Table& table, List& list) {
  for (std::int64_t i = 0; i < list.used; ++i) table.listed[list.places[i]] = false;
  list.used = 0;
}

std::vector<std::int64_t> Ssu::listed(std::size_t table, int group) const {
  const List& list = tables_[table].groups[group];
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < list.used; ++i) rows.push_back(defined_[table].first + list.places[i]);
  return rows;
}

std::vector<std::int64_t> Ssu::select(std::size_t table) {
  std::vector<std::int64_t> chosen;
  for (int group = 0; group < defined_[table].groups(); ++group) {
    for (const std::int64_t row : listed(table, group)) {
      chosen.push_back(row);
      unanswered_.push_back({table, group, static_cast<std::uint32_t>(row - defined_[table].first)});
    }
    forget(tables_[table], tables_[table].groups[group]);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void Ssu::saved_all() {
  for (std::size_t table = 0; table < tables_.size(); ++table) select(table);
}

void Ssu::answered(bool committed) {
  if (!committed) {
    for (const Saved& saved : unanswered_) insert(saved.table, saved.group, saved.row);
  }
  unanswered_.clear();
}

void Ssu::restored(int group) {
  for (Table& table : tables_) {
    if (static_cast<std::size_t>(group) < table.groups.size()) forget(table, table.groups[group]);
  }
}

void Ssu::state(StateVisitor& visitor) {
  numbers_.assign(1, evictions_);
  for (const Table& table : tables_) {
    for (const List& list : table.groups) numbers_.push_back(list.used);
  }
  const auto show = [&](const std::string& name, void* data, DType dtype, std::size_t count) {
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    view.shape = Shape{static_cast<std::int64_t>(count)};
    visitor.tensor(name, view);
  };
  show("numbers", numbers_.data(), DType::kI64, numbers_.size());
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    for (std::size_t g = 0; g < tables_[t].groups.size(); ++g) {
      std::vector<std::uint32_t>& places = tables_[t].groups[g].places;
      show("list." + std::to_string(defined_[t].parameter) + "." + std::to_string(g), places.data(),
           DType::kU32, places.size());
    }
  }
  if (!visitor.loading()) return;
  auto number = numbers_.begin();
  evictions_ = *number++;
  for (Table& table : tables_) {
    table.listed.assign(table.listed.size(), false);
    for (List& list : table.groups) {
      list.used = *number++;
      for (std::int64_t i = 0; i < list.used; ++i) table.listed[list.places[i]] = true;
    }
  }
}

std::int64_t Ssu::bytes() const {
  std::int64_t sum = 0;
  for (const Table& table : tables_) {
    sum += static_cast<std::int64_t>((table.listed.size() + 7) / 8);
    for (const List& list : table.groups)
      sum += static_cast<std::int64_t>(list.places.size() * sizeof(std::uint32_t));
  }
  return sum;
}

// SCAR: distances, and the copy from which they are measured.

namespace {

constexpr std::int64_t kChunkRows = 4096;

/// Calls use(rows, values) for all rows that `table` holds, in chunks; values is [rows, width].
template <typename Use>
void for_each_chunk(const TrackedTable& table, Use use) {
  std::vector<std::int64_t> ids;
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < table.held; begin += kChunkRows) {
    const std::int64_t count = std::min(kChunkRows, table.held - begin);
    ids.resize(count);
    std::iota(ids.begin(), ids.end(), table.first + begin);
    values.resize(count * table.rows->width());
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
    copies_.push_back({std::vector<float>(table.held * width), width});
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
  std::vector<float> now(copy.width);
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
  std::vector<std::vector<Moved>> moved(table.groups());
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
        const auto bytes = copy.width * sizeof(float);
        sum = std::memcmp(now - copy.width, then - copy.width, bytes) == 0 ? 0 : HUGE_VAL;
      }
      if (sum > 0) moved[table.group_of(row)].push_back({sum, row});
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

std::unique_ptr<Tracker> make_tracker(std::string_view name, const std::vector<TrackedTable>& tables,
                                      std::uint64_t seed) {
  if (name == "mfu") return std::make_unique<Mfu>(tables);
  if (name == "ssu") return std::make_unique<Ssu>(tables, seed);
  if (name == "scar") return std::make_unique<Scar>(tables);
  return nullptr;
}

}  // namespace tenon::recovery_cpr
