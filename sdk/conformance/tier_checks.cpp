// Checks of contract tier/1: rows are zero at first, a read sees the newest write of its row, whole passes
// and hints leave caches and values alone, and what a tier says of itself is true. The oracle is a plain
// array.
#include "allocation_watch.hpp"
#include "subject.hpp"

#include <tenon/error.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

namespace tenon::conformance {
namespace {

using RowIds = std::vector<std::int64_t>;
using RowBytes = std::vector<std::byte>;

/// A cache of a usual share of these rows has several lines, and all of them change hands many times.
constexpr std::int64_t kTierRows = 600;
constexpr std::int64_t kTierWidth = 12;

struct RowLayout {
  std::int64_t first = 0, rows = kTierRows, width = kTierWidth;
};
/// Rows of 4, 12, 48 and 4,096 bytes; one range crosses 2^32, beyond which ids of 32 bits meet.
constexpr RowLayout kRowLayouts[] = {
    {}, {(std::int64_t{1} << 32) - 300, 600, 3}, {1000003, 97, 1}, {7, 600, 1024}};

RowIds all_ids(const RowMemorySpec& spec) {
  RowIds ids(spec.rows());
  std::iota(ids.begin(), ids.end(), spec.first);
  return ids;
}

/// The tier under test; makes memories whose names differ, since some outlive the object that gave them.
class TierBench {
 public:
  explicit TierBench(Subject& subject)
      : subject_(subject), tier_(subject.make<Tier>()), run_(subject.scratch().string()) {}

  Tier& tier() { return *tier_; }
  RowMemorySpec spec(const RowLayout& layout = {}, std::string_view state = {}) {
    names_.push_back(fmt::format("bag.{}.weight", names_.size()));
    RowMemorySpec spec{.table = names_.back(),
                       .state = state,
                       .first = layout.first,
                       .last = layout.first + layout.rows,
                       .width = layout.width};
    spec.device = &subject_.device();
    spec.seed = subject_.seed();
    return spec;
  }
  /// Null and the reason in `refused` where the tier does not hold such rows. A tier that names what it keeps
  /// after the run is given one.
  std::unique_ptr<RowMemory> try_allocate(RowMemorySpec spec) {
    for (const std::string& run : {std::string(), run_}) {
      spec.run = run;
      try {
        return tier_->allocate(spec);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kConfig) throw;
        refused = error.what();
      }
    }
    return nullptr;
  }
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) {
    std::unique_ptr<RowMemory> memory = try_allocate(spec);
    if (memory == nullptr) not_applicable(fmt::format("it refuses the rows of the kit: {}", refused));
    return memory;
  }

  std::string refused;

 private:
  Subject& subject_;
  testing::Made<Tier> tier_;
  std::string run_;
  std::deque<std::string> names_;
};

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes.first(std::min<std::size_t>(bytes.size(), 16)))
    text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text + (bytes.size() > 16 ? "..." : "");
}

/// Rows of a tier, beside a plain array that went through the same writes.
class MirroredRows {
 public:
  MirroredRows(std::unique_ptr<RowMemory> memory, const RowMemorySpec& spec)
      : spec_(spec), memory_(std::move(memory)), plain_(spec.row_bytes() * all_ids(spec).size()) {}

  RowMemory& memory() { return *memory_; }
  const RowMemorySpec& spec() const { return spec_; }

  void put(bool fills, const RowIds& ids, const RowBytes& values) {
    fills ? memory_->fill(ids, values.data()) : memory_->write(ids, values.data());
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::memcpy(row(ids[i]), values.data() + i * spec_.row_bytes(), spec_.row_bytes());
  }
  /// Fails where a row is not the newest one; `when` ends the message.
  void require(bool scans, const RowIds& ids, std::string_view when) {
    const std::size_t bytes = spec_.row_bytes();
    found_.assign(ids.size() * bytes, std::byte{0xa5});
    scans ? memory_->scan(ids, found_.data()) : memory_->read(ids, found_.data());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::span<const std::byte> got(found_.data() + i * bytes, bytes);
      const std::span<const std::byte> expected(row(ids[i]), bytes);
      if (std::ranges::equal(got, expected)) continue;
      fail(fmt::format("{}() of row {} of [{}, {}), {} bytes wide, {}: expected {}, found {}",
                       scans ? "scan" : "read", ids[i], spec_.first, spec_.last, bytes, when, hex(expected),
                       hex(got)));
    }
  }
  void require_all(std::string_view when) {
    const RowIds ids = all_ids(spec_);
    require(true, ids, when);
    require(false, ids, when);
    require(true, ids, when);
  }

 private:
  std::byte* row(std::int64_t id) { return plain_.data() + (id - spec_.first) * spec_.row_bytes(); }

  RowMemorySpec spec_;
  std::unique_ptr<RowMemory> memory_;
  RowBytes plain_, found_;
};

