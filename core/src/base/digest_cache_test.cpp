// Digests that are kept: when they are used, when they are not, and what other processes and damage do.
#include "base/digest_cache.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace tenon::base {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kOne(64, '1'), kTwo(64, '2');

std::int64_t later() {
  return DigestCache::system_now() + 10'000'000'000;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

class KeptDigests : public ::testing::Test {
 protected:
  KeptDigests() {
    folder_ = fs::temp_directory_path() / ("tenon-digests-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write(file_, 'a');
  }
  ~KeptDigests() override { fs::remove_all(folder_); }

  void write(const fs::path& path, char letter, std::int64_t size = 100'000) const {
    std::ofstream(folder_ / path, std::ios::binary) << std::string(static_cast<std::size_t>(size), letter);
  }
  /// The digest, and how often it was computed.
  std::string digest(DigestCache& cache, const std::string& computed, int times) const {
    const int descriptor = ::open((folder_ / file_).c_str(), O_RDONLY | O_CLOEXEC);
    int count = 0;
    const auto compute = [&] {
      ++count;
      return computed;
    };
    const std::string found = cache.sha256("the file", descriptor, compute);
    ::close(descriptor);
    EXPECT_EQ(count, times);
    return found;
  }
  /// Makes the file, computed to be `kOne`, known.
  void fill() const {
    DigestCache cache(path(), later);
    digest(cache, kOne, 1);
  }
  std::string path() const { return (folder_ / "cache/tenon/digests").string(); }
  void set_times(const timespec& time) const {
    const timespec both[] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder_ / file_).c_str(), both, 0), 0);
  }
  struct stat status() const {
    struct stat found {};
    EXPECT_EQ(::stat((folder_ / file_).c_str(), &found), 0);
    return found;
  }

  fs::path folder_, file_ = "file";
};

TEST_F(KeptDigests, AreNotComputedAgain) {
  DigestCache first(path(), later);
  EXPECT_EQ(digest(first, kOne, 1), kOne);
  EXPECT_EQ(digest(first, kTwo, 0), kOne);
  DigestCache second(path(), later);
  EXPECT_EQ(digest(second, kTwo, 0), kOne) << "of another process";
}

