#include "cached_rows.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace tenon::tier_cached {
namespace {

constexpr std::size_t kMostIds = 128, kChunkBytes = std::size_t{256} << 10;
/// Tags of the set this far ahead are asked for while one is looked at.
constexpr std::size_t kLookAhead = 8;

/// Hints may come in any order among so many slots; those for an earlier slot count for the last but one.
constexpr std::int64_t kMostAhead = 16;

class Stopwatch {
 public:
  std::int64_t nanoseconds() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Returns when none of the bits is set. Those that clear them say so.
void wait_for_clear(const std::atomic<std::uint16_t>& word, std::uint16_t bits) {
  for (std::uint16_t seen = word.load(std::memory_order_acquire); (seen & bits) != 0;
       seen = word.load(std::memory_order_acquire))
    word.wait(seen, std::memory_order_acquire);
}

constexpr std::uint16_t kAllBits = UINT16_MAX;

void add(std::atomic<std::int64_t>& total, std::int64_t more) {
  if (more != 0) total.fetch_add(more, std::memory_order_relaxed);
}

}  // namespace

/// What one call has in hand; kept for later calls.
class CachedRows::Chunk {
 public:
  Chunk(std::size_t ids, std::size_t row_bytes) : places(ids), buffer(ids * row_bytes) {
    for (auto* list : {&lines, &fetched, &fetched_lines, &leaving, &leaving_lines}) list->reserve(ids);
    held.reserve(ids);
    made.reserve(ids);
    at.reserve(ids);
    line_at.reserve(ids);
    sets.reserve(ids);
  }

  /// A line that got another row.
  struct Made {
    CacheSets::Place place;
    std::uint32_t way, old_tag;
    bool old_dirty;
  };

  std::vector<CacheSets::Place> places;
  std::vector<std::int64_t> lines;                   ///< of the accesses since values moved, in order
  std::vector<std::int64_t> fetched, fetched_lines;  ///< rows that come from the next level
  std::vector<std::int64_t> leaving, leaving_lines;  ///< rows that go to it
  std::vector<std::size_t> held;                     ///< lines of which this call is a user
  std::vector<Made> made;
  std::vector<std::size_t> at, line_at;  ///< scan and fill: positions of rows without and with a line
  std::vector<std::uint64_t> sets;       ///< fill: sets with rows on their way
  std::vector<std::byte> buffer;

  void clear() {
    for (auto* list : {&lines, &fetched, &fetched_lines, &leaving, &leaving_lines}) list->clear();
    held.clear();
    made.clear();
    at.clear();
    line_at.clear();
    sets.clear();
  }
};

CachedRows::CachedRows(const Setup& setup, std::unique_ptr<RowMemory> front,
                       std::unique_ptr<RowMemory> behind)
    : setup_(setup),
      chunk_ids_(
          std::clamp<std::size_t>(kChunkBytes / std::max<std::size_t>(1, setup.row_bytes), 1, kMostIds)),
      front_(std::move(front)),
      behind_(std::move(behind)),
      behind_ahead_(static_cast<RowsAhead*>(behind_->query(RowsAhead::kId))),
      sets_(setup.geometry, setup.policy, setup.aging) {}

CachedRows::~CachedRows() = default;

std::unique_ptr<CachedRows::Chunk> CachedRows::borrow() const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!spare_.empty()) {
      std::unique_ptr<Chunk> chunk = std::move(spare_.back());
      spare_.pop_back();
      return chunk;
    }
  }
  return std::make_unique<Chunk>(chunk_ids_, setup_.row_bytes);
}

void CachedRows::give_back(std::unique_ptr<Chunk> chunk) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  spare_.push_back(std::move(chunk));
}

