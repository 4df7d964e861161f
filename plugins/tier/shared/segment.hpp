// One file in shared memory that holds the rows of a table: its name, header and parts, making it, and
// finding it again. It knows nothing of undoing.
#pragma once

#include <tenon/tier.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::tier_shared {

/// Neighbouring rows that share a sequence number.
inline constexpr std::int64_t kGroupRows = 64;
/// Checkpoints that rows can go back to: the newest complete one, and those that are being written.
inline constexpr std::uint64_t kMarks = 8;

/// Rows can go back to what they were when this was set.
struct Mark {
  std::int64_t slot;
  std::uint64_t attempt;
  std::uint64_t tail;  ///< old rows that were kept before it, since the segment was made
};

/// At the begin of the file. Words are stored in the order in which their meaning arises: a killed process
/// leaves every store before some instruction and none after it.
struct Header {
  char magic[8];
  std::uint32_t version;
  std::int32_t process;  ///< that used it last
  std::int32_t rank;
  std::uint32_t dtype;
  std::int64_t first, last, width;
  std::int64_t undo_entries;
  std::uint32_t run_bytes, table_bytes, state_bytes;  ///< of the three texts that follow the header
  /// Marks [mark_begin, mark_end), each in marks[its number % kMarks].
  std::atomic<std::uint64_t> mark_begin, mark_end;
  std::atomic<std::uint64_t> tail;  ///< old rows that were kept, since the segment was made
  Mark marks[kMarks];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A row as it was at a mark.
struct OldRow {
  std::atomic<std::uint64_t> ordinal;  ///< its place among all that were kept, plus one; stored last
  std::int64_t row;                    ///< from the first owned one
};

/// Offsets in the file.
struct Layout {
  Layout(const RowMemorySpec& spec, std::int64_t undo_entries);
  std::size_t groups = 0;  ///< sequence numbers: odd while a row of the group is written
  std::size_t rows = 0;
  std::size_t undo = 0, undo_stride = 0;
  std::size_t bytes = 0;
};

/// The mapped file, locked against other processes as long as this lives.
class Segment {
 public:
  /// Takes over what an earlier process of the run left, if `spec.resumes`; else removes it and makes a
  /// zeroed one. Without a run the memory has no name. Throws Error(kRun) where memory is short, the segment
  /// is in use, or it is not that of these rows.
  Segment(const RowMemorySpec& spec, std::int64_t undo_entries);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// An earlier process made it.
  bool found() const { return found_; }
  const Layout& layout() const { return layout_; }
  std::byte* data() const { return data_; }
  Header& header() const { return *reinterpret_cast<Header*>(data_); }
  /// Removes the name: the memory ends with this.
  void remove();

  static std::string path_of(const RowMemorySpec& spec);

 private:
  bool attach(const RowMemorySpec& spec, std::int64_t undo_entries);
  void make(const RowMemorySpec& spec, std::int64_t undo_entries);
  void map();

  std::string name_;
  std::string path_;  ///< empty: it has no name
  Layout layout_;
  int file_ = -1;
  bool found_ = false;
  std::byte* data_ = nullptr;
};

}  // namespace tenon::tier_shared
