// Sampling, eviction, and selection of the list.
#include "ssu.hpp"

#include <algorithm>
#include <string>

namespace tenon::recovery_cpr {
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
    mine.listed.assign(static_cast<std::size_t>(table.held), false);
    for (const std::int64_t quota : table.quota)
      mine.groups.push_back({std::vector<std::uint32_t>(static_cast<std::size_t>(quota), 0), 0});
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
  List& list = table.groups[static_cast<std::size_t>(group)];
  if (list.places.empty()) return;
  std::size_t place = static_cast<std::size_t>(list.used);
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
  for (std::int64_t i = 0; i < list.used; ++i) table.listed[list.places[static_cast<std::size_t>(i)]] = false;
  list.used = 0;
}

std::vector<std::int64_t> Ssu::listed(std::size_t table, int group) const {
  const List& list = tables_[table].groups[static_cast<std::size_t>(group)];
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < list.used; ++i)
    rows.push_back(defined_[table].first + list.places[static_cast<std::size_t>(i)]);
  return rows;
}

std::vector<std::int64_t> Ssu::select(std::size_t table) {
  std::vector<std::int64_t> chosen;
  for (int group = 0; group < defined_[table].groups(); ++group) {
    for (const std::int64_t row : listed(table, group)) {
      chosen.push_back(row);
      unanswered_.push_back({table, group, static_cast<std::uint32_t>(row - defined_[table].first)});
    }
    forget(tables_[table], tables_[table].groups[static_cast<std::size_t>(group)]);
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
    if (static_cast<std::size_t>(group) < table.groups.size())
      forget(table, table.groups[static_cast<std::size_t>(group)]);
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
      for (std::int64_t i = 0; i < list.used; ++i)
        table.listed[list.places[static_cast<std::size_t>(i)]] = true;
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

}  // namespace tenon::recovery_cpr
