// The file layer: both implementations behave alike, the failing one fails where told, the in-memory one
// forgets what was not synced; digests match published vectors.
#include <tenon/files.hpp>

#include "base/digests.hpp"
#include "base/testing/allocation_count.hpp"
#include "store/crc32c.hpp"
#include "store/testing/faulty_files.hpp"
#include "store/testing/memory_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <random>

namespace tenon::files_test {
namespace {

using testing::FaultPlan;
using testing::FaultyFiles;
using ::testing::HasSubstr;
using testing::MemoryFiles;
using Survival = MemoryFiles::Survival;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void write(FileSystem& files, const std::string& path, std::string_view text, bool sync) {
  const auto file = files.create(path);
  file->append(bytes_of(text));
  if (sync) file->sync();
  file->close();
}

int code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const FileError& error) {
    return error.code();
  }
  return 0;
}

std::vector<std::string> names(FileSystem& files, const std::string& path) {
  std::vector<std::string> result;
  for (const DirectoryEntry& entry : files.list(path)) result.push_back(entry.name);
  return result;
}

class AnyFiles : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam()) == "posix") {
      files_ = make_posix_files();
      std::string pattern = ::testing::TempDir() + "tenon_files_XXXXXX";
      ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
      root_ = pattern;
    } else {
      files_ = std::make_unique<MemoryFiles>();
      root_ = "/root";
      files_->make_directories(root_);
    }
  }
  void TearDown() override { remove_tree(*files_, root_); }

  std::unique_ptr<FileSystem> files_;
  std::string root_;
};

TEST_P(AnyFiles, WritesReadsAndReplaces) {
  const std::string path = root_ + "/a";
  write(*files_, path, "hello world", true);
  EXPECT_EQ(read_text(*files_, path, 100), "hello world");
  EXPECT_EQ(code_of([&] { read_text(*files_, path, 10); }), EFBIG);
  write(*files_, path, "short", false);
  EXPECT_EQ(read_text(*files_, path, 100), "short");
  files_->append_to(path)->append(bytes_of("er"));
  EXPECT_EQ(read_text(*files_, path, 100), "shorter");
  files_->truncate(path, 5);
  std::string part(3, '\0');
  const auto file = files_->open(path);
  EXPECT_EQ(file->size(), 5);
  file->read(1, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "hor");
  EXPECT_NE(code_of([&] { file->read(3, std::as_writable_bytes(std::span(part))); }), 0);
  files_->write_text_atomically(path, "new");
  EXPECT_EQ(read_text(*files_, path, 100), "new");
  EXPECT_EQ(names(*files_, root_), (std::vector<std::string>{"a"}));
}

TEST_P(AnyFiles, FoldersLinksAndRemoval) {
  files_->make_directories(root_ + "/x/y/z");
  files_->make_directories(root_ + "/x/y/z");
  write(*files_, root_ + "/x/y/z/f", "1", true);
  EXPECT_TRUE(files_->exists(root_ + "/x/y"));
  EXPECT_FALSE(files_->exists(root_ + "/x/q"));
  files_->symlink("x/y", root_ + "/latest");
  files_->symlink("x", root_ + "/latest");
  const auto entries = files_->list(root_);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_TRUE(entries[0].is_symlink);
  EXPECT_FALSE(entries[0].is_directory);
  EXPECT_TRUE(entries[1].is_directory);
  EXPECT_NE(code_of([&] { files_->remove(root_ + "/x"); }), 0) << "a full folder must not go";
  files_->rename(root_ + "/x", root_ + "/w");
  EXPECT_EQ(read_text(*files_, root_ + "/w/y/z/f", 9), "1");
  remove_tree(*files_, root_ + "/latest");
  remove_tree(*files_, root_ + "/w");
  remove_tree(*files_, root_ + "/absent");
  EXPECT_TRUE(names(*files_, root_).empty());
  EXPECT_GT(files_->free_bytes(root_), 0);
  files_->sync_directory(root_);
}

TEST_P(AnyFiles, ErrorsNameOperationPathAndReason) {
  EXPECT_EQ(code_of([&] { files_->open(root_ + "/none"); }), ENOENT);
  EXPECT_EQ(code_of([&] { files_->create(root_ + "/no/file"); }), ENOENT);
  EXPECT_EQ(code_of([&] { files_->open(root_); }), EISDIR);
  EXPECT_EQ(code_of([&] { files_->list(root_ + "/none"); }), ENOENT);
  EXPECT_EQ(code_of([&] { files_->remove(root_ + "/none"); }), ENOENT);
  try {
    files_->open(root_ + "/none");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    EXPECT_EQ(std::string(error.what()), "cannot open " + root_ + "/none: No such file or directory");
  }
}

INSTANTIATE_TEST_SUITE_P(Files, AnyFiles, ::testing::Values("posix", "memory"));

TEST(Files, ParentPath) {
  const std::pair<const char*, const char*> cases[] = {{"a/b/c", "a/b"}, {"a", "."},        {"/a", "/"},
                                                       {"a/b/", "a"},    {"//a//b", "//a"}, {"/", "/"}};
  for (const auto& [path, parent] : cases) EXPECT_EQ(parent_path(path), parent) << path;
}

