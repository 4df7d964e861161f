// A window of a call: claim frames under the lock, move pages without it, copy rows, settle under the lock.
// Frames in a lane's hands, and the sums of their pages, belong to its thread alone.
#include "page_cache.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/row_words.hpp>

#include <fmt/format.h>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

namespace tenon::tier_file {
namespace {

/// Where a page is that is in no frame. A page that never was in the file is zero, and is not read.
constexpr std::int32_t kInFile = -1, kZero = -2;
constexpr std::int32_t kNoFrame = -1;

/// Calls at once; more wait for one of them to end. Memory is counted for a worker and a hint.
constexpr int kLanes = 8, kUsualLanes = 2;
/// Rows of a window, and pages that it moves at most.
constexpr int kWindowBits = 12;
constexpr std::size_t kWindowRows = std::size_t{1} << kWindowBits, kMostMoves = 1024;
/// Pages that pass at once lie side by side, so that a scan reads and a fill writes pieces of this size.
constexpr std::size_t kPassingBytes = 128 * 1024;
constexpr std::size_t kPrefetchDistance = 8;
/// Slots by which the hints of one replica may follow those of another.
constexpr std::int64_t kLateHints = 4;

std::int32_t frames_of(const PageLayout& layout, std::int64_t resident) {
  return static_cast<std::int32_t>(
      std::min({resident, layout.pages, std::int64_t{std::numeric_limits<std::int32_t>::max() / 2}}));
}

std::int32_t passing_of(const PageLayout& layout) {
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(kPassingBytes / layout.page_bytes, 1));
  return static_cast<std::int32_t>(std::min(most, layout.pages));
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::byte* map_pages(const std::string& name, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail_run(
        fmt::format("tier 'file': the system gave no {} bytes of memory for the resident pages of row "
                    "table '{}'; lower 'resident'",
                    bytes, name));
  }
  return static_cast<std::byte*>(memory);
}

bool counted(PageCache::Use use) {
  return use == PageCache::Use::kRead || use == PageCache::Use::kWrite;
}
bool writes(PageCache::Use use) {
  return use == PageCache::Use::kWrite || use == PageCache::Use::kFill;
}

}  // namespace

struct PageCache::Lane {
  explicit Lane(std::int16_t number) : number(number), order(kWindowRows) {
    rows.reserve(kWindowRows);
    moves.reserve(kMostMoves);
    transfers.reserve(kMostMoves);
    transfer_of.reserve(kMostMoves);
    sums.reserve(kMostMoves);
  }
  void clear_transfers() {
    transfers.clear();
    transfer_of.clear();
    sums.clear();
  }

  std::int16_t number;
  bool busy = false;
  std::vector<std::uint64_t> order;  ///< of the rows of the call
  std::vector<std::int32_t> rows;    ///< frame of each row of the window
  std::vector<Move> moves;
  std::vector<PageTransfer> transfers;  ///< neighbours in file and memory are one
  std::vector<int> transfer_of;         ///< of each move; -1: none
  std::vector<std::uint32_t> sums;      ///< of each move that is written
};

/// A lane for the length of a call.
class PageCache::BorrowedLane {
 public:
  explicit BorrowedLane(PageCache& cache) : cache_(cache) {
    std::unique_lock lock(cache.mutex_);
    lane_ = &cache.take_lane(lock);
  }
  ~BorrowedLane() {
    const std::lock_guard lock(cache_.mutex_);
    lane_->busy = false;
    cache_.wake();
  }
  BorrowedLane(const BorrowedLane&) = delete;
  BorrowedLane& operator=(const BorrowedLane&) = delete;
  Lane& operator*() const { return *lane_; }

 private:
  PageCache& cache_;
  Lane* lane_;
};

