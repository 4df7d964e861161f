// Packed rows are built once, rebuilt when the source changes or the file is damaged, by one of many callers
// at a time.
#include "criteo_cache.hpp"
#include "testing/criteo_text.hpp"

#include "base/testing/allocation_count.hpp"

#include <tenon/error.hpp>
#include <tenon/testing/folders.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace tenon::ctr::criteo_cache_test {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class CriteoCacheTest : public testing::FolderTest {
 protected:
  std::string write_rows(const std::string& name, std::uint64_t seed, std::uint64_t count) const {
    std::string text;
    for (std::uint64_t i = 0; i < count; ++i) text += criteo_line(seed, i);
    return write(name, text);
  }
  static std::vector<CriteoRow> rows_of(const CriteoCache& cache) {
    std::vector<CriteoRow> rows(cache.rows());
    cache.read(0, rows);
    return rows;
  }
  static std::vector<CriteoRow> parsed(const std::string& path) {
    std::vector<CriteoRow> rows(100000);
    rows.resize(CriteoReader(path).read(rows));
    return rows;
  }
  static fs::file_time_type time_of(const CriteoCache& cache) { return fs::last_write_time(cache.path()); }
};

TEST_F(CriteoCacheTest, HoldsTheRowsAndWhatWasCounted) {
  const std::string source = write_rows("day_0", 1, 20000);
  std::ofstream(source, std::ios::app) << "broken\n";
  const CriteoCache cache(source, "", 10);
  EXPECT_EQ(cache.rows(), 20000);
  EXPECT_EQ(rows_of(cache), parsed(source));
  EXPECT_EQ(cache.faults().total(), 1);
  EXPECT_EQ(cache.faults().text(), "1 with another number of fields than 40 (line 20001)");
  EXPECT_EQ(cache.smallest(), -2) << "criteo_line's smallest";
  EXPECT_EQ(cache.sha256(), sha256_of_file(*make_posix_files(), source));
  EXPECT_EQ(fs::path(cache.path()).parent_path(), fs::path(fs::canonical(folder_)) / "tenon-cache");
  EXPECT_FALSE(fs::exists(cache.path() + ".tmp"));
  EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(cache.path())), 20000 * 160 + 4096);
  CriteoRow one;
  cache.read(12345, std::span(&one, 1));
  EXPECT_EQ(one, parsed(source)[12345]);
}

TEST_F(CriteoCacheTest, IsMadeOnceAndAgainWhenTheSourceChanges) {
  const std::string source = write_rows("day_0", 1, 100), folder = folder_ + "/a/b";
  const CriteoCache first(source, folder, 10);
  const auto made = time_of(first);
  const CriteoCache second(source, folder, 10);
  EXPECT_EQ(time_of(second), made);
  EXPECT_EQ(second.path(), first.path());
  EXPECT_EQ(rows_of(second), rows_of(first));
  // The same name and size, other bytes.
  std::string bytes;
  std::getline(std::ifstream(source), bytes, '\0');
  bytes[0] = bytes[0] == '0' ? '1' : '0';
  write("day_0", bytes);
  fs::last_write_time(source, fs::last_write_time(source) + std::chrono::seconds(1));
  const CriteoCache third(source, folder, 10);
  EXPECT_EQ(rows_of(third), parsed(source));
  EXPECT_NE(rows_of(third), rows_of(first)) << "which still has the file that it opened";
  // Another file of the same name keeps its own.
  fs::create_directory(folder_ + "/other");
  EXPECT_NE(CriteoCache(write_rows("other/day_0", 1, 3), folder, 10).path(), first.path());
}

TEST_F(CriteoCacheTest, DamagedFilesAreMadeAgain) {
  const std::string source = write_rows("day_0", 1, 100);
  const std::string path = CriteoCache(source, "", 10).path();
  const auto size = fs::file_size(path);
  const auto change = [&](std::uintmax_t place, char byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(place));
    file.put(byte);
  };
  const std::function<void()> damages[] = {[&] { fs::resize_file(path, size - 1); },
                                           [&] { fs::resize_file(path, size - 160); },
                                           [&] { fs::resize_file(path, 0); },
                                           [&] { fs::resize_file(path, size + 160); },
                                           [&] { change(size - 4096, 'x'); },
                                           [&] { change(size - 4096 + 20, 'x'); },
                                           [&] {
                                             write("tenon-cache/x", "");
                                             fs::remove(path);
                                           }};
  for (const auto& damage : damages) {
    damage();
    EXPECT_EQ(rows_of(CriteoCache(source, "", 10)), parsed(source));
    EXPECT_EQ(fs::file_size(path), size);
  }
}

TEST_F(CriteoCacheTest, ManyAtOnceMakeItOnce) {
  const std::string source = write_rows("day_0", 1, 5000);
  const std::vector<CriteoRow> expected = parsed(source);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { right += rows_of(CriteoCache(source, "", 60)) == expected; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

TEST_F(CriteoCacheTest, WaitingEnds) {
  const std::string source = write_rows("day_0", 1, 10);
  const std::string path = CriteoCache(source, "", 10).path();
  fs::remove(path);
  const int held = ::open((path + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  try {
    CriteoCache(source, "", 0.1);
    ADD_FAILURE() << "it did not wait";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    EXPECT_EQ(std::string(error.what()),
              "data.criteo: another process holds '" + path + ".lock' to write '" + path +
                  ".tmp', and has written nothing for 0.1 s; end it, or set data.cache to another folder");
  }
  ::close(held);
  EXPECT_EQ(CriteoCache(source, "", 0.1).rows(), 10);
}

TEST_F(CriteoCacheTest, AFolderThatTakesNothingIsAWholeMessage) {
  const std::string source = write_rows("day_0", 1, 10), file = write("file", "");
  EXPECT_EQ(error_of([&] { CriteoCache(source, file, 1); }),
            "data file '" + source + "': cannot keep its packed rows, 160 bytes each: cannot make folder " +
                file + ": File exists; set data.cache to a folder with room");
  EXPECT_EQ(error_of([&] { CriteoCache(folder_ + "/none", "", 1); }),
            "data file '" + folder_ + "/none': cannot open it: No such file or directory");
}

TEST_F(CriteoCacheTest, ReadingAllocatesNothing) {
  const CriteoCache cache(write_rows("day_0", 1, 100), "", 10);
  CriteoRow row;
  const std::int64_t before = testing::allocation_count();
  for (std::int64_t i = 0; i < 100; ++i) cache.read(i, std::span(&row, 1));
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::ctr::criteo_cache_test
