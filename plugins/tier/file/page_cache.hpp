// Rows of one table in pages of a file, of which a bounded number is resident. A page is in the hands of one
// thread while it moves, and others that need it wait. A thread that has claimed pages waits for no other, so
// that none waits forever, however few pages are resident.
#pragma once

#include "page_layout.hpp"

#include <tenon/tier.hpp>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tier_file {

class PageCache {
 public:
  /// kRead and kWrite make pages resident; kScan and kFill pass by.
  enum class Use : std::uint8_t { kRead, kWrite, kScan, kFill, kAhead };

  /// file: of the layout's size, reads as zeros. resident: pages, one or more. folder: for messages.
  PageCache(const RowMemorySpec& spec, std::int64_t resident, std::unique_ptr<PageFile> file,
            std::string folder);
  ~PageCache();
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  /// Copies rows to `out`, or from `in`. After an Error no row has another value than before, or than `in`
  /// has for it.
  void pass(Use use, std::span<const std::int64_t> ids, std::byte* out, const std::byte* in);
  /// As RowsAhead::ahead.
  void ahead(std::int64_t slot, std::span<const std::int64_t> ids);
  TierCount count() const;

  /// All memory of such rows: pages, facts about each page, and buffers.
  static std::int64_t host_bytes(const PageLayout& layout, std::int64_t resident);
  /// Pages that are resident now, those in motion included.
  std::int64_t resident_pages() const;

 private:
  /// A place for a page in memory: resident ones first, then those of lanes, through which pages pass.
  struct Frame {
    std::int64_t page = -1;              ///< has its content; -1: none
    std::int32_t pins = 0;               ///< rows that are being copied
    std::int32_t move = -1;              ///< index in the moves of its lane
    std::array<std::int32_t, 2> told{};  ///< rows that even and odd slots await here
    std::array<bool, 2> listed{};        ///< in told_frames_
    std::int16_t lane = -1;              ///< in whose hands it is; -1: in none
    bool dirty = false;                  ///< the file has older rows
    bool in_file = false;                ///< was written to the file, which has zeros otherwise
    bool recent = false;                 ///< used since the hand of the clock came by
  };
  /// A page that comes into a frame, in one window of a lane.
  struct Move {
    std::int32_t frame;
    std::int64_t page;
    bool dirty, in_file;
    std::int64_t covered;  ///< rows that the caller writes, counted while they ascend one by one
    std::int64_t next;     ///< the row that would continue that
  };
  /// Buffers of one call: what it has claimed in its present window.
  struct Lane;
  class BorrowedLane;

  // With mutex_ held.
  Lane& take_lane(std::unique_lock<std::mutex>& lock);
  bool claim(Lane& lane, Use use, std::span<const std::uint64_t> order, std::span<const std::int64_t> ids);
  std::int32_t claim_row(Lane& lane, Use use, std::int64_t id);
  void expect_page(Lane& lane, std::int32_t frame, std::int64_t page);
  std::int32_t free_frame();
  std::int32_t passing_frame(const Lane& lane) const;
  void require_buffer(const Lane& lane, std::int64_t id) const;
  void leave(Frame& frame);
  void undo(Lane& lane);
  void wait(std::unique_lock<std::mutex>& lock);
  void wake();
  void tell(std::int32_t frame, int parity, std::int64_t id);
  void untell(std::int32_t frame, std::int64_t id);
  void forget(int parity);
  bool await(std::int64_t slot);

  // Without it.
  void arrive(Lane& lane, Use use);
  void write_back(Lane& lane);
  void load(Lane& lane, Use use);
  void write_through(Lane& lane);
  void pass_some(Lane& lane, Use use, std::span<const std::int64_t> ids, std::byte* out, const std::byte* in);
  std::size_t pass_window(Lane& lane, Use use, std::span<const std::uint64_t> order,
                          std::span<const std::int64_t> ids, std::byte* out, const std::byte* in);
  void copy(const Lane& lane, std::span<const std::uint64_t> order, std::span<const std::int64_t> ids,
            std::byte* out, const std::byte* in) const;
  void settle(Lane& lane, Use use, double stalled);
  void add_transfer(Lane& lane, const Move& move, std::int64_t page) const;
  void verify(const Move& move) const;
  std::string pages_text(std::int64_t first, std::int64_t last) const;
  void require_moved(const Lane& lane, std::string_view cannot, std::string_view then) const;

  std::int64_t page_of(std::int64_t id) const { return (id - first_) / layout_.rows_per_page; }
  std::int64_t rows_in(std::int64_t page) const {
    return std::min(layout_.rows_per_page, last_ - first_ - page * layout_.rows_per_page);
  }
  std::byte* memory_of(std::int32_t frame) const { return memory_ + frame * layout_.page_bytes; }
  bool passes(std::int32_t frame) const { return frame >= resident_; }
  std::int64_t told_words() const { return (layout_.rows_per_page + 63) / 64; }

  std::string name_, folder_;
  std::int64_t first_, last_;
  PageLayout layout_;
  std::int32_t resident_;      ///< frames of the clock
  std::int32_t passing_;       ///< frames of each lane
  std::int32_t most_awaited_;  ///< frames
  std::size_t memory_bytes_;
  std::byte* memory_;
  std::unique_ptr<PageFile> file_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  std::vector<std::int32_t> where_;  ///< frame of each page, or one of two negative numbers
  std::vector<std::uint32_t> sums_;  ///< CRC-32C of each page in the file
  std::vector<Frame> frames_;
  std::int32_t hand_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::array<std::int64_t, 2> told_slots_{-1, -1};  ///< even, odd
  std::array<std::vector<std::int32_t>, 2> told_frames_;
  std::vector<std::uint64_t> told_rows_;  ///< a bit for each row of a frame, for even slots, then for odd
  std::int32_t awaited_ = 0;              ///< frames in which rows are awaited
  TierCount count_;
};

}  // namespace tenon::tier_file