/// Accesses that change the cache: those of read(), write() and ahead().
class CachedRows::Accesses {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite, kAhead };

  Accesses(const CachedRows& rows, Kind kind, int parity = 0)
      : rows_(rows),
        sets_(rows.sets_),
        kind_(kind),
        pin_(kind == Kind::kAhead ? hold::kPins[parity] : std::uint16_t{0}),
        own_(rows.borrow()),
        chunk_(*own_) {}
  ~Accesses() {
    if (own_->lines.empty() && own_->made.empty() && own_->held.empty()) {
      rows_.give_back(std::move(own_));
    } else {
      take_back();
    }
    Totals& totals = rows_.totals_;
    add(totals.hits, hits_);
    add(totals.misses, misses_);
    add(totals.ahead, ahead_);
    add(totals.evictions, evictions_);
    add(totals.write_backs, write_backs_);
    add(totals.bytes_in, bytes_in_);
    add(totals.bytes_out, bytes_out_);
    if (kind_ != Kind::kAhead) add(totals.stall_nanoseconds, stall_);
  }
  Accesses(const Accesses&) = delete;
  Accesses& operator=(const Accesses&) = delete;

  /// `values`: where read() puts rows, from where write() takes them; null for ahead(), whose lines go to
  /// `pinned`.
  void run(std::span<const std::int64_t> ids, std::byte* values, std::vector<std::size_t>* pinned) {
    pinned_ = pinned;
    const std::size_t row_bytes = rows_.setup_.row_bytes;
    for (std::size_t begin = 0; begin < ids.size(); begin += rows_.chunk_ids_) {
      ids_ = ids.subspan(begin, std::min(rows_.chunk_ids_, ids.size() - begin));
      values_ = values == nullptr ? nullptr : values + begin * row_bytes;
      for (std::size_t i = 0; i < ids_.size(); ++i)
        chunk_.places[i] = sets_.place(ids_[i] - rows_.setup_.first);
      for (std::size_t i = 0; i < std::min(kLookAhead, ids_.size()); ++i)
        sets_.prefetch(chunk_.places[i].set);
      start_ = 0;
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (i + kLookAhead < ids_.size()) sets_.prefetch(chunk_.places[i + kLookAhead].set);
        while (!access(ids_[i], chunk_.places[i])) {
        }
      }
      move();
    }
  }

 private:
  /// False: the cache has changed, look again.
  bool access(std::int64_t id, const CacheSets::Place& place) {
    sets_.lock(place.set);
    const std::uint32_t way = sets_.find(place);
    if (way == CacheSets::kNone) return miss(id, place);
    const std::size_t line = sets_.line(place.set, way);
    std::atomic<std::uint16_t>& state = sets_.hold(line);
    const std::uint16_t seen = state.load(std::memory_order_acquire);
    if (kind_ == Kind::kAhead) {
      if ((seen & pin_) == 0) {
        state.fetch_or(pin_, std::memory_order_relaxed);
        pinned_->push_back(line);
      }
      sets_.unlock(place.set);
      return true;
    }
    if ((seen & hold::kBusy) != 0) {
      sets_.unlock(place.set);
      wait_while(state, hold::kBusy);
      return false;
    }
    if ((seen & hold::kUsers) == hold::kUsers) {  // as many as can be counted
      sets_.unlock(place.set);
      give_way();
      return false;
    }
    state.fetch_add(1, std::memory_order_relaxed);
    if (kind_ == Kind::kWrite) {
      if (!rows_.setup_.write_through && (seen & hold::kDirty) == 0)
        state.fetch_or(hold::kDirty, std::memory_order_relaxed);
      if ((seen & hold::kPinned) != 0) {
        const std::uint16_t older = hold::kPins[rows_.older_.load(std::memory_order_relaxed)];
        state.fetch_and(static_cast<std::uint16_t>(~older), std::memory_order_relaxed);
      }
    }
    sets_.touch(place.set, way);
    sets_.unlock(place.set);
    ++hits_;
    chunk_.held.push_back(line);
    chunk_.lines.push_back(static_cast<std::int64_t>(line));
    return true;
  }

  /// With the set's lock, which it gives back.
  bool miss(std::int64_t id, const CacheSets::Place& place) {
    std::atomic<std::uint16_t>& leaving = sets_.leaving(place.set);
    if (leaving.load(std::memory_order_acquire) != 0) {
      sets_.unlock(place.set);
      wait_while(leaving, kAllBits);
      return false;
    }
    std::uint32_t way = sets_.find_empty(place.set);
    if (way == CacheSets::kNone) {
      constexpr std::uint16_t kInUse = hold::kBusy | hold::kUsers;
      way = sets_.victim(place.set, hold::kPinned);
      if (way == CacheSets::kNone) {
        if (kind_ == Kind::kAhead) {  // no room
          sets_.unlock(place.set);
          return true;
        }
        way = sets_.victim(place.set, 0);
      }
      if (in_use(place.set, way)) {
        if (pending()) {  // what this call does first may end the use
          sets_.unlock(place.set);
          move();
          return false;
        }
        way = sets_.victim(place.set, kInUse | hold::kPinned);
        if (way == CacheSets::kNone && kind_ != Kind::kAhead) way = sets_.victim(place.set, kInUse);
        if (way == CacheSets::kNone) {
          sets_.unlock(place.set);
          if (kind_ == Kind::kAhead) return true;
          give_way();
          return false;
        }
      }
      sets_.take(place.set, way);
    }
    make(id, place, way);
    sets_.unlock(place.set);
    return true;
  }

  bool in_use(std::uint64_t set, std::uint32_t way) const {
    return (sets_.hold(sets_.line(set, way)).load(std::memory_order_acquire) &
            (hold::kBusy | hold::kUsers)) != 0;
  }

  void make(std::int64_t id, const CacheSets::Place& place, std::uint32_t way) {
    const std::size_t line = sets_.line(place.set, way);
    std::atomic<std::uint16_t>& state = sets_.hold(line);
    const std::uint32_t old_tag = sets_.tag(place.set, way);
    const bool old_dirty = (state.load(std::memory_order_relaxed) & hold::kDirty) != 0;
    chunk_.made.push_back({place, way, old_tag, old_dirty});
    if (old_tag != CacheSets::kNone) ++evictions_;
    if (old_dirty) {
      chunk_.leaving.push_back(rows_.setup_.first + sets_.row(place.set, old_tag));
      chunk_.leaving_lines.push_back(static_cast<std::int64_t>(line));
      sets_.leaving(place.set).fetch_add(1, std::memory_order_relaxed);
    }
    const bool dirty = kind_ == Kind::kWrite && !rows_.setup_.write_through;
    state.store(static_cast<std::uint16_t>(hold::kBusy | (dirty ? hold::kDirty : 0) | pin_),
                std::memory_order_relaxed);
    sets_.insert(place, way, kind_ == Kind::kAhead);
    if (kind_ == Kind::kAhead) {
      ++ahead_;
      pinned_->push_back(line);
    } else {
      ++misses_;
    }
    if (kind_ != Kind::kWrite) {
      chunk_.fetched.push_back(id);
      chunk_.fetched_lines.push_back(static_cast<std::int64_t>(line));
    }
    chunk_.lines.push_back(static_cast<std::int64_t>(line));
  }

  bool pending() const { return !chunk_.lines.empty(); }

  /// Moves what is pending first: another thread may wait for it.
  void wait_while(const std::atomic<std::uint16_t>& word, std::uint16_t bits) {
    if (pending()) {
      move();
      return;
    }
    const Stopwatch watch;
    wait_for_clear(word, bits);
    stall_ += watch.nanoseconds();
  }
  void give_way() {
    if (pending()) {
      move();
      return;
    }
    const Stopwatch watch;
    std::this_thread::yield();
    stall_ += watch.nanoseconds();
  }

  /// Moves the values of all accesses that are pending, and ends them.
  void move() {
    if (!pending()) return;
    const auto row_bytes = static_cast<std::int64_t>(rows_.setup_.row_bytes);
    std::byte* const buffer = chunk_.buffer.data();
    if (!chunk_.leaving.empty()) {
      rows_.front_->read(chunk_.leaving_lines, buffer);
      const Stopwatch watch;
      rows_.behind_->write(chunk_.leaving, buffer);
      stall_ += watch.nanoseconds();
      write_backs_ += static_cast<std::int64_t>(chunk_.leaving.size());
      bytes_out_ += static_cast<std::int64_t>(chunk_.leaving.size()) * row_bytes;
      for (Chunk::Made& made : chunk_.made) {
        if (!made.old_dirty) continue;
        made.old_dirty = false;
        left(made.place.set);
      }
      chunk_.leaving.clear();
      chunk_.leaving_lines.clear();
    }
    if (!chunk_.fetched.empty()) {
      const Stopwatch watch;
      rows_.behind_->read(chunk_.fetched, buffer);
      stall_ += watch.nanoseconds();
      bytes_in_ += static_cast<std::int64_t>(chunk_.fetched.size()) * row_bytes;
      rows_.front_->write(chunk_.fetched_lines, buffer);
    }
    if (kind_ == Kind::kRead) {
      rows_.front_->read(chunk_.lines, values_ + start_ * rows_.setup_.row_bytes);
    } else if (kind_ == Kind::kWrite) {
      const std::byte* const values = values_ + start_ * rows_.setup_.row_bytes;
      if (rows_.setup_.write_through) {
        const Stopwatch watch;
        rows_.behind_->write(ids_.subspan(start_, chunk_.lines.size()), values);
        stall_ += watch.nanoseconds();
        bytes_out_ += static_cast<std::int64_t>(chunk_.lines.size()) * row_bytes;
      }
      rows_.front_->write(chunk_.lines, values);
    }
    for (const Chunk::Made& made : chunk_.made) {
      std::atomic<std::uint16_t>& state = sets_.hold(sets_.line(made.place.set, made.way));
      state.fetch_and(static_cast<std::uint16_t>(~hold::kBusy), std::memory_order_release);
      state.notify_all();
    }
    end_uses();
    start_ += chunk_.lines.size();
    chunk_.clear();
  }

  void left(std::uint64_t set) {
    std::atomic<std::uint16_t>& leaving = sets_.leaving(set);
    leaving.fetch_sub(1, std::memory_order_release);
    leaving.notify_all();
  }
  void end_uses() {
    for (const std::size_t line : chunk_.held) sets_.hold(line).fetch_sub(1, std::memory_order_release);
  }

  /// The next level failed: rows that are still to be written there keep their lines, and other lines that
  /// were made are empty.
  void take_back() {
    for (const Chunk::Made& made : chunk_.made) {
      sets_.lock(made.place.set);
      std::atomic<std::uint16_t>& state = sets_.hold(sets_.line(made.place.set, made.way));
      sets_.set_tag(made.place.set, made.way, made.old_dirty ? made.old_tag : CacheSets::kNone);
      state.store(made.old_dirty ? hold::kDirty : std::uint16_t{0}, std::memory_order_release);
      sets_.unlock(made.place.set);
      state.notify_all();
      if (made.old_dirty) left(made.place.set);
    }
    end_uses();
  }

  const CachedRows& rows_;
  CacheSets& sets_;
  Kind kind_;
  std::uint16_t pin_;
  std::unique_ptr<Chunk> own_;
  Chunk& chunk_;
  std::span<const std::int64_t> ids_;
  std::byte* values_ = nullptr;
  std::size_t start_ = 0;  ///< of the pending accesses, in the chunk
  std::vector<std::size_t>* pinned_ = nullptr;
  std::int64_t hits_ = 0, misses_ = 0, ahead_ = 0, evictions_ = 0, write_backs_ = 0, bytes_in_ = 0,
               bytes_out_ = 0, stall_ = 0;
};

