// Rows in a segment of shared memory, and the way back to those of a checkpoint.
#pragma once

#include "segment.hpp"

#include <tenon/tier.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tenon::tier_shared {

/// A write of a row holds the group's sequence number at an odd value: that locks the group against other
/// writers, and shows after a kill which rows may be torn. Before the first write of a row after a mark, its
/// old content is kept in the undo log. Readers take no part in this; they copy words, as Hogwild needs.
class SharedRows final : public RowMemory, private KeptRows {
 public:
  /// See Segment.
  SharedRows(const RowMemorySpec& spec, std::int64_t undo_entries);

  void read(std::span<const std::int64_t> ids, std::byte* out) const override;
  void write(std::span<const std::int64_t> ids, const std::byte* values) override;
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override { read(ids, out); }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override { write(ids, values); }
  void* query(std::string_view interface_id) override;

 private:
  /// Rows of a group whose old content is kept since the newest mark.
  struct Saved {
    std::uint64_t epoch = 0;  ///< count of marks
    std::uint64_t rows = 0;   ///< a bit of each
  };

  bool kept() const override { return kept_; }
  void mark(std::int64_t slot, std::uint64_t attempt) override;
  void committed(std::int64_t slot) override;
  bool go_back(std::int64_t slot, std::uint64_t attempt, std::vector<std::int64_t>& lost) override;
  void end() override { segment_.remove(); }

  void collect_torn();
  void keep_old(std::int64_t row);
  /// False where there is no room: then nothing can go back to a mark.
  bool append_old(std::int64_t row);
  void undo_to(std::uint64_t tail);
  void drop_marks() { header_.mark_begin.store(header_.mark_end.load()); }
  std::atomic<std::uint32_t>& sequence(std::int64_t row) const {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(groups_)[row / kGroupRows];
  }
  std::byte* at(std::int64_t row) const { return rows_ + row * static_cast<std::int64_t>(row_bytes_); }
  OldRow& old_row(std::uint64_t ordinal) const;

  std::int64_t first_, count_;
  std::size_t row_bytes_;
  Segment segment_;
  Header& header_;
  std::byte* groups_;
  std::byte* rows_;
  bool kept_;
  std::vector<std::int64_t> torn_;  ///< ids, as the process before left them
  std::atomic<std::uint64_t> epoch_{1};
  std::vector<Saved> saved_;  ///< of each group, under its sequence number
};

}  // namespace tenon::tier_shared
