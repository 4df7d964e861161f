// The tier `shared`: rows go back to checkpoints to the bit, whatever the process did since and wherever it
// was killed; segments of something else are refused, word by word.
#include "segment.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <thread>

namespace tenon::tier_shared {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SharedTier : public ::testing::Test {
 protected:
  SharedTier() {
    registry_.discover({});
    use("");
    run_ = "/nowhere/" + std::to_string(getpid()) + "/" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  ~SharedTier() override {
    for (const int width : {1, 3, 4, 5, 8, 1024}) fs::remove(Segment::path_of(spec(width)));
  }
  void use(std::string_view options) { tier_ = testing::make<Tier>(registry_, host_, "shared", options); }
  RowMemorySpec spec(std::int64_t width, bool resumes = false) const {
    return {
        .table = "emb.0.weight", .first = 100, .last = 400, .width = width, .run = run_, .resumes = resumes};
  }
  std::unique_ptr<RowMemory> rows(const RowMemorySpec& spec) { return tier_->allocate(spec); }
  std::string refusal(const RowMemorySpec& spec) {
    try {
      tier_->allocate(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Registry registry_;
  testing::QuietHost host_;
  testing::Made<Tier> tier_;
  std::string run_;
};

KeptRows& kept(RowMemory& memory) {
  return *static_cast<KeptRows*>(memory.query(KeptRows::kId));
}

std::vector<std::int64_t> all_ids(const RowMemorySpec& spec) {
  std::vector<std::int64_t> ids(spec.rows());
  std::iota(ids.begin(), ids.end(), spec.first);
  return ids;
}

std::vector<float> contents(const RowMemory& memory, const RowMemorySpec& spec) {
  std::vector<float> values(spec.rows() * spec.width);
  memory.read(all_ids(spec), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

/// Random writes, marks, ends of saves and restarts against a plain copy. `must`: a way back exists wherever
/// the contract has one.
struct Fuzz {
  RowMemorySpec spec;
  std::mt19937_64 random;
  bool must = true;
  std::vector<float> now = std::vector<float>(spec.rows() * spec.width, 0.f);
  std::map<std::int64_t, std::vector<float>> marks = {};  ///< by slot
  std::int64_t slot = 0;
  int gone_back = 0, refused = 0;

  void write(RowMemory& memory) {
    std::vector<std::int64_t> ids;
    for (std::int64_t id = spec.first; id < spec.last; ++id)
      if (random() % 8 == 0) ids.push_back(id);
    std::vector<float> values(ids.size() * spec.width);
    for (float& value : values) value = static_cast<float>(random() % 100000);
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    random() % 4 == 0 ? memory.fill(ids, bytes) : memory.write(ids, bytes);
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::copy_n(values.begin() + i * spec.width, spec.width,
                  now.begin() + (ids[i] - spec.first) * spec.width);
  }
  void mark(RowMemory& memory) {
    kept(memory).mark(++slot, 7);
    marks[slot] = now;
    if (marks.size() > kMarks) marks.erase(marks.begin());
  }
  void commit(RowMemory& memory) {
    if (marks.empty()) return;
    const auto chosen = std::next(marks.begin(), random() % marks.size());
    kept(memory).committed(chosen->first);
    marks.erase(marks.begin(), chosen);
  }
  void restart(RowMemory& memory) {
    ASSERT_TRUE(kept(memory).kept());
    ASSERT_EQ(contents(memory, spec), now);
    if (marks.empty()) return;
    const auto chosen = std::next(marks.begin(), random() % marks.size());
    std::vector<std::int64_t> lost = {1, 2};
    const bool back = kept(memory).go_back(chosen->first, 7, lost);
    EXPECT_THAT(lost, ::testing::IsEmpty());
    EXPECT_FALSE(kept(memory).kept());
    ++(back ? gone_back : refused);
    if (must) {
      ASSERT_TRUE(back) << "slot " << chosen->first;
    }
    if (back) {
      now = chosen->second;
      slot = chosen->first;
      marks = {{slot, now}};
      ASSERT_EQ(contents(memory, spec), now) << "slot " << slot;
    } else {
      marks.clear();
    }
  }
};

TEST_F(SharedTier, T1_RowsGoBackToAnyMarkToTheBit) {
  for (const bool roomy : {true, false}) {
    use(roomy ? "undo = \"1MiB\"" : "undo = \"6KiB\"");
    int gone_back = 0, refused = 0;
    for (const std::int64_t width : {1, 3, 4, 5}) {
      Fuzz fuzz{.spec = spec(width), .random = std::mt19937_64(width), .must = roomy};
      std::unique_ptr<RowMemory> memory = rows(fuzz.spec);
      ASSERT_EQ(contents(*memory, fuzz.spec), fuzz.now) << "not zero";
      fuzz.spec.resumes = true;
      for (int step = 0; step < 600; ++step) {
        const auto action = fuzz.random() % 20;
        if (action < 12) {
          fuzz.write(*memory);
        } else if (action < 16) {
          fuzz.mark(*memory);
        } else if (action < 18) {
          fuzz.commit(*memory);
        } else {
          memory.reset();
          memory = rows(fuzz.spec);
          ASSERT_NO_FATAL_FAILURE(fuzz.restart(*memory)) << width << ", step " << step;
        }
        ASSERT_EQ(contents(*memory, fuzz.spec), fuzz.now);
      }
      gone_back += fuzz.gone_back;
      refused += fuzz.refused;
    }
    EXPECT_GT(gone_back, 20);
    EXPECT_EQ(refused > 0, !roomy);
  }
}

// Rows of several threads share sequence numbers and the log.
TEST_F(SharedTier, T1_ThreadsThatWriteNeighboursLoseNothing) {
  use("undo = \"1MiB\"");
  const RowMemorySpec mine = spec(5);
  const auto memory = rows(mine);
  std::vector<float> before(mine.rows() * mine.width);
  std::iota(before.begin(), before.end(), 1.f);
  memory->fill(all_ids(mine), reinterpret_cast<const std::byte*>(before.data()));
  for (std::int64_t slot = 1; slot < 20; ++slot) {
    kept(*memory).mark(slot, 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<float> row(mine.width);
        for (int round = 0; round < 20; ++round) {
          for (std::int64_t id = mine.first + t; id < mine.last - 200; id += 4) {
            std::fill(row.begin(), row.end(), static_cast<float>(-id * round));
            memory->write({&id, 1}, reinterpret_cast<const std::byte*>(row.data()));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::int64_t> lost;
    EXPECT_NE(contents(*memory, mine), before);
    ASSERT_TRUE(kept(*memory).go_back(slot, 1, lost)) << slot;
    ASSERT_EQ(contents(*memory, mine), before) << slot;
  }
}

TEST_F(SharedTier, ACheckpointOfAnotherSlotOrAttemptIsNoWayBack) {
  std::vector<std::int64_t> lost;
  for (const auto& [slot, attempt, back] : std::vector<std::tuple<std::int64_t, std::uint64_t, bool>>{
           {3, 7, true}, {2, 7, false}, {3, 8, false}}) {
    auto memory = rows(spec(4));
    kept(*memory).mark(2, 7);
    kept(*memory).mark(3, 7);
    kept(*memory).committed(3);
    memory.reset();
    memory = rows(spec(4, true));
    EXPECT_EQ(kept(*memory).go_back(slot, attempt, lost), back) << slot << " of " << attempt;
    EXPECT_EQ(kept(*memory).go_back(slot, attempt, lost), back) << "a second time";
  }
}

/// Writes rows of one value each, for ever.
[[noreturn]] void write_until_killed(RowMemory& memory, const RowMemorySpec& spec, unsigned seed, int ready) {
  std::mt19937 random(seed);
  std::vector<float> row(spec.width);
  for (std::int64_t count = 0;; ++count) {
    const std::int64_t id =
        spec.first + static_cast<std::int64_t>(random() % static_cast<unsigned>(spec.rows()));
    std::fill(row.begin(), row.end(), static_cast<float>(count + 1));
    memory.write({&id, 1}, reinterpret_cast<const std::byte*>(row.data()));
    if (count == 0 && ::write(ready, "x", 1) != 1) _exit(1);
  }
}

TEST_F(SharedTier, T7_TornRowsAreFoundInAThousandKills) {
  use("undo = \"1MiB\"");
  RowMemorySpec mine = spec(1024);
  mine.last = mine.first + 2 * kGroupRows;
  std::vector<float> start(mine.rows() * mine.width);
  for (std::size_t i = 0; i < start.size(); ++i) start[i] = -1.f - static_cast<float>(i / mine.width);
  std::mt19937 random(5);
  int torn = 0, held = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto memory = tier_->allocate(mine);
      memory->fill(all_ids(mine), reinterpret_cast<const std::byte*>(start.data()));
      kept(*memory).mark(1, 1);
      write_until_killed(*memory, mine, trial, ready[1]);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    usleep(random() % 1000);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    close(ready[0]);
    close(ready[1]);

    RowMemorySpec again = mine;
    again.resumes = true;
    const auto memory = tier_->allocate(again);
    const std::vector<float> left = contents(*memory, mine);
    std::vector<std::int64_t> lost;
    ASSERT_TRUE(kept(*memory).go_back(1, 1, lost)) << "trial " << trial;
    held += lost.empty() ? 0 : 1;
    for (std::int64_t row = 0; row < mine.rows(); ++row) {
      const auto begin = left.begin() + row * mine.width;
      if (std::count(begin, begin + mine.width, *begin) == mine.width) continue;
      ++torn;
      ASSERT_TRUE(std::binary_search(lost.begin(), lost.end(), mine.first + row))
          << "row " << mine.first + row << " is torn, trial " << trial;
    }
    ASSERT_EQ(contents(*memory, mine), start) << "trial " << trial;
  }
  EXPECT_GT(torn, 100) << "the kills came at no interesting moment";
  EXPECT_GE(held, torn);
}

TEST_F(SharedTier, LivesAsLongAsItsRun) {
  const std::string path = Segment::path_of(spec(4));
  auto memory = rows(spec(4));
  EXPECT_TRUE(fs::exists(path));
  kept(*memory).mark(1, 1);
  memory.reset();
  EXPECT_TRUE(fs::exists(path)) << "it outlives the process";
  // A new attempt: also what was left of tables that it does not have.
  const fs::path other = path.substr(0, path.rfind('.')) + ".0123456789abcdef";
  std::ofstream(other) << "rows";
  const float one[4] = {1, 1, 1, 1};
  const std::int64_t id = 200;
  memory = rows(spec(4));
  EXPECT_FALSE(fs::exists(other));
  EXPECT_FALSE(kept(*memory).kept());
  memory->write({&id, 1}, reinterpret_cast<const std::byte*>(one));
  kept(*memory).mark(1, 1);
  kept(*memory).end();
  EXPECT_FALSE(fs::exists(path)) << "the run is complete";
  EXPECT_EQ(contents(*memory, spec(4))[400], 1.f) << "the process still reads its rows";
  // An emptied /dev/shm, or another number of ranks: the checkpoint is read.
  memory = rows(spec(4, true));
  EXPECT_FALSE(kept(*memory).kept());
  std::vector<std::int64_t> lost;
  EXPECT_FALSE(kept(*memory).go_back(1, 1, lost));
  kept(*memory).mark(1, 1);
  memory.reset();
  RowMemorySpec fewer = spec(4, true);
  fewer.last = 300;
  memory = rows(fewer);
  EXPECT_FALSE(kept(*memory).kept());
}

TEST_F(SharedTier, WithoutARunNothingIsKept) {
  const auto files = [] {
    std::map<std::string, bool> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().starts_with("tenon.")) names[entry.path().string()] = true;
    return names;
  };
  RowMemorySpec mine = spec(4);
  mine.run = "";
  const auto before = files();
  const auto memory = rows(mine);
  for (const auto& entry : files()) EXPECT_TRUE(before.contains(entry.first)) << entry.first;
  EXPECT_EQ(contents(*memory, mine), std::vector<float>(mine.rows() * mine.width, 0.f));
}

TEST_F(SharedTier, RefusesRowsOfSomethingElse) {
  const fs::path path = Segment::path_of(spec(4));
  rows(spec(4)).reset();
  const std::string mine = "run '" + run_ + "' (table 'emb.0.weight', rank 0, f32 rows of 4)";
  const std::string advice = ". Remove it, and the rows come from the checkpoint: rm /dev/shm/tenon.";
  EXPECT_THAT(refusal(spec(8, true)), HasSubstr("row table 'emb.0.weight': " + path.string() +
                                                " holds rows of " + mine + "; expected run '" + run_ +
                                                "' (table 'emb.0.weight', rank 0, f32 rows of 8)" + advice));
  // Names may collide, and files may be copied.
  RowMemorySpec other = spec(4, true);
  const std::string other_run = run_ + "/other";
  other.run = other_run;
  fs::copy_file(path, Segment::path_of(other));
  EXPECT_THAT(refusal(other), HasSubstr("holds rows of " + mine + "; expected run '" + other_run + "'"));
  fs::remove(Segment::path_of(other));
  other = spec(4, true);
  other.state = "optimizer.sum";
  fs::copy_file(path, Segment::path_of(other));
  EXPECT_THAT(refusal(other), HasSubstr("holds rows of " + mine + "; expected run '" + run_ +
                                        "' (table 'emb.0.weight', optimizer.sum, rank 0"));
  fs::remove(Segment::path_of(other));
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_THAT(refusal(spec(4, true)), HasSubstr("was truncated: expected "));
  fs::resize_file(path, 10);
  EXPECT_THAT(refusal(spec(4, true)), HasSubstr("is no segment of rows"));
}

TEST_F(SharedTier, RefusesASegmentInUse) {
  const auto memory = rows(spec(4));
  const std::string used =
      "is in use by process " + std::to_string(getpid()) + ", which trains the same run; ";
  for (const bool resumes : {false, true}) EXPECT_THAT(refusal(spec(4, resumes)), HasSubstr(used)) << resumes;
}

TEST_F(SharedTier, SaysWhatItAskedForWhereMemoryIsShort) {
  RowMemorySpec mine = spec(1024);
  mine.last = std::int64_t{1} << 40;
  const std::string asked = std::to_string(tier_->host_bytes(mine));
  EXPECT_THAT(refusal(mine), ::testing::AllOf(HasSubstr("row table 'emb.0.weight': its rows take " + asked +
                                                        " bytes of shared memory, and /dev/shm has "),
                                              HasSubstr(" free: No space left on device. Make it larger")));
  EXPECT_FALSE(fs::exists(Segment::path_of(mine)));
}

}  // namespace
}  // namespace tenon::tier_shared