/// Rows that pass by: those of scan() and fill(). They use lines that are there, and make none.
class CachedRows::Passage {
 public:
  explicit Passage(const CachedRows& rows)
      : rows_(rows), sets_(rows.sets_), row_bytes_(rows.setup_.row_bytes), chunk_(rows.borrow()) {}
  ~Passage() {
    end();
    rows_.give_back(std::move(chunk_));
  }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  void scan(std::span<const std::int64_t> ids, std::byte* out) {
    run(ids, false, [&](std::size_t begin) {
      std::byte* const to = out + begin * row_bytes_;
      scan_from(*rows_.behind_, chunk_->fetched, chunk_->at, chunk_->lines.empty(), to);
      scan_from(*rows_.front_, chunk_->lines, chunk_->line_at, chunk_->fetched.empty(), to);
    });
  }

  void fill(std::span<const std::int64_t> ids, const std::byte* values) {
    run(ids, true, [&](std::size_t begin) {
      const std::byte* const from = values + begin * row_bytes_;
      rows_.behind_->fill(ids.subspan(begin, chunk_->at.size() + chunk_->line_at.size()), from);
      if (chunk_->lines.empty()) return;
      for (std::size_t i = 0; i < chunk_->lines.size(); ++i)
        std::memcpy(chunk_->buffer.data() + i * row_bytes_, from + chunk_->line_at[i] * row_bytes_,
                    row_bytes_);
      rows_.front_->fill(chunk_->lines, chunk_->buffer.data());
    });
  }