/// Numbers of the check's seed.
class RowDraws {
 public:
  explicit RowDraws(Subject& subject) : numbers_(subject.seed() * 2654435761u + 38) {}

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(numbers_() % static_cast<std::uint64_t>(end));
  }
  /// Small numbers come most often, as rows of tables do.
  std::int64_t near_zero(std::int64_t end) { return below(below(below(end) + 1) + 1); }
  /// Ascending, without repetition, most of them near the first.
  RowIds ids(const RowMemorySpec& spec, std::int64_t most) {
    RowIds ids;
    for (std::int64_t i = below(most + 1); i > 0; --i) ids.push_back(spec.first + near_zero(spec.rows()));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }
  /// Finite f32 whose lower half is zero, so that a tier that keeps bf16 holds them exactly.
  RowBytes values(const RowMemorySpec& spec, std::size_t rows) {
    RowBytes bytes(rows * spec.row_bytes());
    for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
      const auto number = static_cast<float>(below(256) - 128) / 16;
      std::memcpy(bytes.data() + at, &number, sizeof number);
    }
    return bytes;
  }
  RowBytes any_bits(const RowMemorySpec& spec, std::size_t rows) {
    RowBytes bytes(rows * spec.row_bytes());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(numbers_() & 0xff);
    return bytes;
  }

 private:
  std::mt19937_64 numbers_;
};

/// Calls body with rows of every layout that the tier holds, at least one.
template <typename Body>
void for_each_layout(Subject& subject, Body&& body) {
  TierBench bench(subject);
  bool any = false;
  for (const RowLayout& layout : kRowLayouts) {
    const RowMemorySpec spec = bench.spec(layout);
    std::unique_ptr<RowMemory> memory = bench.try_allocate(spec);
    if (memory == nullptr) continue;
    any = true;
    MirroredRows rows(std::move(memory), spec);
    body(rows);
  }
  if (!any) not_applicable(fmt::format("it refuses all rows of the kit: {}", bench.refused));
}

void rows_begin_with_zeros(Subject& subject) {
  for_each_layout(subject, [](MirroredRows& rows) { rows.require_all("before any write"); });
}

void reads_see_the_newest(Subject& subject) {
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec();
  MirroredRows rows(bench.allocate(spec), spec);
  RowDraws draws(subject);
  const RowIds one = {17};
  rows.require(false, one, "before any write");
  rows.put(false, one, draws.values(spec, 1));
  rows.require(false, one, "after write()");
  rows.put(false, one, draws.values(spec, 1));
  rows.require(true, one, "after a second write()");
  rows.require(false, one, "after a second write()");
  rows.put(true, one, draws.values(spec, 1));
  rows.require(false, one, "after fill()");
  rows.put(false, one, draws.values(spec, 1));
  rows.require(true, one, "after fill() and write()");
  const RowIds apart = {599, 0, 17, 300, 18};
  rows.put(false, apart, draws.values(spec, apart.size()));
  rows.require(false, {300, 17, 17, 599, 0, 18, 17, 16}, "after a write() of rows in no order");
  rows.put(true, {}, {});
  rows.put(false, {}, {});
  rows.require(false, {}, "of none");
  rows.require_all("after writes of a few");
}

// Every row is written with what no other row has, eight bits that count, so rows that share a place are
// found.
void ids_begin_anywhere(Subject& subject) {
  for_each_layout(subject, [](MirroredRows& rows) {
    const RowIds ids = all_ids(rows.spec());
    RowBytes values(ids.size() * rows.spec().row_bytes());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto number = static_cast<float>((128 + i % 128) << i / 128);
      for (std::int64_t j = 0; j < rows.spec().width; ++j)
        std::memcpy(values.data() + i * rows.spec().row_bytes() + j * sizeof number, &number, sizeof number);
    }
    rows.put(false, ids, values);
    rows.require_all("after each row had been written once");
  });
  TierBench bench(subject);
  const RowMemorySpec none = bench.spec({4000, 0, kTierWidth});
  const std::unique_ptr<RowMemory> memory = bench.try_allocate(none);
  if (memory == nullptr) {
    fail(fmt::format(
        "it refuses an empty range of rows: {}. Where a table is sharded over the replicas, a rank may own "
        "none of its rows",
        bench.refused));
  }
  memory->read({}, nullptr);
  memory->write({}, nullptr);
}

