// Row tables in whole runs: wherever their rows lie the run has the same bits, checkpoints fit any number of
// replicas, kills lose nothing, and lock-free workers use every sample once.
#include "run_program.hpp"

#include <cmath>

namespace tenon::integration {
namespace {

using Sets = std::vector<std::string>;

/// A DLRM on UCI Adult, 24 slots of 96 samples whatever the number of replicas.
constexpr const char* kClicks = R"([run]
name = "tiny"
steps = 24
log_every = 4
eval_every = 12

[device]
type = "cpu"
threads = 1

[transport]
type = "thread"

[data]
type = "adult"
path = "{source}/data/adult/adult.data"
test_path = "{source}/data/adult/adult.test"
buckets = 8

[model]
type = "dlrm"
bottom = [16, 8]
top = [16, 1]

[optimizer]
type = "rowwise_adagrad"
lr = 0.02

[sync]
type = "ddp"

[recovery]
type = "full"
every = 6
async = false

[[observe]]
type = "tables"
)";

class Tables : public Scratch {
 public:
  Tables() { write_file(*this / "run.toml", replaced(kClicks, "{source}", TENON_SOURCE_DIR)); }

  Ended train_with(const Sets& sets, Sets words = {}) const {
    for (const std::string& set : sets) {
      words.emplace_back("--set");
      words.push_back(set);
    }
    return train(words);
  }
  double number(const std::string& key) const { return std::stod(summary(key)); }
};

Sets world(int replicas, const std::string& placement) {
  return {"parallel.ranks=" + std::to_string(replicas), "model.placement=" + placement,
          "data.batch=" + std::to_string(96 / replicas)};
}

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Placements : public ::testing::TestWithParam<int> {};

TEST_P(Placements, GiveTheSameBits) {
  std::map<std::string, std::vector<std::string>> found;
  for (const std::string placement : {"replicated", "rows", "tables"}) {
    const Tables run;
    const Ended ended = run.train_with(world(GetParam(), placement));
    ASSERT_EQ(ended.status, 0) << ended.err;
    found[placement] = {run.summary("weights_hash"), run.summary("train/loss"), run.summary("val/loss"),
                        run.summary("val/auc")};
  }
  EXPECT_EQ(found["rows"], found["replicated"]);
  EXPECT_EQ(found["tables"], found["replicated"]);
}

// With clipping the norm of the rows is summed owner by owner: another order of the same sum of n squares in
// double, n eps relative, so a factor that differs by one rounding to float at most.
TEST_P(Placements, DifferByARoundingWhenClipped) {
  std::map<std::string, double> loss;
  for (const std::string placement : {"replicated", "rows"}) {
    const Tables run;
    const Ended ended = run.train_with(world(GetParam(), placement) + Sets{"run.clip=0.05"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    loss[placement] = run.number("val/loss");
  }
  EXPECT_NEAR(loss["rows"], loss["replicated"], 24 * 0x1p-23 * loss["replicated"]);
}

INSTANTIATE_TEST_SUITE_P(Replicas, Placements, ::testing::Values(2, 3, 4));

/// A rate too small to move any weight: what is hashed are the initial ones.
TEST(InitialRows, DoNotDependOnTheNumberOfShards) {
  std::vector<std::string> hashes;
  for (const auto& [replicas, placement] :
       {std::pair{1, "replicated"}, {2, "rows"}, {3, "tables"}, {4, "rows"}}) {
    const Tables run;
    const Ended ended =
        run.train_with(world(replicas, placement) + Sets{"run.steps=1", "optimizer.lr=1e-30"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    hashes.push_back(run.summary("weights_hash"));
  }
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
}

TEST(Checkpoints, OfTablesAreReadAtAnyNumberOfReplicas) {
  const Tables run;
  ASSERT_EQ(run.train_with(world(2, "rows")).status, 0);
  const std::string weights = run.summary("weights_hash");
  for (const auto& [replicas, placement] :
       {std::pair{4, "rows"}, {3, "tables"}, {1, "replicated"}, {2, "rows"}}) {
    const Ended ended = run.train_with(world(replicas, placement), {"--resume"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(run.summary("weights_hash"), weights) << replicas << " " << placement;
  }
}

TEST(Kills, LoseNothingOfShardedTablesAndTheirState) {
  const Tables whole;
  const Sets sets = world(2, "rows") + Sets{"run.steps=240"};
  ASSERT_EQ(whole.train_with(sets).status, 0);
  const Tables run;
  Sets words{"train", "run.toml", "--quiet"};
  for (const std::string& set : sets) {
    words.emplace_back("--set");
    words.push_back(set);
  }
  int kills = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    Sets arguments = words;
    if (attempt > 0) arguments.emplace_back("--resume");
    Child child({arguments, run.folder(), {}});
    // After a checkpoint that the attempt itself wrote, in whatever phase the run happens to be then.
    const fs::path folder = run / "runs/tiny/1/checkpoints";
    const std::string awaited = "step-" + std::to_string(60 * (attempt + 1));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!fs::exists(folder / awaited) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.send(SIGKILL);
    kills += child.wait().signal == SIGKILL ? 1 : 0;
  }
  EXPECT_EQ(kills, 3) << "the run ended before it was killed";
  ASSERT_EQ(run.train_with(sets, {"--resume"}).status, 0);
  EXPECT_EQ(run.summary("weights_hash"), whole.summary("weights_hash"));
  EXPECT_EQ(run.summary("state_hash"), whole.summary("state_hash"));
}

TEST(Hogwild, UsesEverySampleOnceAndLearnsLikeOneWorker) {
  const Sets common{"sync.type=none", "data.batch=32", "run.steps=300", "recovery.type=none"};
  std::vector<double> alone, together;
  for (int seed = 1; seed <= 3; ++seed) {
    const Sets seeded = common + Sets{"run.seed=" + std::to_string(seed)};
    const Tables one, two;
    ASSERT_EQ(one.train_with(seeded).status, 0);
    const Ended ended = two.train_with(seeded + Sets{"parallel.workers=2"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    alone.push_back(one.number("val/loss"));
    together.push_back(two.number("val/loss"));
    EXPECT_EQ(two.summary("samples"), "9600");
    // How often each row was read is a function of the samples that were used.
    const auto accesses = [](const Tables& run) {
      return read_file(run / "runs/tiny/latest/tables.rank0.json");
    };
    EXPECT_GT(accesses(one).size(), 1000U);
    EXPECT_EQ(accesses(two), accesses(one));
    EXPECT_EQ(one.summary("deterministic"), "true");
    EXPECT_EQ(two.summary("deterministic"), "false");
    EXPECT_EQ(two.summary("nondeterminism"),
              "\"2 workers update the same weights without locks (Hogwild) under the wall clock\"");
  }
  // Student's t interval of three seeds at 99 %: 9.925 s / sqrt(3); paired, around one worker's mean.
  double mean = 0, square = 0;
  for (std::size_t i = 0; i < 3; ++i) mean += (together[i] - alone[i]) / 3;
  for (std::size_t i = 0; i < 3; ++i) square += std::pow(together[i] - alone[i] - mean, 2) / 2;
  EXPECT_LE(std::abs(mean), 9.925 * std::sqrt(square / 3) + 0.005) << "mean difference of val/loss";
  for (const double loss : together) EXPECT_LT(loss, 0.45) << "0.55 is the entropy of the base rate";
}

TEST(Refusals, SayWhatDoesNotGoTogether) {
  const Tables run;
  const auto error = [&](const Sets& sets) {
    const Ended ended = run.train_with(sets);
    EXPECT_EQ(ended.status, 2) << ended.err;
    return ended.err;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(
      error(world(2, "rows") + Sets{"parallel.workers=2", "sync.type=none"}),
      HasSubstr("parallel.workers: several workers and several replicas cannot share row tables in this "
                "version: rows travel between replicas in step. Set parallel.workers = 1, or "
                "parallel.ranks = 1"));
  EXPECT_THAT(
      error(world(2, "replicated") + Sets{"sync.type=none"}),
      HasSubstr("is replicated, but under this sync strategy replicas update alone and rows are never "
                "averaged, so the copies would drift apart. Keep one copy over the replicas (for "
                "embedding_bag: placement = \"rows\" or \"tables\"), or use a strategy that shares "
                "gradients in every step"));
  EXPECT_THAT(
      error({"model.rows=[9, 17, 8, 16, 7, 6, 6, 43, 9, 9, 9, 9, 9, 2000000000]", "model.bottom=[16, 1024]"}),
      HasSubstr("GiB for weights, gradients and optimizer state in this process, and the machine has"));
}

}  // namespace
}  // namespace tenon::integration