 private:
  /// `whole`: the rows are all that move, in their order.
  void scan_from(const RowMemory& memory, const std::vector<std::int64_t>& ids,
                 const std::vector<std::size_t>& at, bool whole, std::byte* out) {
    if (ids.empty()) return;
    if (whole) {
      memory.scan(ids, out);
      return;
    }
    memory.scan(ids, chunk_->buffer.data());
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::memcpy(out + at[i] * row_bytes_, chunk_->buffer.data() + i * row_bytes_, row_bytes_);
  }

  /// Calls move(first position) for rows whose places are known and stay.
  template <typename Move>
  void run(std::span<const std::int64_t> ids, bool changes, Move&& move) {
    std::size_t begin = 0;
    const auto move_all = [&](std::size_t end_position) {
      if (end_position > begin) move(begin);
      end();
      begin = end_position;
    };
    for (std::size_t i = 0; i < ids.size();) {
      const std::atomic<std::uint16_t>* const wait_for = look(ids[i], i - begin, changes);
      if (wait_for == nullptr) {
        if (++i - begin == rows_.chunk_ids_) move_all(i);
      } else if (i > begin) {
        move_all(i);  // another thread may wait for this one
      } else {
        wait_for_clear(*wait_for, wait_bits_);
      }
    }
    move_all(ids.size());
  }