PageCache::PageCache(const RowMemorySpec& spec, std::int64_t resident, std::unique_ptr<PageFile> file,
                     std::string folder)
    : name_(spec.name()),
      folder_(std::move(folder)),
      first_(spec.first),
      last_(spec.last),
      layout_(spec),
      resident_(frames_of(layout_, resident)),
      passing_(passing_of(layout_)),
      most_awaited_(resident_ - std::max(1, resident_ / 4)),
      memory_bytes_((resident_ + std::size_t{kLanes} * passing_) * layout_.page_bytes),
      memory_(map_pages(name_, memory_bytes_)),
      file_(std::move(file)),
      where_(layout_.pages, kZero),
      sums_(layout_.pages),
      frames_(resident_ + std::size_t{kLanes} * passing_),
      told_rows_(2 * resident_ * told_words()) {
  lanes_.reserve(kLanes);
  for (auto& frames : told_frames_) frames.reserve(resident_);
  count_.tier = "file";
}

PageCache::~PageCache() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

std::int64_t PageCache::host_bytes(const PageLayout& layout, std::int64_t resident) {
  const std::int64_t frames = frames_of(layout, resident);
  const std::int64_t all = frames + std::int64_t{kUsualLanes} * passing_of(layout);
  const std::int64_t told = frames * 2 * ((layout.rows_per_page + 63) / 64 * 8 + 4);
  const std::int64_t lane = kWindowRows * (sizeof(std::int32_t) + sizeof(std::uint64_t)) +
                            kMostMoves * (sizeof(Move) + sizeof(PageTransfer) + sizeof(int) + 4);
  return all * static_cast<std::int64_t>(layout.page_bytes + sizeof(Frame)) + told + layout.pages * 8 +
         (layout.pages == 0 ? 0 : kUsualLanes * lane);
}

std::int64_t PageCache::resident_pages() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(frames_.begin(), frames_.begin() + resident_,
                       [](const Frame& frame) { return frame.page >= 0 || frame.lane >= 0; });
}

TierCount PageCache::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void PageCache::wait(std::unique_lock<std::mutex>& lock) {
  ++waiting_;
  changed_.wait(lock);
  --waiting_;
}

void PageCache::wake() {
  if (waiting_ > 0) changed_.notify_all();
}

PageCache::Lane& PageCache::take_lane(std::unique_lock<std::mutex>& lock) {
  while (true) {
    for (const auto& lane : lanes_) {
      if (lane->busy) continue;
      lane->busy = true;
      lane->moves.clear();
      lane->rows.clear();
      return *lane;
    }
    if (lanes_.size() < kLanes) {
      lanes_.push_back(std::make_unique<Lane>(static_cast<std::int16_t>(lanes_.size())));
    } else {
      wait(lock);
    }
  }
}

void PageCache::pass(Use use, std::span<const std::int64_t> ids, std::byte* out, const std::byte* in) {
  if (ids.empty()) return;
  const BorrowedLane borrowed(*this);
  Lane& lane = *borrowed;
  while (!ids.empty()) {
    const std::span<const std::int64_t> some = ids.first(std::min(ids.size(), kWindowRows));
    pass_some(lane, use, some, out, in);
    ids = ids.subspan(some.size());
    if (out != nullptr) out += some.size() * layout_.row_bytes;
    if (in != nullptr) in += some.size() * layout_.row_bytes;
  }
}

/// Rows go in the order of the call; where not all of their pages fit at once, the rest goes page by page, so
/// that each page comes once.
void PageCache::pass_some(Lane& lane, Use use, std::span<const std::int64_t> ids, std::byte* out,
                          const std::byte* in) {
  for (std::size_t i = 0; i < ids.size(); ++i) lane.order[i] = i;
  for (std::size_t done = 0; done < ids.size();) {
    const auto order = std::span<std::uint64_t>(lane.order).subspan(done, ids.size() - done);
    const std::size_t rows = pass_window(lane, use, order, ids, out, in);
    if (done == 0 && rows < ids.size()) {
      const auto rest = order.subspan(rows);
      for (std::uint64_t& row : rest) row |= static_cast<std::uint64_t>(page_of(ids[row])) << kWindowBits;
      std::sort(rest.begin(), rest.end());
      for (std::uint64_t& row : rest) row &= kWindowRows - 1;
    }
    done += rows;
  }
}