TEST(MemoryFiles, ForgetsWhatWasNotSynced) {
  MemoryFiles files;
  files.make_directories("/d");
  files.sync_directory("/");
  write(files, "/d/durable", "kept", true);
  files.sync_directory("/d");
  write(files, "/d/nameless", "synced, but the folder was not", true);
  files.append_to("/d/durable")->append(bytes_of(" and lost"));
  files.crash(Survival::kSyncedOnly, 0);
  EXPECT_EQ(names(files, "/d"), (std::vector<std::string>{"durable"}));
  EXPECT_EQ(files.content("/d/durable"), "kept");
  files.rename("/d/durable", "/d/renamed");
  files.crash(Survival::kSyncedOnly, 0);
  EXPECT_EQ(names(files, "/d"), (std::vector<std::string>{"durable"}));
  files.rename("/d/durable", "/d/renamed");
  files.crash(Survival::kEverything, 0);
  EXPECT_EQ(names(files, "/d"), (std::vector<std::string>{"renamed"}));
}

TEST(MemoryFiles, RandomSurvivalCoversBothOutcomes) {
  bool lost = false;
  bool kept = false;
  bool torn = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    MemoryFiles files;
    write(files, "/f", "0123456789", false);
    files.crash(Survival::kRandom, seed);
    if (!files.exists("/f")) {
      lost = true;
    } else {
      kept = true;
      torn = torn || (files.content("/f").size() < 10 && !files.content("/f").empty());
    }
  }
  EXPECT_TRUE(lost && kept && torn);
}

TEST(FaultyFiles, FailsWhereTold) {
  MemoryFiles memory;
  FaultyFiles files(memory);
  files.arm({});
  write(files, "/f", "0123456789", true);
  EXPECT_EQ(files.trace(), (std::vector<std::string>{"create /f", "append /f", "sync /f", "close /f"}));
  EXPECT_EQ(files.bytes_written(), 10);

  files.arm({.fail_at = 2});
  EXPECT_EQ(code_of([&] { write(files, "/f", "0123456789", true); }), EIO);
  write(files, "/f", "again", true);

  files.arm({.fail_at = 1, .torn = true, .dead_after = true});
  EXPECT_EQ(code_of([&] { write(files, "/f", "0123456789", true); }), EIO);
  EXPECT_EQ(memory.content("/f"), "01234");
  EXPECT_EQ(code_of([&] { files.remove("/f"); }), EIO);

  files.arm({.byte_budget = 7});
  EXPECT_EQ(code_of([&] { write(files, "/f", "0123456789", true); }), ENOSPC);
  EXPECT_EQ(memory.content("/f"), "0123456");
}

TEST(Files, AtomicTextAllocatesNothingOnceItsPathIsKnown) {
  const std::string path = ::testing::TempDir() + "tenon_atomic_text_whose_name_is_not_short";
  const auto files = make_posix_files();
  const std::string text(100'000, 'x');
  files->write_text_atomically(path, "old");
  const std::int64_t before = testing::allocation_count();
  files->write_text_atomically(path, text);
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(read_text(*files, path, 1 << 20), text);
  EXPECT_FALSE(files->exists(path + ".tmp"));
  files->remove(path);
}

TEST(Files, AtomicTextSurvivesACrashAtEveryOperation) {
  for (std::int64_t k = 0; k < 6; ++k) {
    for (const Survival survival : {Survival::kSyncedOnly, Survival::kEverything, Survival::kRandom}) {
      MemoryFiles memory;
      memory.write_text_atomically("/f", "old");
      FaultyFiles files(memory);
      files.arm({.fail_at = k, .torn = true, .dead_after = true});
      EXPECT_EQ(code_of([&] { files.write_text_atomically("/f", "new text"); }), EIO) << k;
      memory.crash(survival, static_cast<std::uint64_t>(k));
      const std::string text = memory.content("/f");
      EXPECT_TRUE(text == "old" || text == "new text") << "operation " << k << " left '" << text << "'";
    }
  }
}

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c_masked(0xE3069283u), 0xC78AB0E5u);
  EXPECT_EQ(crc32c({}), 0u);
  // The length prefix of a TensorBoard record of 24 bytes.
  const unsigned char length[8] = {0x18, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(crc32c_masked(crc32c(std::as_bytes(std::span(length)))), 0x224b7fa3u);
  const std::string zeros(32, '\0');
  EXPECT_EQ(crc32c(bytes_of(zeros)), 0x8A9136AAu);  // RFC 3720 B.4
}

TEST(Crc32c, TableInstructionAndPiecesAgree) {
  std::mt19937 random(1);
  std::string data(10000, '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  for (std::size_t size = 0; size < data.size(); size += 1 + random() % 13) {
    const auto bytes = bytes_of(data).first(size);
    const std::uint32_t expected = crc::extend_by_table(0, bytes);
    if (crc::instruction_available()) {
      EXPECT_EQ(crc::extend_by_instruction(0, bytes), expected) << size;
    }
    const std::size_t cut = size == 0 ? 0 : random() % size;
    EXPECT_EQ(crc32c_extend(crc32c(bytes.first(cut)), bytes.subspan(cut)), expected) << size;
  }
}

TEST(Digests, Sha256AndXxh3) {
  EXPECT_EQ(sha256_of(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  MemoryFiles files;
  const std::string large(3'000'001, 'x');
  write(files, "/large", large, true);
  EXPECT_EQ(sha256_of_file(files, "/large"), sha256_of(bytes_of(large)));
  EXPECT_EQ(xxh3_128_of({}), "99aa06d3014798d86001c324468d497f");  // XXH3_128bits of the empty input
  Xxh3Stream stream;
  stream.update(bytes_of(large).first(17));
  stream.update(bytes_of(large).subspan(17));
  EXPECT_EQ(stream.hex(), xxh3_128_of(bytes_of(large)));
  stream.reset();
  EXPECT_EQ(stream.hex(), xxh3_128_of({}));
}

}  // namespace
}  // namespace tenon::files_test
