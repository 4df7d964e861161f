// Rows in pages against rows in host memory: the same bits whatever is resident; and what is resident when.
#include "faulty_pages.hpp"
#include "file_rows.hpp"
#include "scratch_folder.hpp"

#include "base/testing/allocation_count.hpp"

#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tenon::tier_file {
namespace page_cache_suite {

using Ids = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

/// A few values of one draw after the other.
class Schedule {
 public:
  Schedule(const RowMemorySpec& spec, unsigned seed) : spec_(spec), random_(seed) {}
  std::uint32_t draw(std::uint32_t below) { return random_() % below; }
  Ids ids(std::uint32_t most) {
    Ids ids(1 + draw(most));
    if (draw(4) == 0) {  // neighbours, as whole pages come in restores
      const std::int64_t begin = draw(spec_.rows());
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = spec_.first + (begin + i) % spec_.rows();
    } else {
      for (std::int64_t& id : ids) id = spec_.first + draw(spec_.rows());
    }
    return ids;
  }
  Bytes values(std::size_t rows) {
    Bytes values(rows * spec_.row_bytes());
    std::uint64_t word = random_();
    for (std::size_t at = 0; at < values.size(); at += sizeof word) {
      word = word * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(values.data() + at, &word, std::min(sizeof word, values.size() - at));
    }
    return values;
  }