/// Passes as many of the rows ids[order[...]] as can be had at once, and returns their number.
std::size_t PageCache::pass_window(Lane& lane, Use use, std::span<const std::uint64_t> order,
                                   std::span<const std::int64_t> ids, std::byte* out, const std::byte* in) {
  const auto begin =
      counted(use) ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  bool waited = false;
  {
    std::unique_lock lock(mutex_);
    while (!claim(lane, use, order, ids)) {
      if (!counted(use)) require_buffer(lane, ids[order.front()]);
      waited = true;
      wait(lock);
    }
  }
  double stalled = 0;
  try {
    arrive(lane, use);
    if (counted(use) && (waited || !lane.moves.empty())) stalled = seconds_since(begin);
    copy(lane, order, ids, out, in);
    if (use == Use::kFill) write_through(lane);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    undo(lane);
    throw;
  }
  const std::size_t rows = lane.rows.size();
  settle(lane, use, stalled);
  return rows;
}

/// Claims frames for as many of the first rows as can be had at once; false where other threads have what the
/// first row needs.
bool PageCache::claim(Lane& lane, Use use, std::span<const std::uint64_t> order,
                      std::span<const std::int64_t> ids) {
  lane.moves.clear();
  lane.rows.clear();
  for (const std::uint64_t row : order) {
    const std::int32_t frame = claim_row(lane, use, ids[row]);
    if (frame == kNoFrame) break;
    lane.rows.push_back(frame);
    ++frames_[frame].pins;
  }
  return !lane.rows.empty();
}

std::int32_t PageCache::claim_row(Lane& lane, Use use, std::int64_t id) {
  const std::int64_t page = page_of(id);
  std::int32_t at = where_[page];
  const bool present = at >= 0;
  if (!present) {
    if (lane.moves.size() == kMostMoves) return kNoFrame;
    at = counted(use) ? free_frame() : passing_frame(lane);
    if (at == kNoFrame) return kNoFrame;
    expect_page(lane, at, page);
  }
  Frame& frame = frames_[at];
  Move* move = nullptr;
  if (frame.lane != -1) {
    if (frame.lane != lane.number || lane.moves[frame.move].page != page) return kNoFrame;
    move = &lane.moves[frame.move];
  }
  if (counted(use)) {
    ++(use == Use::kRead ? count_.reads : count_.writes);
    ++(present ? count_.hits : count_.misses);
    frame.recent = true;
  }
  if (writes(use)) {
    (move != nullptr ? move->dirty : frame.dirty) = true;
    if (move != nullptr && id == move->next) ++move->covered, ++move->next;
    if (use == Use::kWrite) untell(at, id);
  }
  return at;
}

/// A page will come into a free frame, or one that leave() may empty.
void PageCache::expect_page(Lane& lane, std::int32_t at, std::int64_t page) {
  Frame& frame = frames_[at];
  leave(frame);
  frame.lane = lane.number;
  frame.move = static_cast<std::int32_t>(lane.moves.size());
  lane.moves.push_back({.frame = at,
                        .page = page,
                        .dirty = false,
                        .in_file = where_[page] == kInFile,
                        .covered = 0,
                        .next = first_ + page * layout_.rows_per_page});
  where_[page] = at;
}

/// The clock: the first frame that nobody uses, was told of, or used since the hand came by last.
std::int32_t PageCache::free_frame() {
  for (std::int64_t tries = 2 * std::int64_t{resident_}; tries > 0; --tries) {
    const std::int32_t at = hand_;
    hand_ = hand_ + 1 == resident_ ? 0 : hand_ + 1;
    Frame& frame = frames_[at];
    if (frame.lane != -1 || frame.pins > 0 || frame.told[0] + frame.told[1] > 0) continue;
    if (frame.page >= 0 && std::exchange(frame.recent, false)) continue;
    return at;
  }
  return kNoFrame;
}

std::int32_t PageCache::passing_frame(const Lane& lane) const {
  const std::int32_t begin = resident_ + lane.number * passing_;
  for (std::int32_t at = begin; at < begin + passing_; ++at) {
    if (frames_[at].page == -1 && frames_[at].lane == -1) return at;
  }
  return kNoFrame;
}