TEST_F(KeptDigests, EndWithTheStateOfTheFile) {
  fill();
  const timespec before = status().st_mtim;
  ::usleep(50'000);  // until the clock of the file system has gone on
  write(file_, 'b');
  set_times(before);  // a program can set this time, and not that of the inode
  ASSERT_EQ(status().st_mtim.tv_nsec, before.tv_nsec);
  DigestCache changed(path(), later);
  EXPECT_EQ(digest(changed, kTwo, 1), kTwo) << "the same size, the same time of its content";
  EXPECT_EQ(digest(changed, kOne, 0), kTwo);

  write("other", 'c');
  const auto inode = status().st_ino;
  fs::rename(folder_ / "other", folder_ / file_);
  set_times(before);
  ASSERT_NE(status().st_ino, inode);
  DigestCache replaced(path(), later);
  EXPECT_EQ(digest(replaced, kOne, 1), kOne) << "another file in its place";
}

TEST_F(KeptDigests, AreOfStatesAndNotOfNames) {
  fill();
  std::optional<std::vector<KeptDigest>> digests = parse_digests(text_of(path()));
  ASSERT_TRUE(digests.has_value());
  ASSERT_EQ(digests->size(), 1u);
  const KeptDigest kept = digests->front();
  for (int what = 0; what < 5; ++what) {
    KeptDigest other = kept;
    if (what == 0) ++other.file.device;
    if (what == 1) ++other.file.inode;
    if (what == 2) ++other.file.size;
    if (what == 3) ++other.file.modified_ns;
    if (what == 4) ++other.file.changed_ns;
    std::ofstream(path()) << digest_text({other});
    DigestCache cache(path(), later);
    EXPECT_EQ(digest(cache, kTwo, 1), kTwo) << what;
  }
}

TEST_F(KeptDigests, AreNotTakenOfAFileThatChangedJustNow) {
  const auto soon = [&] { return (status().st_ctim.tv_sec + 1) * std::int64_t{1'000'000'000}; };
  DigestCache cache(path(), soon);
  digest(cache, kOne, 1);
  EXPECT_FALSE(fs::exists(path()));
  fill();
  EXPECT_EQ(digest(cache, kTwo, 1), kTwo) << "nor believed then";
}

TEST_F(KeptDigests, AreNotTakenOfAFileThatChangesMeanwhile) {
  DigestCache cache(path(), later);
  const int descriptor = ::open((folder_ / file_).c_str(), O_RDWR | O_CLOEXEC);
  cache.sha256("the file", descriptor, [&] {
    EXPECT_EQ(::pwrite(descriptor, "b", 1, 100'000), 1);
    return kOne;
  });
  ::close(descriptor);
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(KeptDigests, AreNotKeptOfSmallFilesNorWithoutAPlace) {
  write(file_, 'a', DigestCache::kSmallest - 1);
  fill();
  EXPECT_FALSE(fs::exists(path()));
  write(file_, 'a');
  DigestCache nowhere("", later);
  digest(nowhere, kOne, 1);
  EXPECT_EQ(digest(nowhere, kTwo, 1), kTwo);
}

TEST_F(KeptDigests, IgnoreAndReplaceDamage) {
  fill();
  const std::string whole = text_of(path());
  for (std::size_t i = 0; i <= whole.size(); ++i) {
    std::string damaged = whole;
    if (i == whole.size())
      damaged.pop_back();
    else
      damaged[i] = static_cast<char>(damaged[i] ^ 1);
    std::ofstream(path(), std::ios::binary) << damaged;
    DigestCache cache(path(), later);
    ASSERT_EQ(digest(cache, kOne, 1), kOne) << "byte " << i;
    ASSERT_EQ(text_of(path()), whole) << "byte " << i;
  }
}

TEST_F(KeptDigests, IgnoreAndReplaceFilesOfOthers) {
  fill();
  const std::string whole = text_of(path());
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);  // anybody may have written it
  DigestCache open_to_all(path(), later);
  EXPECT_EQ(digest(open_to_all, kTwo, 1), kTwo);
  struct stat written {};
  ASSERT_EQ(::stat(path().c_str(), &written), 0);
  EXPECT_EQ(written.st_mode & 0777, 0600u);

  fs::remove(path());
  std::ofstream(folder_ / "elsewhere") << whole;
  fs::create_symlink(folder_ / "elsewhere", path());
  DigestCache linked(path(), later);
  EXPECT_EQ(digest(linked, kTwo, 1), kTwo);
  EXPECT_FALSE(fs::is_symlink(path()));
  EXPECT_EQ(text_of(folder_ / "elsewhere"), whole);
}

TEST_F(KeptDigests, AreComputedWhereTheFolderCannotBeWritten) {
  DigestCache below_a_file((folder_ / file_ / "digests").string(), later);
  DigestCache a_folder(folder_.string(), later);
  DigestCache in_proc("/proc/tenon/digests", later);
  for (DigestCache* cache : {&below_a_file, &a_folder, &in_proc}) EXPECT_EQ(digest(*cache, kOne, 1), kOne);
  for (const auto& entry : fs::directory_iterator(folder_.parent_path()))
    EXPECT_FALSE(entry.path().string().starts_with(folder_.string() + ".")) << "left over: " << entry.path();
}

TEST_F(KeptDigests, OfTwoProcessesAtOnceAreWhole) {
  constexpr int kProcesses = 4, kRounds = 60;
  for (int p = 0; p < kProcesses; ++p) write("file" + std::to_string(p), 'a');
  fill();
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(::fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() != 0) continue;
    bool good = true;
    for (int round = 0; round < kRounds; ++round) {
      DigestCache cache(path(), later);
      const std::string mine(64, static_cast<char>('a' + p));
      const int file = ::open((folder_ / ("file" + std::to_string(p))).c_str(), O_RDWR);
      good = good && ::fchmod(file, round % 2 == 0 ? 0600 : 0644) == 0;  // another state each round
      good = good && cache.sha256("mine", file, [&] { return mine; }) == mine;
      good = good && cache.sha256("mine", file, [&] { return kTwo; }) == mine;
      good = good && parse_digests(text_of(path())).has_value();
      ::close(file);
    }
    ::_exit(good ? 0 : 1);
  }
  for (const pid_t child : children) {
    int how = -1;
    ASSERT_EQ(::waitpid(child, &how, 0), child);
    EXPECT_EQ(how, 0);
  }
  const auto folder = fs::path(path()).parent_path();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1) << "files left over";
}

TEST_F(KeptDigests, ThatLieAreFoundByVerify) {
  fill();
  DigestCache cache(path(), later);
  cache.verify();
  EXPECT_EQ(digest(cache, kOne, 1), kOne) << "a true one";
  try {
    digest(cache, kTwo, 1);
    FAIL() << "a digest that is another's was not found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the file: its SHA-256 is " + kTwo), HasSubstr(path()),
                                    HasSubstr("says " + kOne), HasSubstr("remove the cache")));
  }
}

TEST_F(KeptDigests, AreAtMostSoMany) {
  std::vector<KeptDigest> many;
  for (std::size_t i = 0; i < DigestCache::kMost; ++i) {
    FileState file{~std::uint64_t{0}, i, std::int64_t{1} << 62, -(std::int64_t{1} << 62),
                   std::int64_t{1} << 62};
    many.push_back({file, kOne});
  }
  const std::string text = digest_text(many);
  EXPECT_EQ(parse_digests(text), many) << "with numbers of the greatest lengths";
  fs::create_directories(fs::path(path()).parent_path());
  std::ofstream(path()) << text;
  fs::permissions(path(), fs::perms::owner_read | fs::perms::owner_write);
  fill();
  const auto kept = parse_digests(text_of(path()));
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->size(), DigestCache::kMost - DigestCache::kMost / 4 + 1);
  EXPECT_EQ(kept->front().file.inode, DigestCache::kMost / 4) << "the oldest went";
  many.push_back(many.back());
  EXPECT_EQ(parse_digests(digest_text(many)), std::nullopt);
}

}  // namespace
}  // namespace tenon::base
