// The component as configurations make it: what it refuses, files that others shorten, and memory that is
// really bounded.
#include "file_rows.hpp"
#include "scratch_folder.hpp"

#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <linux/magic.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace tenon::tier_file {
namespace file_tier_suite {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

class FileTier : public testing::FolderTest {
 protected:
  FileTier() { registry_.discover({}); }
  testing::Made<Tier> tier(const std::string& more = "") {
    return testing::make<Tier>(registry_, host_, "file", "folder = '" + folder_ + "'\n" + more);
  }

  Registry registry_;
  testing::QuietHost host_;
};

TEST_F(FileTier, KeepsRowsAndLeavesNoFiles) {
  const auto made = tier("resident = '1MiB'");
  const RowMemorySpec spec{.table = "t", .state = "optimizer.sum", .first = 10, .last = 90'010, .width = 16};
  const auto rows = made->allocate(spec);
  std::vector<std::int64_t> ids(90'000);
  std::iota(ids.begin(), ids.end(), 10);
  std::vector<float> values(ids.size() * 16), found(values.size());
  rows->read(ids, reinterpret_cast<std::byte*>(found.data()));
  EXPECT_EQ(found, values) << "zero at first";
  std::iota(values.begin(), values.end(), 1.0f);
  rows->write(ids, reinterpret_cast<const std::byte*>(values.data()));
  rows->read(ids, reinterpret_cast<std::byte*>(found.data()));
  EXPECT_EQ(found, values);
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the file has no name";
  EXPECT_LE(made->host_bytes(spec), (std::int64_t{1} << 20) * 1.02 + (1 << 20));
  for (const std::string& message : host_.messages)
    EXPECT_THAT(message, ::testing::AnyOf(HasSubstr("takes no O_DIRECT"), HasSubstr("no io_uring")));
}

TEST_F(FileTier, RefusesWhatItCannotHold) {
  EXPECT_THAT(error_of([&] { testing::make<Tier>(registry_, host_, "file", ""); }), HasSubstr("folder"));
  EXPECT_THAT(error_of([&] { tier("resident = 'much'"); }), HasSubstr("resident"));
  const RowMemorySpec spec{.table = "emb.0.weight", .last = 100'000, .width = 16};
  const int threads = parallel_threads();
  set_parallel_threads(3);
  EXPECT_THAT(
      error_of([&] { tier("resident = '8KiB'")->allocate(spec); }),
      HasSubstr("resident = 8192 bytes hold 2 pages of 4096 bytes of row table 'emb.0.weight', and each "
                "of 3 threads needs one: expected at least 12288 bytes"));
  EXPECT_NO_THROW(tier("resident = '12KiB'")->allocate(spec));
  EXPECT_NO_THROW(tier("resident = '8KiB'")->allocate({.table = "small", .last = 100, .width = 16}));
  set_parallel_threads(threads);
  EXPECT_THAT(
      error_of(
          [&] { tier()->allocate({.table = "emb.0.weight", .last = std::int64_t{1} << 40, .width = 1024}); },
          ErrorKind::kRun),
      AllOf(HasSubstr("row table 'emb.0.weight' wants 4503599627370496 bytes in '" + folder_ + "': "),
            HasSubstr(" bytes are free there; free some, or name another folder")));
}

TEST_F(FileTier, RefusesAFolderWithoutTheRightToWrite) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  // Named as ".": the folders above may be closed to the other user.
  const std::filesystem::path started = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const std::string error = error_of([] { ScratchFolder folder("."); });
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  std::filesystem::current_path(started);
  EXPECT_THAT(error, HasSubstr("no file can be made in folder = '.': Permission denied"));
  EXPECT_THAT(error_of([&] { ScratchFolder folder("/proc"); }),
              HasSubstr("no file can be made in folder = '/proc'"));
}

TEST_F(FileTier, KnowsFileSystemsOfOtherMachines) {
  EXPECT_STREQ(network_file_system(0x6969), "NFS");
  EXPECT_STREQ(network_file_system(0xFF534D42), "CIFS");
  EXPECT_STREQ(network_file_system(0x65735546), "FUSE");
  EXPECT_EQ(network_file_system(0xEF53), nullptr) << "ext4";
  EXPECT_EQ(network_file_system(0x01021994), nullptr) << "tmpfs";
  EXPECT_EQ(network_file_system(0x794C7630), nullptr) << "overlay";
}

TEST_F(FileTier, NamesTheRowsOfAFileThatSomebodyShortened) {
  Rings rings;
  const ScratchFolder folder(folder_);
  const RowMemorySpec spec{.table = "emb.0.weight", .last = 640, .width = 16};  // 10 pages of 64 rows
  auto file = folder.make_file("emb.0.weight", PageLayout(spec).file_bytes(), rings);
  const int descriptor = static_cast<DiskFile&>(*file).descriptor();
  const FileRows rows(spec, 2, std::move(file), folder_);
  std::vector<std::int64_t> ids(640);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> values(640 * 16, 1.5f);
  const_cast<FileRows&>(rows).fill(ids, reinterpret_cast<const std::byte*>(values.data()));
  ASSERT_EQ(::ftruncate(descriptor, 3 * 4096), 0);
  const std::vector<std::int64_t> before = {10, 191}, after = {300};
  rows.read(before, reinterpret_cast<std::byte*>(values.data()));
  EXPECT_THAT(
      error_of([&] { rows.read(after, reinterpret_cast<std::byte*>(values.data())); }, ErrorKind::kRun),
      AllOf(HasSubstr("rows [256, 320) of row table 'emb.0.weight' cannot be read from the file in '" +
                      folder_ + "'"),
            HasSubstr("somebody has shortened it")));
  ASSERT_EQ(::ftruncate(descriptor, 10 * 4096), 0);
  EXPECT_THAT(
      error_of([&] { rows.read(after, reinterpret_cast<std::byte*>(values.data())); }, ErrorKind::kRun),
      HasSubstr("rows [256, 320) of row table 'emb.0.weight' came back"));
}

/// A control group of memory of one's own; ok() is false where none may be made.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::int64_t limit) {
    struct Version {
      const char* root;
      const char* file;
      const char* swap;
    };
    for (const Version& version :
         {Version{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness"},
          Version{"/sys/fs/cgroup", "memory.max", "memory.swap.max"}}) {
      folder_ = fmt::format("{}/tenon-{}", version.root, ::getpid());
      std::error_code code;
      if (!std::filesystem::create_directory(folder_, code)) continue;
      put(version.swap, "0");
      ok_ = put(version.file, std::to_string(limit));
      if (ok_) return;
      std::filesystem::remove(folder_, code);
    }
  }
  ~MemoryGroup() {
    if (ok_) ::rmdir(folder_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  bool ok() const { return ok_; }
  bool enter() const { return put("cgroup.procs", std::to_string(::getpid())); }

 private:
  bool put(const std::string& file, const std::string& text) const {
    std::ofstream out(folder_ + "/" + file);
    out << text << std::flush;
    return out.good();
  }
  std::string folder_;
  bool ok_ = false;
};

constexpr std::int64_t kLimit = std::int64_t{512} << 20;

/// A step writes rows anywhere, and a row is read long after: 0 where all are right. Half a table is one
/// write after the other, so that memory would fill without misses.
int train_tables(Tier* tier) {
  constexpr std::int64_t kTables = 4, kWidth = 128;
  constexpr std::int64_t kRows = kLimit / (kWidth * sizeof(float));
  constexpr std::int64_t kBatch = 8192;
  std::vector<std::unique_ptr<RowMemory>> tables;
  for (std::int64_t t = 0; t < kTables; ++t) {
    const RowMemorySpec spec{.table = "emb", .last = kRows, .width = kWidth};
    tables.push_back(tier != nullptr ? tier->allocate(spec) : make_host_rows(spec, {}));
  }
  std::vector<std::int64_t> ids(kBatch);
  std::vector<float> values(kBatch * kWidth);
  for (std::int64_t first = 0; first < kRows; first += kBatch) {
    std::iota(ids.begin(), ids.end(), first);
    for (std::int64_t t = 0; t < kTables; ++t) {
      for (std::int64_t i = 0; i < kBatch; ++i)
        std::fill_n(values.begin() + i * kWidth, kWidth, static_cast<float>(ids[i] * kTables + t));
      tables[t]->write(ids, reinterpret_cast<const std::byte*>(values.data()));
    }
  }
  std::mt19937_64 random(5);
  for (int step = 0; step < 4; ++step) {
    for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % kRows);
    for (std::int64_t t = 0; t < kTables; ++t) {
      tables[t]->read(ids, reinterpret_cast<std::byte*>(values.data()));
      for (std::int64_t i = 0; i < kBatch; ++i) {
        if (values[i * kWidth + i % kWidth] != static_cast<float>(ids[i] * kTables + t)) return 1;
      }
    }
  }
  return 0;
}

/// Status of a child in the group, as waitpid gives it. `train` runs in the child.
template <typename Train>
int status_within(const MemoryGroup& group, Train train) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 2;
    try {
      if (group.enter()) code = train();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      code = 3;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_F(FileTier, TablesOfFourTimesAMemoryLimitFinish) {
  const MemoryGroup group(kLimit);
  if (!group.ok()) GTEST_SKIP() << "no control group of memory can be made here";
  struct statfs facts {};
  ASSERT_EQ(::statfs(folder_.c_str(), &facts), 0);
  if (facts.f_type == TMPFS_MAGIC) GTEST_SKIP() << "the folder for temporary files is itself in memory";
  const int in_files = status_within(group, [&] { return train_tables(&*tier("resident = '64MiB'")); });
  EXPECT_TRUE(WIFEXITED(in_files)) << "ended by signal " << WTERMSIG(in_files);
  EXPECT_EQ(WEXITSTATUS(in_files), 0);
  const int in_memory = status_within(group, [] { return train_tables(nullptr); });
  EXPECT_TRUE(WIFSIGNALED(in_memory)) << "the limit is real";
}

}  // namespace file_tier_suite
}  // namespace tenon::tier_file