/// Nobody but the lane, which has claimed nothing, could give a page back its place to pass.
void PageCache::require_buffer(const Lane& lane, std::int64_t id) const {
  if (where_[page_of(id)] >= 0 || passing_frame(lane) != kNoFrame) return;
  fail_run(
      fmt::format("tier 'file': row table '{}' has no buffer left: all hold rows that could not be "
                  "written to its file in '{}' before",
                  name_, folder_));
}

/// The page of a frame leaves it: at once, or when it has been written where the file has older rows.
void PageCache::leave(Frame& frame) {
  if (frame.page < 0) return;
  if (frame.dirty) return;
  ++count_.evictions;
  where_[frame.page] = frame.in_file ? kInFile : kZero;
  frame.page = -1;
}

/// After a failure: the pages of the window do not come. One that was to make room and is not in the file
/// stays.
void PageCache::undo(Lane& lane) {
  for (const std::int32_t at : lane.rows) --frames_[at].pins;
  lane.rows.clear();
  for (const Move& move : lane.moves) {
    Frame& frame = frames_[move.frame];
    where_[move.page] = move.in_file ? kInFile : kZero;
    frame.lane = -1;
    frame.move = -1;
    if (passes(move.frame)) continue;
    awaited_ -= frame.told[0] + frame.told[1] > 0 ? 1 : 0;
    frame.told = {};
    const auto told = told_rows_.begin() + 2 * move.frame * told_words();
    std::fill(told, told + 2 * told_words(), 0);
  }
  lane.moves.clear();
  wake();
}

void PageCache::arrive(Lane& lane, Use use) {
  if (lane.moves.empty()) return;
  write_back(lane);
  load(lane, use);
}

void PageCache::add_transfer(Lane& lane, const Move& move, std::int64_t page) const {
  std::byte* const data = memory_of(move.frame);
  const std::int64_t offset = page * static_cast<std::int64_t>(layout_.page_bytes);
  if (!lane.transfers.empty()) {
    PageTransfer& before = lane.transfers.back();
    if (before.data + before.bytes == data &&
        before.offset + static_cast<std::int64_t>(before.bytes) == offset) {
      before.bytes += layout_.page_bytes;
      lane.transfer_of.push_back(static_cast<int>(lane.transfers.size()) - 1);
      return;
    }
  }
  lane.transfer_of.push_back(static_cast<int>(lane.transfers.size()));
  lane.transfers.push_back({.offset = offset, .data = data, .bytes = layout_.page_bytes});
}

/// Writes the pages that make room for others.
void PageCache::write_back(Lane& lane) {
  lane.clear_transfers();
  for (const Move& move : lane.moves) {
    const Frame& frame = frames_[move.frame];
    lane.sums.push_back(0);
    if (frame.page < 0) {
      lane.transfer_of.push_back(-1);
      continue;
    }
    lane.sums.back() = crc32c({memory_of(move.frame), layout_.page_bytes});
    add_transfer(lane, move, frame.page);
  }
  if (lane.transfers.empty()) return;
  file_->write(lane.transfers);
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < lane.moves.size(); ++i) {
      if (lane.transfer_of[i] < 0 || lane.transfers[lane.transfer_of[i]].error != 0) continue;
      Frame& frame = frames_[lane.moves[i].frame];
      sums_[frame.page] = lane.sums[i];
      frame.dirty = false;
      frame.in_file = true;
      ++count_.write_backs;
      count_.bytes_out += static_cast<std::int64_t>(layout_.page_bytes);
      leave(frame);
    }
  }
  require_moved(lane, "cannot be written to", "; they are still in memory");
}

void PageCache::load(Lane& lane, Use use) {
  lane.clear_transfers();
  for (const Move& move : lane.moves) {
    const bool replaced = writes(use) && move.covered == rows_in(move.page);
    if (move.in_file && !replaced) {
      add_transfer(lane, move, move.page);
      continue;
    }
    lane.transfer_of.push_back(-1);
    if (!replaced) std::memset(memory_of(move.frame), 0, layout_.page_bytes);
  }
  if (lane.transfers.empty()) return;
  file_->read(lane.transfers);
  require_moved(lane, "cannot be read from", "");
  for (std::size_t i = 0; i < lane.moves.size(); ++i) {
    if (lane.transfer_of[i] >= 0) verify(lane.moves[i]);
  }
}