  /// Null: the row's place is known. Otherwise what to wait for, until wait_bits_ are clear.
  const std::atomic<std::uint16_t>* look(std::int64_t id, std::size_t at, bool changes) {
    const CacheSets::Place place = sets_.place(id - rows_.setup_.first);
    sets_.lock(place.set);
    const std::uint32_t way = sets_.find(place);
    const std::atomic<std::uint16_t>* wait_for = nullptr;
    if (way == CacheSets::kNone) {
      std::atomic<std::uint16_t>& leaving = sets_.leaving(place.set);
      if (leaving.load(std::memory_order_acquire) != 0) {
        wait_for = &leaving;
        wait_bits_ = kAllBits;
      } else {
        chunk_->fetched.push_back(id);
        chunk_->at.push_back(at);
        if (changes) {  // no other call fetches the old value meanwhile
          leaving.fetch_add(1, std::memory_order_relaxed);
          chunk_->sets.push_back(place.set);
        }
      }
    } else {
      const std::size_t line = sets_.line(place.set, way);
      std::atomic<std::uint16_t>& state = sets_.hold(line);
      const std::uint16_t seen = state.load(std::memory_order_acquire);
      if ((seen & hold::kBusy) != 0) {
        wait_for = &state;
        wait_bits_ = hold::kBusy;
      } else if ((seen & hold::kUsers) == hold::kUsers) {
        wait_for = &state;
        wait_bits_ = 0;
      } else {
        state.fetch_add(1, std::memory_order_relaxed);
        chunk_->held.push_back(line);
        chunk_->lines.push_back(static_cast<std::int64_t>(line));
        chunk_->line_at.push_back(at);
      }
    }
    sets_.unlock(place.set);
    return wait_for;
  }

  void end() {
    for (const std::size_t line : chunk_->held) sets_.hold(line).fetch_sub(1, std::memory_order_release);
    for (const std::uint64_t set : chunk_->sets) {
      std::atomic<std::uint16_t>& leaving = sets_.leaving(set);
      leaving.fetch_sub(1, std::memory_order_release);
      leaving.notify_all();
    }
    chunk_->clear();
  }

