// Tier `told`: a small write-back cache that hears which rows a slot will read, and observer `told`, which
// compares what was told with what was read and leaves the counts in the run's folder.
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace {

using namespace tenon;

/// Longest wait for the hints of the next slot: it ends only where some are missing.
constexpr std::chrono::seconds kHintsWithin{5};

struct Counts {
  std::int64_t reads = 0;    ///< rows that slots after the first of an attempt read
  std::int64_t untold = 0;   ///< of those, never told for their slot
  std::int64_t unknown = 0;  ///< of those, told for no slot near theirs
  std::int64_t unread = 0;   ///< told for a slot that did not read them
  std::int64_t late = 0;     ///< told for a slot that had begun
  std::int64_t twice = 0;    ///< told again for the same slot, or out of order
  std::int64_t foreign = 0;  ///< told to a rank that does not own them
  std::int64_t told = 0, fetched = 0, evictions = 0, write_backs = 0;
};

class ToldRows;

/// What happens to the memories of one rank. All of it under its mutex.
struct Journal {
  std::mutex mutex;
  std::condition_variable heard;
  std::int64_t first = -1, now = -1, steps = 0;  ///< slots; `now` runs
  std::set<ToldRows*> memories;
  std::map<std::int64_t, std::size_t> pieces;  ///< memories that were told of a slot
  Counts counts;
};

Journal& journal_of(int rank) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Journal>> journals;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Journal>& journal = journals[rank];
  if (journal == nullptr) journal = std::make_unique<Journal>();
  return *journal;
}

class ToldRows final : public RowMemory, private RowsAhead {
 public:
  ToldRows(const RowMemorySpec& spec, std::int64_t lines, std::int64_t fails_at)
      : name_(spec.name()),
        first_(spec.first),
        last_(spec.last),
        lines_(static_cast<std::size_t>(lines)),
        fails_at_(fails_at),
        row_bytes_(spec.row_bytes()),
        behind_(row_bytes_ * static_cast<std::size_t>(spec.rows())),
        journal_(journal_of(spec.rank)) {
    const std::lock_guard lock(journal_.mutex);
    journal_.memories.insert(this);
  }
  ~ToldRows() override {
    const std::lock_guard lock(journal_.mutex);
    journal_.memories.erase(this);
  }

  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    const std::lock_guard lock(journal_.mutex);
    for (const std::int64_t id : ids) {
      std::memcpy(out, line(id).values.data(), row_bytes_);
      out += row_bytes_;
      note_read(id);
    }
  }
  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    const std::lock_guard lock(journal_.mutex);
    for (const std::int64_t id : ids) {
      Line& mine = line(id);
      std::memcpy(mine.values.data(), values, row_bytes_);
      mine.dirty = true;
      mine.kept_for = -1;
      values += row_bytes_;
    }
  }
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override {
    const std::lock_guard lock(journal_.mutex);
    for (const std::int64_t id : ids) {
      const auto cached = cached_.find(id);
      std::memcpy(out, cached != cached_.end() ? cached->second.values.data() : place(id), row_bytes_);
      out += row_bytes_;
    }
  }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override {
    const std::lock_guard lock(journal_.mutex);
    for (const std::int64_t id : ids) {
      const auto cached = cached_.find(id);
      std::memcpy(cached != cached_.end() ? cached->second.values.data() : place(id), values, row_bytes_);
      if (cached != cached_.end()) cached->second.dirty = true;
      values += row_bytes_;
    }
  }
  void* query(std::string_view interface_id) override {
    return interface_id == RowsAhead::kId ? static_cast<RowsAhead*>(this) : nullptr;
  }

  bool has_rows() const { return last_ > first_; }
  /// The slot has ended.
  void end_slot(std::int64_t slot, Counts& counts) {
    const auto found = told_.find(slot);
    if (found != told_.end()) {
      for (const std::int64_t id : found->second) counts.unread += read_.contains(id) ? 0 : 1;
    }
    read_.clear();
    told_.erase(told_.begin(), told_.lower_bound(slot));  // that of this slot stays for one more
  }

 private:
  struct Line {
    std::vector<std::byte> values;
    bool dirty = false;
    std::int64_t kept_for = -1;  ///< slot
    std::list<std::int64_t>::iterator order;
  };

  void ahead(std::int64_t slot, std::span<const std::int64_t> ids) override {
    const std::lock_guard lock(journal_.mutex);
    if (slot == fails_at_) fail_run(fmt::format("tier.told: the rows of {} are out of reach", name_));
    Counts& counts = journal_.counts;
    counts.late += slot <= journal_.now ? 1 : 0;
    counts.twice += std::is_sorted(ids.begin(), ids.end()) ? 0 : 1;
    if (told_[slot].empty()) ++journal_.pieces[slot];
    for (const std::int64_t id : ids) {
      ++counts.told;
      if (id < first_ || id >= last_) {
        ++counts.foreign;
        continue;
      }
      counts.twice += told_[slot].insert(id).second ? 0 : 1;
      if (!cached_.contains(id)) {
        if (cached_.size() == lines_ && !evict(false)) continue;  // no room
        ++counts.fetched;
      }
      line(id).kept_for = slot;
    }
    journal_.heard.notify_all();
  }

  void note_read(std::int64_t id) const {
    if (journal_.now <= journal_.first || journal_.now >= journal_.steps) return;
    Counts& counts = journal_.counts;
    ++counts.reads;
    read_.insert(id);
    const auto of_slot = told_.find(journal_.now);
    counts.untold += of_slot != told_.end() && of_slot->second.contains(id) ? 0 : 1;
    const auto near = [&](const auto& entry) {
      return std::abs(entry.first - journal_.now) <= 1 && entry.second.contains(id);
    };
    counts.unknown += std::any_of(told_.begin(), told_.end(), near) ? 0 : 1;
  }

  std::byte* place(std::int64_t id) const {
    return behind_.data() + static_cast<std::size_t>(id - first_) * row_bytes_;
  }
  Line& line(std::int64_t id) const {
    if (const auto found = cached_.find(id); found != cached_.end()) {
      order_.splice(order_.begin(), order_, found->second.order);
      return found->second;
    }
    if (cached_.size() == lines_) evict(true);
    order_.push_front(id);
    Line fresh{{place(id), place(id) + row_bytes_}, false, -1, order_.begin()};
    return cached_.emplace(id, std::move(fresh)).first->second;
  }
  /// The row used longest ago that is not kept; `any`: or a kept one.
  bool evict(bool any) const {
    for (int pass = 0; pass < (any ? 2 : 1); ++pass) {
      for (auto oldest = order_.end(); oldest != order_.begin();) {
        --oldest;
        Line& old = cached_.at(*oldest);
        if (pass == 0 && old.kept_for > journal_.now - 2 && old.kept_for >= 0) continue;
        if (old.dirty) {
          std::memcpy(place(*oldest), old.values.data(), row_bytes_);
          ++journal_.counts.write_backs;
        }
        ++journal_.counts.evictions;
        cached_.erase(*oldest);
        order_.erase(oldest);
        return true;
      }
    }
    return false;
  }

  std::string name_;
  std::int64_t first_, last_;
  std::size_t lines_;
  std::int64_t fails_at_;
  std::size_t row_bytes_;
  mutable std::vector<std::byte> behind_;
  Journal& journal_;
  mutable std::unordered_map<std::int64_t, Line> cached_;
  mutable std::list<std::int64_t> order_;  ///< newest first
  mutable std::set<std::int64_t> read_;    ///< in this slot
  std::map<std::int64_t, std::set<std::int64_t>> told_;
};