void PageCache::verify(const Move& move) const {
  const std::uint32_t sum = crc32c({memory_of(move.frame), layout_.page_bytes});
  if (sum == sums_[move.page]) return;
  fail_run(
      fmt::format("tier 'file': {} came back from the file in '{}' other than they were written "
                  "(checksum {:08x}, expected {:08x}): the disk or somebody changed or lost them; the "
                  "newest checkpoint has them as they were then",
                  pages_text(move.page, move.page), folder_, sum, sums_[move.page]));
}

std::string PageCache::pages_text(std::int64_t first, std::int64_t last) const {
  return fmt::format("rows [{}, {}) of row table '{}'", first_ + first * layout_.rows_per_page,
                     std::min(last_, first_ + (last + 1) * layout_.rows_per_page), name_);
}

void PageCache::require_moved(const Lane& lane, std::string_view cannot, std::string_view then) const {
  for (const PageTransfer& transfer : lane.transfers) {
    if (transfer.error == 0) continue;
    const auto page_bytes = static_cast<std::int64_t>(layout_.page_bytes);
    const std::int64_t first = transfer.offset / page_bytes;
    const std::int64_t last = first + static_cast<std::int64_t>(transfer.bytes) / page_bytes - 1;
    fail_run(fmt::format("tier 'file': {} {} the file in '{}': {}{}", pages_text(first, last), cannot,
                         folder_, error_text(transfer.error), then));
  }
}

void PageCache::copy(const Lane& lane, std::span<const std::uint64_t> order,
                     std::span<const std::int64_t> ids, std::byte* out, const std::byte* in) const {
  const std::size_t bytes = layout_.row_bytes, rows = lane.rows.size();
  const auto row_at = [&](std::size_t i) {
    return memory_of(lane.rows[i]) + (ids[order[i]] - first_) % layout_.rows_per_page * bytes;
  };
  with_row_word(bytes, [&](auto word) {
    for (std::size_t i = 0; i < rows; ++i) {
      if (i + kPrefetchDistance < rows) __builtin_prefetch(row_at(i + kPrefetchDistance));
      if (in != nullptr) {
        store_row_words<decltype(word)>(row_at(i), in + order[i] * bytes, bytes);
      } else {
        load_row_words<decltype(word)>(row_at(i), out + order[i] * bytes, bytes);
      }
    }
  });
}

/// Writes the pages of a fill; settle() looks at their errors.
void PageCache::write_through(Lane& lane) {
  lane.clear_transfers();
  for (const Move& move : lane.moves) {
    lane.sums.push_back(crc32c({memory_of(move.frame), layout_.page_bytes}));
    add_transfer(lane, move, move.page);
  }
  if (!lane.transfers.empty()) file_->write(lane.transfers);
}

/// The window is over: its pages are resident, or have passed. One that could not be written stays where it
/// passed, since the file may have any part of it.
void PageCache::settle(Lane& lane, Use use, double stalled) {
  {
    const std::lock_guard lock(mutex_);
    count_.stall_seconds += stalled;
    for (const std::int32_t at : lane.rows) --frames_[at].pins;
    lane.rows.clear();
    for (std::size_t i = 0; i < lane.moves.size(); ++i) {
      const Move& move = lane.moves[i];
      Frame& frame = frames_[move.frame];
      frame.lane = -1;
      frame.move = -1;
      if (!passes(move.frame)) {
        frame.page = move.page;
        frame.dirty = move.dirty;
        frame.in_file = move.in_file;
        frame.recent = true;
        if (lane.transfer_of[i] >= 0) count_.bytes_in += static_cast<std::int64_t>(layout_.page_bytes);
      } else if (use != Use::kFill) {
        where_[move.page] = move.in_file ? kInFile : kZero;
      } else if (lane.transfers[lane.transfer_of[i]].error == 0) {
        sums_[move.page] = lane.sums[i];
        where_[move.page] = kInFile;
      } else {
        frame.page = move.page;
        frame.dirty = true;
      }
    }
    lane.moves.clear();
    wake();
  }
  if (use == Use::kFill) require_moved(lane, "cannot be written to", "; they are still in memory");
}