/// 10^4 calls with many ids each, most of them at the rows that a cache would hold.
void run_schedule(MirroredRows& rows, RowDraws& draws, const std::function<void(int)>& before = {}) {
  constexpr int kCalls = 10000;
  for (int call = 0; call < kCalls; ++call) {
    if (before) before(call);
    const RowIds ids = draws.ids(rows.spec(), 24);
    switch (draws.below(8)) {
      case 0:
        rows.put(true, ids, draws.values(rows.spec(), ids.size()));
        break;
      case 1:
        rows.require(true, ids, fmt::format("in call {} of a random schedule", call));
        break;
      case 2:
      case 3:
      case 4:
        rows.put(false, ids, draws.values(rows.spec(), ids.size()));
        break;
      default:
        rows.require(false, ids, fmt::format("in call {} of a random schedule", call));
    }
  }
  rows.require_all("after a random schedule");
}

void equals_a_plain_array(Subject& subject) {
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec({40, kTierRows, kTierWidth});
  MirroredRows rows(bench.allocate(spec), spec);
  RowDraws draws(subject);
  run_schedule(rows, draws);
}

void keeps_any_bits(Subject& subject) {
  for_each_layout(subject, [&](MirroredRows& rows) {
    RowDraws draws(subject);
    const RowIds ids = all_ids(rows.spec());
    rows.put(false, ids, draws.any_bits(rows.spec(), ids.size()));
    rows.require_all("of any bits, NaN among them");
  });
}

/// The counts of all levels, from the outermost on.
std::vector<TierCount> counts_of(RowMemory& memory) {
  auto* const counted = static_cast<TierCounts*>(memory.query(TierCounts::kId));
  if (counted == nullptr) not_applicable("it counts nothing");
  std::vector<TierCount> all;
  counted->counts([&](const TierCount& count) { all.push_back(count); });
  if (all.empty()) fail("counts() visits no level");
  return all;
}

std::string counts_text(const TierCount& count) {
  return fmt::format(
      "{} reads, {} writes, {} hits, {} misses, {} ahead, {} evictions, {} write-backs, {} bytes in, {} out",
      count.reads, count.writes, count.hits, count.misses, count.ahead, count.evictions, count.write_backs,
      count.bytes_in, count.bytes_out);
}

/// Reads and writes few rows at a time, as training does.
void touch_rows(MirroredRows& rows, RowDraws& draws, int calls, const std::function<void()>& after_each) {
  for (int call = 0; call < calls; ++call) {
    const RowIds ids = draws.ids(rows.spec(), 12);
    rows.require(false, ids, "between whole passes");
    if (call % 2 == 0) rows.put(false, ids, draws.values(rows.spec(), ids.size()));
    after_each();
  }
}

void whole_passes_leave_counts(Subject& subject) {
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec(), twin_spec = bench.spec();
  MirroredRows passed(bench.allocate(spec), spec), twin(bench.allocate(twin_spec), twin_spec);
  counts_of(passed.memory());
  constexpr int kCalls = 200;
  RowDraws values(subject), draws(subject), same(subject);
  const RowIds all = all_ids(spec);
  touch_rows(passed, draws, kCalls, [&] {
    const std::vector<TierCount> before = counts_of(passed.memory());
    passed.require(true, all, "of all rows");
    const RowIds some = values.ids(spec, 40);
    passed.put(true, some, values.values(spec, some.size()));
    const std::vector<TierCount> after = counts_of(passed.memory());
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (counts_text(before[i]) == counts_text(after.at(i))) continue;
      fail(
          fmt::format("level '{}': scan() of all rows and fill() of some took its counts from {} to {}; a "
                      "save or an evaluation must not show in them",
                      before[i].tier, counts_text(before[i]), counts_text(after[i])));
    }
  });
  touch_rows(twin, same, kCalls, [] {});
  const TierCount with = counts_of(passed.memory()).front(), without = counts_of(twin.memory()).front();
  const auto facts = [](const TierCount& count) {
    return std::array{count.reads, count.writes, count.hits, count.misses, count.evictions};
  };
  if (facts(with) != facts(without)) {
    fail(fmt::format(
        "the same reads and writes count {} with scan() and fill() between them, and {} without; whole "
        "passes leave what a cache holds as it was",
        counts_text(with), counts_text(without)));
  }
}