class ToldTier final : public Tier {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("lines", "64").at_least(1).doc_text("rows of a table that the cache holds"),
      option::integer("fails_at", "-1").doc_text("slot whose rows cannot be fetched ahead")};
  static constexpr ComponentInfo kInfo{.id = "told",
                                       .summary = "a cache that hears what is read next",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};
  explicit ToldTier(const Options& options)
      : lines_(options.integer("lines")), fails_at_(options.integer("fails_at")) {}
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    return std::make_unique<ToldRows>(spec, lines_, fails_at_);
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    return static_cast<std::int64_t>(spec.row_bytes()) * (spec.rows() + lines_);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t lines_, fails_at_;
};

class ToldReport final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::boolean("wait", "true").doc_text("a slot ends once the next one's rows were told")};
  static constexpr ComponentInfo kInfo{
      .id = "told", .summary = "compares what was told with what was read", .options = kOptions};
  ToldReport(const Options& options, Host& host)
      : wait_(options.boolean("wait")), rank_(host.rank()), journal_(journal_of(host.rank())) {}

  bool every_rank() const override { return true; }
  void on_start(const RunInfo& info) override {
    folder_ = info.folder;
    const std::lock_guard lock(journal_.mutex);
    journal_.first = journal_.now = info.first_slot;
    journal_.steps = info.steps;
  }
  void on_slot(const SlotRecord& record) override {
    std::unique_lock lock(journal_.mutex);
    const std::int64_t next = record.slot + 1;
    const auto with_rows = std::count_if(journal_.memories.begin(), journal_.memories.end(),
                                         [](const ToldRows* memory) { return memory->has_rows(); });
    const auto all_told = [&] { return journal_.pieces[next] >= static_cast<std::size_t>(with_rows); };
    if (wait_ && next < journal_.steps) journal_.heard.wait_for(lock, kHintsWithin, all_told);
    for (ToldRows* memory : journal_.memories) memory->end_slot(record.slot, journal_.counts);
    journal_.now = std::max(journal_.now, next);
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {
    const std::lock_guard lock(journal_.mutex);
    const Counts& counts = journal_.counts;
    std::ofstream(fmt::format("{}/told.rank{}.txt", folder_, rank_)) << fmt::format(
        "reads {}\nuntold {}\nunknown {}\nunread {}\nlate {}\ntwice {}\nforeign {}\ntold {}\n"
        "fetched {}\nevictions {}\nwrite_backs {}\n",
        counts.reads, counts.untold, counts.unknown, counts.unread, counts.late, counts.twice, counts.foreign,
        counts.told, counts.fetched, counts.evictions, counts.write_backs);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  bool wait_;
  int rank_;
  Journal& journal_;
  std::string folder_;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.told", .version = "0.1.0", .summary = "a tier that is told what comes"},
             ToldTier, ToldReport);
