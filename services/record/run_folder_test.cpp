// Attempts under many processes at once, and what RUN on a command line may name.
#include "record/run_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

namespace tenon {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tenon_run_folder_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string error_of(const std::string& run) {
    try {
      open_newest_attempt(*files_, run);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "no error";
  }

  std::string root_;
  std::unique_ptr<FileSystem> files_ = make_posix_files();
};

TEST_F(RunFolderTest, CountsUpAndLinksTheNewest) {
  const std::string base = root_ + "/runs/tiny/";
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const RunFolder folder = create_run_folder(*files_, base);
    EXPECT_EQ(folder.attempt, attempt);
    EXPECT_EQ(folder.path, root_ + "/runs/tiny/" + std::to_string(attempt));
    EXPECT_EQ(fs::read_symlink(base + "latest"), std::to_string(attempt));
  }
  fs::remove_all(base + "2");  // a gap is not filled
  EXPECT_EQ(create_run_folder(*files_, base).attempt, 4);
}

TEST_F(RunFolderTest, NeverTouchesWhatIsThere) {
  const RunFolder first = create_run_folder(*files_, root_);
  std::ofstream(first.path + "/metrics.jsonl") << "precious";
  std::ofstream(root_ + "/2") << "a file in the way";
  fs::create_directory(root_ + "/07");  // not a number of ours
  const RunFolder next = create_run_folder(*files_, root_);
  EXPECT_EQ(next.attempt, 3);
  EXPECT_EQ(fs::file_size(first.path + "/metrics.jsonl"), 8u);
  EXPECT_TRUE(fs::is_regular_file(root_ + "/2"));
}

TEST_F(RunFolderTest, EightProcessesGetDifferentAttempts) {
  constexpr int kProcesses = 8, kEach = 12;
  const std::string base = root_ + "/busy";
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int status = 0;
      try {
        for (int k = 0; k < kEach; ++k) {
          const RunFolder folder = create_run_folder(*files_, base);
          // Exclusive: only one process may make its mark in an attempt.
          if (!fs::create_directory(folder.path + "/mine")) status = 2;
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
        status = 1;
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(base)) names.insert(entry.path().filename());
  EXPECT_EQ(names.size(), kProcesses * kEach + 1u);  // and `latest`: nothing half-made is left
  for (int attempt = 1; attempt <= kProcesses * kEach; ++attempt) {
    EXPECT_TRUE(names.count(std::to_string(attempt))) << attempt;
    EXPECT_TRUE(fs::exists(base + "/" + std::to_string(attempt) + "/mine"));
  }
  EXPECT_EQ(fs::read_symlink(base + "/latest"), std::to_string(kProcesses * kEach));
}

TEST_F(RunFolderTest, LeavesNothingBehindWhenItFails) {
  const std::string base = root_ + "/blocked";
  std::ofstream file(base);
  EXPECT_THROW(create_run_folder(*files_, base), FileError);
  EXPECT_TRUE(fs::is_regular_file(base));
}

// Attempts are moved to other disks and linked back.
TEST_F(RunFolderTest, AnAttemptMayBeALink) {
  const std::string base = root_ + "/runs/tiny";
  for (int i = 0; i < 2; ++i) create_run_folder(*files_, base);
  fs::rename(base + "/2", root_ + "/elsewhere");
  fs::create_directory_symlink(root_ + "/elsewhere", base + "/2");
  fs::create_directory_symlink(root_ + "/nowhere", base + "/7");  // its disk is not mounted
  fs::create_symlink(root_ + "/elsewhere/metrics.jsonl", base + "/8");
  EXPECT_EQ(newest_attempt(*files_, base), 2);
  EXPECT_EQ(open_newest_attempt(*files_, base).path, base + "/2");
  fs::create_directory_symlink(base, root_ + "/runs/linked");
  EXPECT_EQ(open_newest_attempt(*files_, root_ + "/runs/linked").attempt, 2);
  EXPECT_THAT(error_of(root_ + "/runs/alfa"), HasSubstr("linked, tiny."));
  EXPECT_EQ(create_run_folder(*files_, base).attempt, 3);
  EXPECT_TRUE(fs::is_symlink(base + "/2"));
}

TEST_F(RunFolderTest, WhatIsCalledLatestAndIsNoLinkStays) {
  for (const bool folder : {true, false}) {
    const std::string base = root_ + (folder ? "/a" : "/b"), latest = base + "/latest";
    fs::create_directories(folder ? latest : base);
    std::ofstream(folder ? latest + "/mine" : latest) << "precious";
    try {
      create_run_folder(*files_, base);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(latest + (folder ? " is a folder" : " is a file") +
                                          " of yours, and a new attempt makes"));
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(base), fs::directory_iterator()), 1)
        << "nothing else was made";
  }
}