void counts_are_true(Subject& subject) {
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec();
  MirroredRows rows(bench.allocate(spec), spec);
  counts_of(rows.memory());
  RowDraws draws(subject);
  std::int64_t reads = 0, writes = 0;
  for (int call = 0; call < 300; ++call) {
    const RowIds ids = draws.ids(spec, 30);
    if (draws.below(3) == 0) {
      rows.put(false, ids, draws.values(spec, ids.size()));
      writes += static_cast<std::int64_t>(ids.size());
    } else {
      rows.require(false, ids, "among reads that are counted");
      reads += static_cast<std::int64_t>(ids.size());
    }
  }
  const std::vector<TierCount> all = counts_of(rows.memory());
  if (all[0].reads != reads || all[0].writes != writes) {
    fail(fmt::format("{} rows were read and {} written, and its outermost level '{}' counts {}", reads,
                     writes, all[0].tier, counts_text(all[0])));
  }
  for (const TierCount& level : all) {
    if (level.tier.empty()) fail(fmt::format("a level without a name counts {}", counts_text(level)));
    const std::int64_t least =
        std::min({level.reads, level.writes, level.hits, level.misses, level.ahead, level.evictions,
                  level.write_backs, level.bytes_in, level.bytes_out});
    if (least < 0 || !std::isfinite(level.stall_seconds) || level.stall_seconds < 0) {
      fail(fmt::format("level '{}' has a count below 0, or no number: {}, stalled {} s", level.tier,
                       counts_text(level), level.stall_seconds));
    }
    if (level.hits + level.misses > 0 && level.hits + level.misses != level.reads + level.writes) {
      fail(fmt::format("level '{}' counts {}: hits and misses add up to {}, reads and writes to {}",
                       level.tier, counts_text(level), level.hits + level.misses,
                       level.reads + level.writes));
    }
  }
}

void threads_have_rows_of_their_own(Subject& subject) {
  constexpr int kThreads = 4, kRounds = 300;
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec();
  const std::unique_ptr<RowMemory> memory = bench.allocate(spec);
  std::atomic<int> ready{0};
  std::vector<std::string> problems(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        // Every fourth row, so that threads meet in one page, line of a cache or word of a lock.
        RowIds ids;
        for (std::int64_t id = t; id < kTierRows; id += kThreads) ids.push_back(id);
        const std::size_t floats = ids.size() * kTierWidth;
        std::vector<float> wrote(floats), found(floats);
        ++ready;
        while (ready < kThreads) std::this_thread::yield();
        for (int round = 0; round < kRounds && problems[t].empty(); ++round) {
          const int step = 7 * round;
          for (std::size_t i = 0; i < floats; ++i)
            wrote[i] = static_cast<float>((static_cast<int>(i) / kTierWidth + step + t) % 128);
          memory->write(ids, reinterpret_cast<const std::byte*>(wrote.data()));
          memory->read(ids, reinterpret_cast<std::byte*>(found.data()));
          const auto wrong = std::mismatch(wrote.begin(), wrote.end(), found.begin());
          if (wrong.first == wrote.end()) continue;
          const auto at = wrong.first - wrote.begin();
          problems[t] = fmt::format("row {} holds {} right after its thread wrote {}", ids[at / kTierWidth],
                                    *wrong.second, *wrong.first);
        }
      } catch (const std::exception& error) {
        problems[t] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) {
    if (!problem.empty()) {
      fail(
          fmt::format("with {} threads, each of which writes and reads rows of its own: {}. Workers read at "
                      "once, and write different rows at once",
                      kThreads, problem));
    }
  }
}

void steady_calls_allocate_nothing(Subject& subject) {
  const AllocationWatch* const watch = allocation_watch();
  if (watch == nullptr) not_applicable("allocations cannot be counted in a build with a sanitizer");
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec();
  const std::unique_ptr<RowMemory> memory = bench.allocate(spec);
  RowDraws draws(subject);
  constexpr int kBatches = 32;
  std::vector<RowIds> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(draws.ids(spec, 64));
  batches.push_back(all_ids(spec));  // the largest call comes before the first one that is watched
  const RowBytes values = draws.values(spec, kTierRows);
  RowBytes out(values.size());
  const auto pass = [&] {
    for (const RowIds& ids : batches) {
      memory->read(ids, out.data());
      memory->write(ids, values.data());
    }
  };
  pass();
  pass();
  watch->open();
  pass();
  watch->close();
  const std::string stack = first_allocation_from(*watch, subject.file().string());
  if (!stack.empty())
    fail("read() and write() ask the heap for memory; prepare buffers in allocate(). First of them:" + stack);
}