 private:
  const RowMemorySpec& spec_;
  std::mt19937 random_;
};

Ids all_ids(const RowMemorySpec& spec) {
  Ids ids(spec.rows());
  std::iota(ids.begin(), ids.end(), spec.first);
  return ids;
}

Bytes scan_of(const RowMemory& rows, const RowMemorySpec& spec, const Ids& ids) {
  Bytes out(ids.size() * spec.row_bytes());
  rows.scan(ids, out.data());
  return out;
}

RowsAhead& ahead_of(RowMemory& rows) {
  return *static_cast<RowsAhead*>(rows.query(RowsAhead::kId));
}

TierCount count_of(RowMemory& rows) {
  TierCount found;
  static_cast<TierCounts*>(rows.query(TierCounts::kId))->counts([&](const TierCount& count) {
    found = count;
  });
  return found;
}

struct Shape {
  std::int64_t first, last, width;
  DType dtype;
};
/// Many rows to a page; an odd number of bytes that leaves a rest of a page; wider than a page.
constexpr Shape kShapes[] = {
    {700, 1700, 16, DType::kF32}, {0, 3000, 3, DType::kBF16}, {5, 25, 1500, DType::kF32}};

RowMemorySpec spec_of(const Shape& shape) {
  return {.table = "emb.0.weight",
          .first = shape.first,
          .last = shape.last,
          .width = shape.width,
          .dtype = shape.dtype};
}

/// Calls on both; every read is compared.
void compare_with_host_rows(FileRows& rows, const RowMemorySpec& spec, int calls, std::int64_t resident) {
  const std::unique_ptr<RowMemory> host = make_host_rows(spec, {});
  Schedule schedule(spec, 7);
  std::int64_t slot = 0;
  for (int call = 0; call < calls; ++call) {
    const std::uint32_t kind = schedule.draw(20);
    const Ids ids = schedule.ids(kind == 19 ? 300 : 8);
    if (kind < 8) {
      Bytes expected(ids.size() * spec.row_bytes()), found(expected.size());
      host->read(ids, expected.data());
      rows.read(ids, found.data());
      ASSERT_EQ(found, expected) << "read " << call;
    } else if (kind < 16) {
      const Bytes values = schedule.values(ids.size());
      host->write(ids, values.data());
      rows.write(ids, values.data());
    } else if (kind == 16) {
      ahead_of(rows).ahead(slot++, ids);
    } else if (kind == 17) {
      const Bytes values = schedule.values(ids.size());
      host->fill(ids, values.data());
      rows.fill(ids, values.data());
    } else {
      ASSERT_EQ(scan_of(rows, spec, ids), scan_of(*host, spec, ids)) << "scan " << call;
    }
    ASSERT_LE(rows.cache().resident_pages(), resident);
  }
  EXPECT_EQ(scan_of(rows, spec, all_ids(spec)), scan_of(*host, spec, all_ids(spec)));
  EXPECT_EQ(rows.cache().resident_pages(), std::min(resident, PageLayout(spec).pages));
}

TEST(PageCache, T1_RowsEqualHostMemoryWithTwoResidentPages) {
  for (const Shape& shape : kShapes) {
    const RowMemorySpec spec = spec_of(shape);
    const PageLayout layout(spec);
    auto pages = std::make_unique<FaultyPages>(layout.file_bytes());
    FaultyPages& file = *pages;
    FileRows rows(spec, 2, std::move(pages), "/disk");
    compare_with_host_rows(rows, spec, 100'000, 2);
    EXPECT_GT(file.writes, 10'000) << "evictions write";
    EXPECT_GT(count_of(rows).write_backs, 10'000);
  }
}

TEST(PageCache, T3_OnePageAndAllPagesGiveTheSameRows) {
  for (const Shape& shape : kShapes) {
    const RowMemorySpec spec = spec_of(shape);
    const PageLayout layout(spec);
    for (const std::int64_t resident : {std::int64_t{1}, layout.pages, 10 * layout.pages}) {
      FileRows rows(spec, resident, std::make_unique<FaultyPages>(layout.file_bytes()), "/disk");
      compare_with_host_rows(rows, spec, 20'000, resident);
      if (resident >= layout.pages) {
        EXPECT_EQ(count_of(rows).evictions, 0);
      }
    }
  }
}

class PagesOnDisk : public testing::FolderTest {};

TEST_F(PagesOnDisk, T1_RowsEqualHostMemoryWithQueuesAndWithout) {
  for (const bool queues : {true, false}) {
    for (const bool buffered : {true, false}) {
      Rings rings(queues);
      const ScratchFolder folder(folder_, buffered);
      for (const Shape& shape : kShapes) {
        const RowMemorySpec spec = spec_of(shape);
        FileRows rows(spec, 3, folder.make_file("t", PageLayout(spec).file_bytes(), rings), folder_);
        compare_with_host_rows(rows, spec, 1000, 3);
      }
    }
  }
}

TEST_F(PagesOnDisk, ErrorsBelongToTheirTransfersWithQueuesAndWithout) {
  const std::string path = write("file", std::string(3 * kPageBytes, 'x'));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  Bytes memory(5 * kPageBytes);
  for (const bool queues : {true, false}) {
    Rings rings(queues);
    std::vector<PageTransfer> transfers(5);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const std::int64_t page = (i + 2) % 5;  // 2, 3, 4, 0, 1
      transfers[i] = {page * 4096, memory.data() + i * kPageBytes, kPageBytes};
    }
    rings.move(file, Rings::Direction::kRead, transfers);
    const auto errors = [&] {
      std::vector<int> errors;
      for (const PageTransfer& transfer : transfers) errors.push_back(transfer.error);
      return errors;
    };
    EXPECT_THAT(errors(), ::testing::ElementsAre(0, kEndOfFile, kEndOfFile, 0, 0));
    EXPECT_EQ(memory[4 * kPageBytes], std::byte{'x'});
    rings.move(file, Rings::Direction::kWrite, transfers);
    EXPECT_THAT(errors(), ::testing::Each(EBADF));
    // More than a queue holds.
    transfers.assign(2 * Rings::kDepth + 7, transfers[0]);
    rings.move(file, Rings::Direction::kRead, transfers);
    EXPECT_THAT(errors(), ::testing::Each(0));
  }
  ::close(file);
}

/// 40 pages of 64 rows of 64 bytes, all in the file, none resident.
class ResidentPages : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPages = 40, kRowsPerPage = 64;
  void make(std::int64_t resident) {
    auto pages = std::make_unique<FaultyPages>(PageLayout(spec_).file_bytes());
    file_ = pages.get();
    rows_ = std::make_unique<FileRows>(spec_, resident, std::move(pages), "/disk");
    Schedule schedule(spec_, 3);
    values_ = schedule.values(kPages * kRowsPerPage);
    rows_->fill(all_ids(spec_), values_.data());
  }
  /// A row of each page.
  static Ids rows_of(std::int64_t first_page, std::int64_t last_page) {
    Ids ids;
    for (std::int64_t page = first_page; page < last_page; ++page)
      ids.push_back(page * kRowsPerPage + page % 60);
    return ids;
  }
  std::int64_t reads_for(const Ids& ids) {
    const std::int64_t before = file_->reads;
    Bytes out(ids.size() * spec_.row_bytes());
    rows_->read(ids, out.data());
    return file_->reads - before;
  }
  void write(const Ids& ids) { rows_->write(ids, values_.data()); }

  RowMemorySpec spec_{.table = "emb.0.weight", .last = kPages * kRowsPerPage, .width = 16};
  FaultyPages* file_ = nullptr;
  std::unique_ptr<FileRows> rows_;
  Bytes values_;
};

TEST_F(ResidentPages, OneReadAsksForAllMissingPagesAtOnce) {
  make(20);
  Ids ids;
  for (std::int64_t page = 0; page < kPages; page += 2) ids.push_back(page * kRowsPerPage);
  EXPECT_EQ(reads_for(ids), 20);
  EXPECT_EQ(file_->read_calls, 1);
  EXPECT_EQ(reads_for(ids), 0) << "they are resident now";
}

TEST_F(ResidentPages, ACallThatNeedsMorePagesThanFitReadsEachAboutOnce) {
  make(4);
  Ids ids = all_ids(spec_);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(2));
  EXPECT_LE(reads_for(ids), kPages + 4);
  Bytes out(ids.size() * 64);
  rows_->read(ids, out.data());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ASSERT_TRUE(std::equal(out.begin() + i * 64, out.begin() + (i + 1) * 64, values_.begin() + ids[i] * 64));
}

TEST_F(ResidentPages, FillWritesThroughAndScanPasses) {
  make(4);
  EXPECT_TRUE(std::equal(values_.begin(), values_.end(), file_->bytes().begin())) << "fill has written";
  EXPECT_EQ(file_->reads, 0) << "whole pages need no reading";
  EXPECT_EQ(rows_->cache().resident_pages(), 0);

  write(rows_of(10, 14));
  const TierCount before = count_of(*rows_);
  EXPECT_EQ(before.writes, 4);
  EXPECT_EQ(before.misses, 4);
  Bytes expected = values_;
  for (std::size_t i = 0; i < 4; ++i)
    std::copy_n(values_.begin() + i * 64, 64, expected.begin() + rows_of(10, 14)[i] * 64);
  EXPECT_EQ(scan_of(*rows_, spec_, all_ids(spec_)), expected) << "dirty rows are seen";
  rows_->fill(rows_of(11, 13), values_.data());
  rows_->fill(rows_of(20, 23), values_.data());
  const TierCount after = count_of(*rows_);
  EXPECT_EQ(after.reads, before.reads);
  EXPECT_EQ(after.hits, before.hits);
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.evictions, before.evictions);
  EXPECT_EQ(after.write_backs, before.write_backs);
  EXPECT_EQ(after.bytes_in, before.bytes_in);
  EXPECT_EQ(after.bytes_out, before.bytes_out);
  EXPECT_EQ(reads_for(rows_of(10, 14)), 0) << "the same pages are resident";
}

TEST_F(ResidentPages, CountsWhatHappens) {
  make(4);
  write(rows_of(0, 4));
  reads_for(rows_of(4, 8));
  reads_for(rows_of(4, 8));
  const TierCount count = count_of(*rows_);
  EXPECT_EQ(count.tier, "file");
  EXPECT_EQ(count.reads, 8);
  EXPECT_EQ(count.writes, 4);
  EXPECT_EQ(count.hits, 4);
  EXPECT_EQ(count.misses, 8);
  EXPECT_EQ(count.evictions, 4);
  EXPECT_EQ(count.write_backs, 4);
  EXPECT_EQ(count.bytes_in, 8 * 4096);
  EXPECT_EQ(count.bytes_out, 4 * 4096);
  EXPECT_GT(count.stall_seconds, 0);
}

TEST_F(ResidentPages, PagesUsedTwiceOutlastPagesUsedOnce) {
  make(8);
  for (std::int64_t page = 8; page < kPages; ++page) {
    reads_for(rows_of(0, 4));
    reads_for(rows_of(page, page + 1));
  }
  EXPECT_EQ(reads_for(rows_of(0, 4)), 0);
}

TEST_F(ResidentPages, T5_PagesOfAHintStayUntilTheirRowsAreWritten) {
  make(8);
  ahead_of(*rows_).ahead(0, rows_of(0, 6));
  EXPECT_EQ(file_->read_calls, 1);
  EXPECT_EQ(count_of(*rows_).ahead, 6);
  EXPECT_EQ(count_of(*rows_).reads, 0);
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(0, 6)), 0);
  write(rows_of(0, 3));
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(3, 6)), 0) << "these were not written";
  EXPECT_EQ(reads_for(rows_of(0, 3)), 3);
}

