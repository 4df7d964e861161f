// The promise of docs/determinism.md on whole runs: equal configurations end in equal bits, whatever happens
// in between, and the hashes see every bit.
#include "run_program.hpp"

#include <sys/ioctl.h>
#include <atomic>
#include <chrono>
#include <thread>

namespace tenon::integration::determinism_test {
namespace {

struct Hashes {
  std::string weights, state;
  bool operator==(const Hashes&) const = default;
};

void PrintTo(const Hashes& hashes, std::ostream* out) {
  *out << "weights " << hashes.weights << ", state " << hashes.state;
}

Hashes hashes(const Scratch& scratch) {
  Hashes found{scratch.summary("weights_hash"), scratch.summary("state_hash")};
  EXPECT_EQ(found.weights.size(), 34u) << found.weights;
  EXPECT_EQ(found.state.size(), 34u) << found.state;
  return found;
}

using Sets = std::vector<std::string>;  ///< "K=V", ...

Sets options(const Sets& sets) {
  Sets words;
  for (const std::string& set : sets) {
    words.emplace_back("--set");
    words.push_back(set);
  }
  return words;
}

Hashes train(const Sets& sets) {
  const Scratch scratch;
  const Ended ended = scratch.train(options(sets));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(scratch.summary("status"), "\"completed\"");
  return hashes(scratch);
}

const Sets kTwoRanks{"parallel.ranks=2", "transport.type=thread", "sync.type=ddp"};

Sets both(Sets first, const Sets& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

struct World {
  const char* name;
  Sets sets;
};

void PrintTo(const World& world, std::ostream* out) {
  *out << world.name;
}

class EqualRuns : public ::testing::TestWithParam<World> {};

TEST_P(EqualRuns, EndInEqualBitsAndAnotherSeedDoesNot) {
  const Hashes first = train(GetParam().sets);
  EXPECT_EQ(first, train(GetParam().sets));
  const Hashes other = train(both(GetParam().sets, {"run.seed=2"}));
  EXPECT_NE(first.weights, other.weights);
  EXPECT_NE(first.state, other.state);
}

INSTANTIATE_TEST_SUITE_P(Worlds, EqualRuns,
                         ::testing::Values(World{"fp32_1_rank", {"precision.type=fp32"}},
                                           World{"bf16_1_rank", {"precision.type=bf16"}},
                                           World{"fp32_2_ranks", both(kTwoRanks, {"precision.type=fp32"})},
                                           World{"bf16_2_ranks", both(kTwoRanks, {"precision.type=bf16"})}),
                         [](const auto& info) { return std::string(info.param.name); });

// Threads may split the matrix products of a library, but not those of our kernels.
TEST(Threads, DoNotChangeTheBitsOfOurKernels) {
  EXPECT_EQ(train({"device.kernels=portable", "device.threads=1"}),
            train({"device.kernels=portable", "device.threads=2"}));
}

TEST(Precision, IsSeenByTheHash) {
  EXPECT_NE(train({"precision.type=fp32"}).weights, train({"precision.type=bf16"}).weights);
}

/// Holds a run between its first and its last slot: the run writes its phases into a small pipe, which is not
/// read until release().
class Holdup {
 public:
  explicit Holdup(const fs::path& path) : path_(path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    pipe_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GT(::fcntl(pipe_, F_SETPIPE_SZ, 4096), 0);
  }
  ~Holdup() { ::close(pipe_); }
  Holdup(const Holdup&) = delete;
  Holdup& operator=(const Holdup&) = delete;

  std::string path() const { return path_.string(); }
  /// Returns when the pipe has stayed full for a tenth of a second.
  void wait_until_held() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (int same = 0, before = 0, filled = 0; same < 10; before = filled) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the run did not come far enough";
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ASSERT_EQ(::ioctl(pipe_, FIONREAD, &filled), 0);
      same = filled > 3000 && filled == before ? same + 1 : 0;
    }
  }
  /// Reads on until the run has ended.
  Ended release(Child& child) {
    std::thread reader([this] {
      char bytes[4096];
      while (!ended_.load()) {
        if (::read(pipe_, bytes, sizeof bytes) <= 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    const Ended ended = child.wait();
    ended_.store(true);
    reader.join();
    return ended;
  }

 private:
  fs::path path_;
  int pipe_ = -1;
  std::atomic<bool> ended_{false};
};

struct Interruption {
  const char* name;
  int signal;
  Sets sets;
};

void PrintTo(const Interruption& interruption, std::ostream* out) {
  *out << interruption.name;
}

class Interrupted : public ::testing::TestWithParam<Interruption> {};

TEST_P(Interrupted, RunEndsInOrderAndResumesToTheSameBits) {
  const Sets sets =
      options(both({"run.steps=1500", "run.log_every=100", "recovery.every=1000"}, GetParam().sets));
  Sets words{"train", "run.toml", "--quiet"};
  words.insert(words.end(), sets.begin(), sets.end());

  const Scratch whole;
  ASSERT_EQ(whole.run(words).status, 0);

  const Scratch scratch;
  Holdup holdup(scratch / "phases");
  Child child({words, scratch.folder(), {{"TENON_PHASE_LOG", holdup.path()}}});
  holdup.wait_until_held();
  child.send(GetParam().signal);
  // The watcher of the run does not wait for phases to be written; this gives it time to run.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const Ended ended = holdup.release(child);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(scratch.summary("status"), "\"interrupted\"");
  EXPECT_NE(scratch.summary("steps"), "1500");
  EXPECT_NE(scratch.summary("weights_hash"), whole.summary("weights_hash"));

  words.emplace_back("--resume");
  const Ended resumed = scratch.run(words);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(scratch.summary("status"), "\"completed\"");
  EXPECT_EQ(scratch.summary("steps"), "1500");
  EXPECT_EQ(hashes(scratch), hashes(whole));
  EXPECT_FALSE(fs::exists(scratch / "runs/tiny/2")) << "--resume began a new attempt";
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted,
                         ::testing::Values(Interruption{"SIGINT", SIGINT, {}},
                                           Interruption{"SIGTERM", SIGTERM, {}},
                                           Interruption{"SIGINT_2_ranks", SIGINT, kTwoRanks}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tenon::integration::determinism_test