void tables_are_apart(Subject& subject) {
  TierBench bench(subject);
  RowDraws draws(subject);
  std::vector<MirroredRows> tables;
  const RowMemorySpec weights = bench.spec();
  // The state of that table's optimizer, another of its states, and a second table.
  RowMemorySpec sum = weights, mean = weights;
  sum.state = "optimizer.sum";
  sum.width = 1;
  mean.state = "optimizer.mean";
  for (const RowMemorySpec& spec : {weights, sum, mean, bench.spec()})
    tables.emplace_back(bench.allocate(spec), spec);
  for (int round = 0; round < 50; ++round) {
    for (MirroredRows& table : tables) {
      const RowIds ids = draws.ids(table.spec(), 30);
      table.put(false, ids, draws.values(table.spec(), ids.size()));
    }
  }
  for (MirroredRows& table : tables)
    table.require_all(fmt::format("of '{}', after writes of other tables too", table.spec().name()));
  tables.erase(tables.begin() + 1);
  for (MirroredRows& table : tables)
    table.require_all(fmt::format("of '{}', after another table ended", table.spec().name()));
}

// Either a memory that works or an error of the two kinds that the contract names.
void refuses_what_it_cannot_hold(Subject& subject) {
  TierBench bench(subject);
  const auto attempt = [&](const std::string& what, const RowMemorySpec& spec, bool no_room) {
    try {
      const std::unique_ptr<RowMemory> memory = bench.try_allocate(spec);
      if (memory == nullptr || no_room) return;
      MirroredRows rows(bench.allocate(spec), spec);
      rows.require_all(fmt::format("of {}", what));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kRun && error.kind() != ErrorKind::kConfig) {
        fail(fmt::format("{}: expected memory, Error(kConfig) or Error(kRun), found another error: {}", what,
                         error.what()));
      }
      if (no_room && std::string_view(error.what()).find(spec.table) == std::string_view::npos) {
        fail(fmt::format("{}: expected an error that says what was asked for, with the table '{}', found: {}",
                         what, spec.table, error.what()));
      }
    } catch (const std::exception& error) {
      fail(fmt::format("{}: expected memory, Error(kConfig) or Error(kRun), found an exception: {}", what,
                       error.what()));
    }
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32}) {
    for (const RowLayout& layout : {RowLayout{0, 1, 1}, RowLayout{3, 5, 2}, RowLayout{0, 65, 130}}) {
      RowMemorySpec spec = bench.spec(layout);
      spec.dtype = dtype;
      attempt(fmt::format("{} rows of {} {}", layout.rows, layout.width, dtype_name(dtype)), spec, false);
    }
  }
  attempt("rows of 2^58 bytes", bench.spec({0, std::int64_t{1} << 50, 64}), true);
}

void hints_change_nothing(Subject& subject) {
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec({9, kTierRows, kTierWidth});
  MirroredRows rows(bench.allocate(spec), spec);
  auto* const ahead = static_cast<RowsAhead*>(rows.memory().query(RowsAhead::kId));
  if (ahead == nullptr) not_applicable("it takes no hints");
  RowDraws draws(subject), hinted(subject);
  // First in turns, then beside the reads and writes.
  run_schedule(rows, draws, [&](int call) {
    if (call % 3 == 0) ahead->ahead(call / 3, hinted.ids(spec, call % 300 == 0 ? 4 * kTierRows : 60));
  });
  std::atomic<bool> ended{false};
  std::thread hints([&] {
    for (std::int64_t slot = 4000; !ended; ++slot) ahead->ahead(slot, hinted.ids(spec, 60));
  });
  try {
    run_schedule(rows, draws);
  } catch (...) {
    ended = true;
    hints.join();
    throw;
  }
  ended = true;
  hints.join();
  rows.require_all("after hints");
}