TEST_F(RunFolderTest, RunIsAnAttemptOrItsParent) {
  const std::string base = root_ + "/runs/tiny";
  for (int i = 0; i < 11; ++i) create_run_folder(*files_, base);
  struct Case {
    std::string run;
    int attempt;
    std::string path;
  } const cases[] = {
      {base, 11, base + "/11"},  // by number, not by text
      {base + "/", 11, base + "/11"},  {base + "/9", 9, base + "/9"},
      {base + "/9//", 9, base + "/9"}, {base + "/latest", 0, base + "/latest"},
  };
  for (const Case& c : cases) {
    const RunFolder folder = open_newest_attempt(*files_, c.run);
    EXPECT_EQ(folder.attempt, c.attempt) << c.run;
    EXPECT_EQ(folder.path, c.path);
    EXPECT_EQ(folder.base, base);
  }
}

TEST_F(RunFolderTest, ErrorsSayWhatIsThere) {
  create_run_folder(*files_, root_ + "/runs/alpha");
  fs::create_directories(root_ + "/runs/empty");
  std::ofstream(root_ + "/runs/file") << "x";
  EXPECT_THAT(error_of(root_ + "/runs/alfa"),
              HasSubstr("does not exist. Folders in '" + root_ + "/runs': alpha, empty."));
  EXPECT_THAT(error_of(root_ + "/nowhere/x"), HasSubstr("There is no folder '" + root_ + "/nowhere' either"));
  EXPECT_THAT(error_of(root_ + "/runs/empty"), HasSubstr("expected attempts (folders 1, 2, ...)"));
  EXPECT_THAT(error_of(root_ + "/runs/file"), HasSubstr("it is a file"));
}

TEST_F(RunFolderTest, ALockedAttemptIsRefusedToOtherProcesses) {
  const RunFolder folder = create_run_folder(*files_, root_);
  const auto attempt_in_child = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        const AttemptLock lock(folder.path);
        ::_exit(0);
      } catch (const Error& error) {
        const std::string expected = "process " + std::to_string(::getppid()) + " is writing to '" +
                                     folder.path + "'; wait for it, or start a new attempt without --resume";
        ::_exit(error.what() == expected ? 7 : 8);
      }
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  {
    const AttemptLock lock(folder.path);
    EXPECT_EQ(attempt_in_child(), 7);
    EXPECT_EQ(attempt_in_child(), 7) << "a refusal must not remove the file";
  }
  EXPECT_FALSE(fs::exists(folder.path + "/.lock"));
  EXPECT_EQ(attempt_in_child(), 0);
  // The child left without its destructor, like a process that was killed: its file is there, its lock is
  // not.
  EXPECT_TRUE(fs::exists(folder.path + "/.lock"));
  const AttemptLock lock(folder.path);
  EXPECT_EQ(attempt_in_child(), 7);
}

TEST_F(RunFolderTest, AFolderThatCannotBeLockedIsAnError) {
  try {
    const AttemptLock lock(root_ + "/absent");
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), "cannot create " + root_ + "/absent/.lock: No such file or directory");
  }
}

// Locks that come and go at once: two processes must never both believe that they hold it.
TEST_F(RunFolderTest, ALockHasOneHolderAtATime) {
  const RunFolder folder = create_run_folder(*files_, root_);
  constexpr int kProcesses = 4;
  const std::string mark = folder.path + "/held";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int taken = 0, status = 0;
      while (taken < 200 && status == 0 && std::chrono::steady_clock::now() < deadline) {
        try {
          const AttemptLock lock(folder.path);
          ++taken;
          if (::mkdir(mark.c_str(), 0755) != 0) status = 2;  // another process is inside
          ::rmdir(mark.c_str());
        } catch (const Error&) {
        }
      }
      ::_exit(status != 0 ? status : taken < 200 ? 3 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

}  // namespace
}  // namespace tenon