TEST_F(ResidentPages, T5_PagesOfAHintStayUntilTheHintAfterTheNextOne) {
  make(12);
  ahead_of(*rows_).ahead(4, rows_of(0, 3));
  ahead_of(*rows_).ahead(5, rows_of(2, 5));
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(0, 5)), 0);
  ahead_of(*rows_).ahead(6, rows_of(5, 6));
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(2, 6)), 0);
  EXPECT_EQ(reads_for(rows_of(0, 2)), 2);
}

TEST_F(ResidentPages, T5_ARowThatTwoSlotsAwaitStaysForTheSecond) {
  make(8);
  ahead_of(*rows_).ahead(0, rows_of(0, 2));
  ahead_of(*rows_).ahead(1, rows_of(1, 3));
  write(rows_of(0, 2));
  ahead_of(*rows_).ahead(2, rows_of(3, 4));
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(1, 3)), 0);
  write(rows_of(1, 3));
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(0, 3)), 3);
}

TEST_F(ResidentPages, T5_AHintOfALaterReplicaLeavesThoseOfOthers) {
  make(12);
  ahead_of(*rows_).ahead(6, rows_of(0, 2));
  ahead_of(*rows_).ahead(4, rows_of(2, 4));
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(0, 4)), 0);
  ahead_of(*rows_).ahead(0, rows_of(4, 5));  // the run went back: both are forgotten
  reads_for(rows_of(10, kPages));
  EXPECT_EQ(reads_for(rows_of(0, 4)), 4);
}