void says_what_it_takes(Subject& subject) {
  TierBench bench(subject);
  for (const RowLayout& layout :
       {RowLayout{}, RowLayout{0, 1, 1}, RowLayout{5, 0, 4}, RowLayout{1 << 20, 1 << 24, 64}}) {
    const RowMemorySpec spec = bench.spec(layout);
    std::int64_t bytes = 0;
    try {
      bytes = bench.tier().host_bytes(spec);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      not_applicable(fmt::format("it refuses the rows of the kit: {}", error.what()));
    }
    if (bytes < 0) {
      fail(
          fmt::format("host_bytes() of {} rows of {} f32 is {}, expected at least 0: a run is refused by the "
                      "sum of all tables",
                      layout.rows, layout.width, bytes));
    }
    if (bench.tier().host_bytes(spec) != bytes)
      fail(fmt::format("host_bytes() of the same {} rows is {} and then another number", layout.rows, bytes));
  }
}

void rows_are_on_the_device(Subject& subject) {
  TierBench bench(subject);
  const RowMemorySpec spec = bench.spec({30, kTierRows, kTierWidth});
  MirroredRows rows(bench.allocate(spec), spec);
  auto* const there = static_cast<DeviceRows*>(rows.memory().query(DeviceRows::kId));
  if (there == nullptr) not_applicable("its rows are not in memory of the device alone");
  Device& device = subject.device();
  const TensorView view = there->rows_on_device();
  if (view.dtype != spec.dtype || view.shape != Shape{kTierRows, kTierWidth}) {
    fail(fmt::format("rows_on_device() is {} of {}, expected [{}, {}] of f32", view.shape.text(),
                     dtype_name(view.dtype), kTierRows, kTierWidth));
  }
  RowDraws draws(subject);
  const RowIds ids = all_ids(spec);
  RowBytes values = draws.values(spec, ids.size());
  rows.put(false, ids, values);
  RowBytes shown(values.size());
  const TensorView host{shown.data(), view.shape, spec.dtype};
  device.copy(view, host);
  device.synchronize();
  if (shown != values) fail("rows_on_device() does not hold what write() wrote");
  values = draws.values(spec, ids.size());
  device.copy({values.data(), view.shape, spec.dtype}, view);
  device.synchronize();
  there->wrote(ids);
  rows.memory().read(ids, shown.data());
  if (shown != values) fail("read() does not return what was written to rows_on_device()");
  if (there->rows_on_device().data != view.data) fail("rows_on_device() is elsewhere after writes");
}

constexpr const char* kTierKind = Tier::kKind;
constexpr Check kTierChecks[] = {
    {"tier.begins_with_zeros", kTierKind, "rows are zero before they are written", rows_begin_with_zeros},
    {"tier.reads_the_newest", kTierKind, "a read sees the newest write of its row, by any way",
     reads_see_the_newest},
    {"tier.takes_any_range", kTierKind,
     "ids begin anywhere, every row has a place of its own, and a rank may own none", ids_begin_anywhere},
    {"tier.equals_a_plain_array", kTierKind, "10,000 random calls give the rows of a plain array",
     equals_a_plain_array, 60, false, "tier.reads_the_newest"},
    {"tier.keeps_every_bit", kTierKind, "rows of any bits come back as they were", keeps_any_bits},
    {"tier.passes_leave_caches", kTierKind, "scan() and fill() leave caches and counts as they were",
     whole_passes_leave_counts, 40},
    {"tier.counts_add_up", kTierKind, "counts are what was asked for; hits and misses add up",
     counts_are_true},
    {"tier.is_safe_on_threads", kTierKind, "threads read and write different rows at once",
     threads_have_rows_of_their_own, 40},
    {"tier.allocates_nothing", kTierKind, "steady reads and writes take nothing from the heap",
     steady_calls_allocate_nothing, 20, true},
    {"tier.keeps_tables_apart", kTierKind, "tables and states of one tier do not share rows",
     tables_are_apart},
    {"tier.refuses_by_error", kTierKind, "rows that it cannot hold are refused by an error that says so",
     refuses_what_it_cannot_hold},
    {"tier.hints_change_nothing", kTierKind, "ahead() changes no row, in turns and beside reads and writes",
     hints_change_nothing, 60},
    {"tier.says_what_it_takes", kTierKind, "host_bytes() is not below 0, and the same each time",
     says_what_it_takes},
    {"tier.shows_its_rows", kTierKind, "rows on the device are those that reads and writes see",
     rows_are_on_the_device},
};

}  // namespace

std::span<const Check> tier_checks() {
  return kTierChecks;
}

}  // namespace tenon::conformance