  const CachedRows& rows_;
  CacheSets& sets_;
  std::size_t row_bytes_;
  std::unique_ptr<Chunk> chunk_;
  std::uint16_t wait_bits_ = 0;
};

void CachedRows::read(std::span<const std::int64_t> ids, std::byte* out) const {
  add(totals_.reads, static_cast<std::int64_t>(ids.size()));
  Accesses(*this, Accesses::Kind::kRead).run(ids, out, nullptr);
}

void CachedRows::write(std::span<const std::int64_t> ids, const std::byte* values) {
  add(totals_.writes, static_cast<std::int64_t>(ids.size()));
  // Accesses only reads what write() hands on.
  Accesses(*this, Accesses::Kind::kWrite).run(ids, const_cast<std::byte*>(values), nullptr);
}

void CachedRows::scan(std::span<const std::int64_t> ids, std::byte* out) const {
  Passage(*this).scan(ids, out);
}

void CachedRows::fill(std::span<const std::int64_t> ids, const std::byte* values) {
  Passage(*this).fill(ids, values);
}

void* CachedRows::query(std::string_view interface_id) {
  if (interface_id == RowsAhead::kId) return static_cast<RowsAhead*>(this);
  if (interface_id == TierCounts::kId) return static_cast<TierCounts*>(this);
  return nullptr;
}

void CachedRows::ahead(std::int64_t slot, std::span<const std::int64_t> ids) {
  const std::int64_t newest = std::max(told_[0].slot, told_[1].slot);
  const bool back = newest - slot > kMostAhead;  // to a checkpoint
  const std::int64_t as_slot = back ? slot : std::max(slot, newest - 1);
  for (int each = 0; each < 2; ++each) {
    if (back || told_[each].slot + 2 <= as_slot) release(each);
  }
  const int parity = static_cast<int>(as_slot & 1), other = 1 - parity;
  Told& mine = told_[parity];
  mine.slot = as_slot;
  const bool other_is_older = told_[other].slot >= 0 && told_[other].slot < as_slot;
  older_.store(other_is_older ? other : parity, std::memory_order_relaxed);

  if (behind_ahead_ != nullptr) {
    absent_.clear();
    for (const std::int64_t id : ids) {
      const CacheSets::Place place = sets_.place(id - setup_.first);
      sets_.lock(place.set);
      if (sets_.find(place) == CacheSets::kNone) absent_.push_back(id);
      sets_.unlock(place.set);
    }
    behind_ahead_->ahead(slot, absent_);
  }
  mine.lines.reserve(mine.lines.size() + ids.size());
  Accesses(*this, Accesses::Kind::kAhead, parity).run(ids, nullptr, &mine.lines);
}

void CachedRows::release(int parity) {
  Told& told = told_[parity];
  for (const std::size_t line : told.lines)
    sets_.hold(line).fetch_and(static_cast<std::uint16_t>(~hold::kPins[parity]), std::memory_order_relaxed);
  told.lines.clear();
  told.slot = -1;
}

void CachedRows::counts(const std::function<void(const TierCount&)>& visit) const {
  const auto value = [](const std::atomic<std::int64_t>& total) {
    return total.load(std::memory_order_relaxed);
  };
  TierCount own{.tier = "cached",
                .reads = value(totals_.reads),
                .writes = value(totals_.writes),
                .hits = value(totals_.hits),
                .misses = value(totals_.misses),
                .ahead = value(totals_.ahead),
                .evictions = value(totals_.evictions),
                .write_backs = value(totals_.write_backs),
                .bytes_in = value(totals_.bytes_in),
                .bytes_out = value(totals_.bytes_out),
                .stall_seconds = static_cast<double>(value(totals_.stall_nanoseconds)) * 1e-9};
  visit(own);
  const auto visit_inner = [&visit](RowMemory& memory, const char* path) {
    auto* const inner = static_cast<TierCounts*>(memory.query(TierCounts::kId));
    if (inner == nullptr) return;
    inner->counts([&](const TierCount& level) {
      TierCount named = level;
      named.tier = path + level.tier;
      visit(named);
    });
  };
  visit_inner(*front_, "cached.front/");
  visit_inner(*behind_, "cached/");
}

}  // namespace tenon::tier_cached