TEST_F(ResidentPages, T5_HintsLeaveRoomForReads) {
  for (const std::int64_t resident : {1, 2, 8}) {
    make(resident);
    ahead_of(*rows_).ahead(0, rows_of(0, kPages));
    ahead_of(*rows_).ahead(1, rows_of(0, kPages));
    EXPECT_EQ(count_of(*rows_).ahead, resident - std::max<std::int64_t>(1, resident / 4));
    EXPECT_GT(reads_for(rows_of(20, kPages)), 0);
  }
}

TEST_F(ResidentPages, SteadyCallsAllocateNothing) {
  make(8);
  const Ids ids = rows_of(0, kPages);
  Bytes out(ids.size() * spec_.row_bytes());
  std::int64_t slot = 0;
  const auto round = [&] {
    rows_->read(ids, out.data());
    rows_->write(ids, out.data());
    rows_->scan(ids, out.data());
    rows_->fill(ids, out.data());
    ahead_of(*rows_).ahead(++slot, ids);
  };
  file_->history.reserve(100'000);
  round();
  round();
  const std::int64_t before = testing::allocation_count();
  for (int i = 0; i < 10; ++i) round();
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST_F(PagesOnDisk, SteadyCallsAllocateNothing) {
  const RowMemorySpec spec = spec_of(kShapes[0]);
  Rings rings;
  const ScratchFolder folder(folder_);
  FileRows rows(spec, 4, folder.make_file("t", PageLayout(spec).file_bytes(), rings), folder_);
  const Ids ids = all_ids(spec);
  Bytes out(ids.size() * spec.row_bytes());
  const auto round = [&] {
    rows.read(ids, out.data());
    rows.write(ids, out.data());
    rows.scan(ids, out.data());
    rows.fill(ids, out.data());
  };
  round();
  const std::int64_t before = testing::allocation_count();
  for (int i = 0; i < 10; ++i) round();
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST_F(ResidentPages, HostBytesCountPagesAndFacts) {
  const PageLayout layout(spec_);
  const std::int64_t one = PageCache::host_bytes(layout, 1), four = PageCache::host_bytes(layout, 4);
  EXPECT_GE(four - one, 3 * 4096);
  EXPECT_LT(four - one, 3 * 4096 * 1.05);
  EXPECT_EQ(PageCache::host_bytes(layout, kPages), PageCache::host_bytes(layout, 100 * kPages));
}

/// Writers share pages, not rows; beside them rows are scanned and told of. Two passes: pages in memory,
/// which move quickly, and pages on a disk, which threads wait for.
void share_pages(const RowMemorySpec& spec, std::int64_t resident, std::unique_ptr<PageFile> file,
                 int rounds) {
  constexpr int kWriters = 4, kGroups = kWriters + 1;
  FileRows rows(spec, resident, std::move(file), "/disk");
  const std::int64_t each = spec.rows() / kGroups;
  std::atomic<bool> wrong{false}, over{false};
  const auto own_rows = [&](int writer) {
    Ids ids(each);
    for (std::int64_t i = 0; i < each; ++i) ids[i] = spec.first + i * kGroups + writer;
    return ids;
  };
  Schedule first(spec, 1);
  const Ids still = own_rows(kWriters);
  const Bytes still_values = first.values(still.size());
  rows.write(still, still_values.data());
  std::vector<Bytes> last(kWriters);
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      Schedule schedule(spec, 10 + writer);
      Ids ids = own_rows(writer);
      Bytes values(ids.size() * spec.row_bytes()), found(values.size());
      for (int round = 0; round < rounds && !wrong; ++round) {
        std::rotate(ids.begin(), ids.begin() + schedule.draw(ids.size()), ids.end());
        values = schedule.values(ids.size());
        if (round % 5 == 4) {
          rows.fill(ids, values.data());
        } else {
          rows.write(ids, values.data());
        }
        rows.read(ids, found.data());
        if (found != values) wrong = true;
        rows.scan(ids, found.data());
        if (found != values) wrong = true;
      }
    });
  }
  threads.emplace_back([&] {
    while (!over) {
      Bytes found(still.size() * spec.row_bytes());
      rows.scan(still, found.data());
      if (found != still_values) wrong = true;
      rows.read(still, found.data());
      if (found != still_values) wrong = true;
    }
  });
  threads.emplace_back([&] {
    Schedule schedule(spec, 99);
    for (std::int64_t slot = 0; !over; ++slot) ahead_of(rows).ahead(slot, schedule.ids(30));
  });
  for (int writer = 0; writer < kWriters; ++writer) threads[writer].join();
  over = true;
  threads[kWriters].join();
  threads[kWriters + 1].join();
  EXPECT_FALSE(wrong);
}

TEST(PageCache, ThreadsShareThePagesOfTheirRows) {
  const RowMemorySpec spec{.table = "emb.0.weight", .first = 3, .last = 643, .width = 16};
  for (const std::int64_t resident : {1, 3, 8})
    share_pages(spec, resident, std::make_unique<FaultyPages>(PageLayout(spec).file_bytes()), 300);
}

TEST_F(PagesOnDisk, ThreadsShareThePagesOfTheirRows) {
  const RowMemorySpec spec{.table = "emb.0.weight", .first = 3, .last = 643, .width = 16};
  Rings rings;
  const ScratchFolder folder(folder_);
  share_pages(spec, 5, folder.make_file("t", PageLayout(spec).file_bytes(), rings), 60);
}

TEST(PageCache, ATableWithoutRowsTakesNothing) {
  const RowMemorySpec spec{.table = "emb.0.weight", .first = 3, .last = 3, .width = 16};
  FileRows rows(spec, 4, std::make_unique<FaultyPages>(0), "/disk");
  rows.read({}, nullptr);
  ahead_of(rows).ahead(0, {});
  EXPECT_EQ(PageCache::host_bytes(PageLayout(spec), 4), 0);
}

}  // namespace page_cache_suite
}  // namespace tenon::tier_file
