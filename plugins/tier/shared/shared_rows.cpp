#include "shared_rows.hpp"

#include <tenon/row_words.hpp>

#include <algorithm>
#include <cstring>
#include <thread>

namespace tenon::tier_shared {
namespace {

/// Reads ask for the row this far ahead while they copy one.
constexpr std::size_t kPrefetchRows = 8;

void pause(int& tries) {
  if (++tries % 64 == 0) std::this_thread::yield();
}

}  // namespace

SharedRows::SharedRows(const RowMemorySpec& spec, std::int64_t undo_entries)
    : first_(spec.first),
      count_(spec.rows()),
      row_bytes_(spec.row_bytes()),
      segment_(spec, undo_entries),
      header_(segment_.header()),
      groups_(segment_.data() + segment_.layout().groups),
      rows_(segment_.data() + segment_.layout().rows),
      kept_(segment_.found()),
      saved_((spec.rows() + kGroupRows - 1) / kGroupRows) {
  if (kept_) collect_torn();
}

void* SharedRows::query(std::string_view interface_id) {
  return interface_id == KeptRows::kId ? static_cast<KeptRows*>(this) : nullptr;
}

/// Their groups are free again: nobody else would end the write.
void SharedRows::collect_torn() {
  for (std::int64_t row = 0; row < count_; row += kGroupRows) {
    const std::uint32_t found = sequence(row).load();
    if (found % 2 == 0) continue;
    for (std::int64_t i = row; i < std::min(row + kGroupRows, count_); ++i) torn_.push_back(first_ + i);
    sequence(row).store(found + 1);
  }
}

void SharedRows::read(std::span<const std::int64_t> ids, std::byte* out) const {
  with_row_word(row_bytes_, [&](auto word) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + kPrefetchRows < ids.size()) __builtin_prefetch(at(ids[i + kPrefetchRows] - first_));
      load_row_words<decltype(word)>(at(ids[i] - first_), out + i * row_bytes_, row_bytes_);
    }
  });
}

void SharedRows::write(std::span<const std::int64_t> ids, const std::byte* values) {
  with_row_word(row_bytes_, [&](auto word) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t row = ids[i] - first_;
      std::atomic<std::uint32_t>& turn = sequence(row);
      std::uint32_t even = turn.load(std::memory_order_relaxed);
      int tries = 0;
      while (even % 2 != 0 || !turn.compare_exchange_weak(even, even + 1, std::memory_order_acquire)) {
        pause(tries);
        even = turn.load(std::memory_order_relaxed);
      }
      keep_old(row);
      store_row_words<decltype(word)>(at(row), values + i * row_bytes_, row_bytes_);
      turn.store(even + 2, std::memory_order_release);
    }
  });
}

void SharedRows::keep_old(std::int64_t row) {
  if (header_.mark_begin.load(std::memory_order_relaxed) == header_.mark_end.load(std::memory_order_relaxed))
    return;
  Saved& saved = saved_[row / kGroupRows];
  const std::uint64_t epoch = epoch_.load(std::memory_order_relaxed);
  if (saved.epoch != epoch) saved = {epoch, 0};
  const std::uint64_t bit = std::uint64_t{1} << row % kGroupRows;
  if ((saved.rows & bit) != 0) return;
  saved.rows |= bit;
  if (!append_old(row)) drop_marks();
}

OldRow& SharedRows::old_row(std::uint64_t ordinal) const {
  const Layout& layout = segment_.layout();
  const std::uint64_t place = ordinal % static_cast<std::uint64_t>(header_.undo_entries);
  return *reinterpret_cast<OldRow*>(segment_.data() + layout.undo + place * layout.undo_stride);
}

bool SharedRows::append_old(std::int64_t row) {
  std::uint64_t ordinal = header_.tail.load();
  do {
    const std::uint64_t begin = header_.mark_begin.load();
    if (begin == header_.mark_end.load()) return true;  // another thread found no room
    if (ordinal - header_.marks[begin % kMarks].tail >= static_cast<std::uint64_t>(header_.undo_entries))
      return false;
  } while (!header_.tail.compare_exchange_weak(ordinal, ordinal + 1));
  OldRow& old = old_row(ordinal);
  old.row = row;
  std::memcpy(reinterpret_cast<std::byte*>(&old) + sizeof old, at(row), row_bytes_);
  old.ordinal.store(ordinal + 1, std::memory_order_release);
  // The row itself may only change after this, in the eyes of whoever comes after a kill.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return true;
}

void SharedRows::mark(std::int64_t slot, std::uint64_t attempt) {
  const std::uint64_t end = header_.mark_end.load();
  std::uint64_t begin = header_.mark_begin.load();
  if (end - begin == kMarks) header_.mark_begin.store(begin + 1);
  header_.marks[end % kMarks] = {slot, attempt, header_.tail.load()};
  header_.mark_end.store(end + 1);
  epoch_.fetch_add(1);
  kept_ = false;
}

void SharedRows::committed(std::int64_t slot) {
  std::uint64_t begin = header_.mark_begin.load();
  for (std::uint64_t i = header_.mark_end.load(); i-- > begin;) {
    if (header_.marks[i % kMarks].slot != slot) continue;
    header_.mark_begin.compare_exchange_strong(begin, i);  // fails where the marks were dropped meanwhile
    return;
  }
}

/// Newest first: the oldest content of a row comes last. A place that a killed process had only reserved is
/// that of a row which it had not changed.
void SharedRows::undo_to(std::uint64_t tail) {
  for (std::uint64_t i = header_.tail.load(); i-- > tail;) {
    const OldRow& old = old_row(i);
    if (old.ordinal.load() != i + 1) continue;
    std::memcpy(at(old.row), reinterpret_cast<const std::byte*>(&old) + sizeof old, row_bytes_);
  }
}

// A kill at any moment of it leaves either the old marks, and all can be done once more, or none, or the new.
bool SharedRows::go_back(std::int64_t slot, std::uint64_t attempt, std::vector<std::int64_t>& lost) {
  kept_ = false;
  lost.clear();
  const std::uint64_t begin = header_.mark_begin.load(), end = header_.mark_end.load();
  for (std::uint64_t i = end; i-- > begin;) {
    const Mark& found = header_.marks[i % kMarks];
    if (found.slot != slot || found.attempt != attempt) continue;
    undo_to(found.tail);
    drop_marks();
    mark(slot, attempt);
    lost.swap(torn_);
    torn_.clear();
    return true;
  }
  drop_marks();
  torn_.clear();
  return false;
}

}  // namespace tenon::tier_shared