/// Begins a hint: forgets those of slots before the last one, and of slots that a run will not reach soon,
/// since it went back. Returns whether there is room.
bool PageCache::await(std::int64_t slot) {
  const int parity = static_cast<int>(slot & 1);
  for (const int kept : {parity, 1 - parity}) {
    const std::int64_t distance = told_slots_[kept] - slot;
    if (distance < -1 || distance > kLateHints) forget(kept);
  }
  // A replica that lags names an earlier slot: its rows stay as long as those of the later one.
  told_slots_[parity] = std::max(told_slots_[parity], slot);
  return awaited_ < most_awaited_;
}

void PageCache::ahead(std::int64_t slot, std::span<const std::int64_t> ids) {
  const BorrowedLane borrowed(*this);
  Lane& lane = *borrowed;
  const int parity = static_cast<int>(slot & 1);
  bool room = true, begun = false;
  for (std::size_t i = 0; i < ids.size() || !begun;) {
    {
      const std::lock_guard lock(mutex_);
      if (!begun) room = await(slot);
      begun = true;
      lane.moves.clear();
      for (; room && i < ids.size(); ++i) {
        const std::int64_t page = page_of(ids[i]);
        std::int32_t at = where_[page];
        if (at < 0) {
          if (lane.moves.size() == kMostMoves) break;
          room = awaited_ < most_awaited_ && (at = free_frame()) != kNoFrame;
          if (!room) break;
          expect_page(lane, at, page);
        }
        const Frame& frame = frames_[at];
        if (passes(at)) continue;
        const bool mine = frame.lane == lane.number && lane.moves[frame.move].page == page;
        if (frame.lane != -1 && !mine) continue;  // it comes or goes in other hands
        count_.ahead += mine ? 1 : 0;
        tell(at, parity, ids[i]);
      }
    }
    if (lane.moves.empty()) return;
    try {
      arrive(lane, Use::kAhead);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      undo(lane);
      throw;
    }
    settle(lane, Use::kAhead, 0);
    if (!room) return;
  }
}

void PageCache::tell(std::int32_t at, int parity, std::int64_t id) {
  Frame& frame = frames_[at];
  const bool awaited = frame.told[0] + frame.told[1] > 0;
  if (!awaited && awaited_ >= most_awaited_) return;
  const std::int64_t row = (id - first_) % layout_.rows_per_page;
  std::uint64_t& bits = told_rows_[(2 * at + parity) * told_words() + row / 64];
  const std::uint64_t bit = std::uint64_t{1} << row % 64;
  if ((bits & bit) != 0) return;
  bits |= bit;
  awaited_ += awaited ? 0 : 1;
  ++frame.told[parity];
  if (!std::exchange(frame.listed[parity], true)) told_frames_[parity].push_back(at);
}

/// A row was written: the earlier of two slots that await it has had it.
void PageCache::untell(std::int32_t at, std::int64_t id) {
  Frame& frame = frames_[at];
  if (frame.told[0] + frame.told[1] == 0) return;
  const std::int64_t row = (id - first_) % layout_.rows_per_page;
  const std::uint64_t bit = std::uint64_t{1} << row % 64;
  const int earlier = told_slots_[0] < told_slots_[1] ? 0 : 1;
  for (const int parity : {earlier, 1 - earlier}) {
    std::uint64_t& bits = told_rows_[(2 * at + parity) * told_words() + row / 64];
    if ((bits & bit) == 0) continue;
    bits &= ~bit;
    --frame.told[parity];
    awaited_ -= frame.told[0] + frame.told[1] == 0 ? 1 : 0;
    return;
  }
}

void PageCache::forget(int parity) {
  told_slots_[parity] = -1;
  for (const std::int32_t at : told_frames_[parity]) {
    Frame& frame = frames_[at];
    frame.listed[parity] = false;
    if (frame.told[parity] == 0) continue;
    frame.told[parity] = 0;
    awaited_ -= frame.told[1 - parity] == 0 ? 1 : 0;
    const auto bits = told_rows_.begin() + (2 * at + parity) * told_words();
    std::fill(bits, bits + told_words(), 0);
  }
  told_frames_[parity].clear();
}

}  // namespace tenon::tier_file
