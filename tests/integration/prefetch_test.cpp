// [tables] prefetch: what tables are told is what the slots to come read, and a run has the bits, the bytes
// and, under the simulated clock, the times that it has without.
#include "run_program.hpp"

namespace tenon::integration::prefetch_test {
namespace {

using ::testing::HasSubstr;
using Sets = std::vector<std::string>;

constexpr const char* kClicksInTiers = R"([run]
name = "tiny"
steps = 12
log_every = 1
deadline = 30

[device]
type = "cpu"
threads = 1

[transport]
type = "thread"

[data]
type = "synthetic_ctr"
tables = 3
rows = [400]
bag = 2
batch = 48
val_samples = 256

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
every = 4
keep = 1000
async = false
)";
constexpr const char* kTold = R"(
[[tables.place]]
match = "emb.*"
tier = { type = "told", lines = 150 }

[[observe]]
type = "told"
)";
/// Slots do not wait for the hints of the next one.
const std::string kUnwaited = std::string(kTold) + "wait = false\n";

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Sets depth(int slots) {
  return {"tables.prefetch=" + std::to_string(slots)};
}

class Clicks : public Scratch {
 public:
  explicit Clicks(const std::string& tables = kTold) {
    write_file(*this / "run.toml", std::string(kClicksInTiers) + tables);
  }

  Ended start(const Sets& sets, Sets words = {}) const {
    return train(with_sets(std::move(words), sets), environment());
  }
  Ended launch(int ranks, const Sets& sets) const {
    Sets words{"launch",   "-n",     std::to_string(ranks), "--transport", "socket", "--", "train",
               "run.toml", "--quiet"};
    return run(with_sets(std::move(words), sets), environment());
  }
  Sets bits() const {
    return {summary("weights_hash"), summary("state_hash"), summary("train/loss"), summary("val/loss"),
            summary("bytes_sent")};
  }
  /// Every line but those of a saver's thread, which counts real seconds.
  Sets metrics() const {
    std::ifstream file(*this / "runs/tiny/latest/metrics.jsonl");
    Sets lines;
    for (std::string line; std::getline(file, line);) {
      if (line.find("checkpoint_s") == std::string::npos) lines.push_back(line);
    }
    return lines;
  }
  /// A count of the fixture.
  std::int64_t count(const std::string& key, int rank = 0, const std::string& attempt = "latest") const {
    std::ifstream file(*this / ("runs/tiny/" + attempt + "/told.rank" + std::to_string(rank) + ".txt"));
    std::string name;
    std::int64_t value = 0;
    while (file >> name >> value) {
      if (name == key) return value;
    }
    ADD_FAILURE() << "no count of " << key << " on rank " << rank;
    return -1;
  }
  /// Every row that a slot after the first read was told before the slot began, once, and no other.
  void expect_exact_hints(int ranks = 1) const {
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      EXPECT_GT(count("reads", rank), 1000);
      EXPECT_GT(count("fetched", rank), 100) << "the cache is too large for this test";
      EXPECT_EQ(count("untold", rank), 0);
      EXPECT_EQ(count("unread", rank), 0);
      EXPECT_EQ(count("late", rank), 0);
      EXPECT_EQ(count("twice", rank), 0);
      EXPECT_EQ(count("foreign", rank), 0);
    }
  }

 private:
  static Sets with_sets(Sets words, const Sets& sets) {
    for (const std::string& set : sets) {
      words.emplace_back("--set");
      words.push_back(set);
    }
    return words;
  }
  static std::map<std::string, std::string> environment() { return {{"TENON_PLUGIN_PATH", TENON_TOLD}}; }
};

/// Bits of the run with its tables in the core's own memory.
Sets plain_bits(const Sets& sets) {
  const Clicks plain("");
  const Ended ended = plain.start(sets);
  EXPECT_EQ(ended.status, 0) << ended.err;
  return plain.bits();
}

void expect_same_bits_at_all_depths(const Sets& sets, int ranks = 1) {
  const Sets plain = plain_bits(sets);
  for (const int slots : {0, 1, 2, 5}) {
    SCOPED_TRACE("prefetch = " + std::to_string(slots));
    const Clicks run(slots == 0 ? kUnwaited : kTold);
    const Ended ended = run.start(sets + depth(slots));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(run.bits(), plain);
    if (slots > 0) {
      run.expect_exact_hints(ranks);
    } else {
      EXPECT_EQ(run.count("told"), 0);
    }
  }
}

TEST(Prefetch, T5_ChangesNoBitAtAnyDepth) {
  expect_same_bits_at_all_depths({});
}

TEST(Prefetch, T5_TellsOfAllMicroBatchesOfASlot) {
  expect_same_bits_at_all_depths({"run.accumulate=3", "data.batch=24"});
}

// Rows of a rank are read for the samples of all replicas, and copies are updated by all of their gradients.
TEST(Prefetch, T5_ChangesNoBitOfReplicasInStep) {
  for (const std::string placement : {"replicated", "rows", "tables"}) {
    SCOPED_TRACE(placement);
    expect_same_bits_at_all_depths(
        {"parallel.ranks=3", "data.batch=16", "run.accumulate=2", "model.placement=" + placement}, 3);
  }
}

TEST(Prefetch, T5_ChangesNoBitOfProcessesOverSockets) {
  const Sets sets{"parallel.ranks=2", "data.batch=24", "model.placement=rows"};
  const Sets plain = plain_bits(sets);
  for (const int slots : {1, 2}) {
    const Clicks run;
    const Ended ended = run.launch(2, sets + depth(slots));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(run.bits(), plain);
    run.expect_exact_hints(2);
  }
}

TEST(Prefetch, T5_ChangesNoBitOfARunThatGoesOn) {
  const Sets plain = plain_bits({});
  const Clicks run;
  ASSERT_EQ(run.start(depth(2)).status, 0);
  EXPECT_EQ(run.bits(), plain);
  for (const char* step : {"step-8", "step-12"}) fs::remove_all(run / "runs/tiny/1/checkpoints" / step);
  ASSERT_EQ(run.start(depth(5), {"--resume"}).status, 0);
  EXPECT_EQ(run.bits(), plain);
  run.expect_exact_hints();
  // Under another depth, and without a tier.
  fs::remove_all(run / "runs/tiny/1/checkpoints/step-12");
  ASSERT_EQ(run.start(depth(0) + Sets{"tables.place=[]"}, {"--resume"}).status, 0);
  EXPECT_EQ(run.bits(), plain);
}

// The clock orders all threads, so a run repeats, and the actor is one of them.
const Sets kSimulated{"transport.clock={type='simulated', compute_seconds=0.01, optimizer_seconds=0.001}",
                      "transport.link={bandwidth=12.5e6, latency=1e-4, jitter=1e-5}", "run.steps=24",
                      "optimizer.type=adagrad"};

void expect_same_run_under_the_simulated_clock(const Sets& sets, int ranks) {
  const Sets world = kSimulated + sets;
  const Clicks plain("");
  ASSERT_EQ(plain.start(world).status, 0);
  for (const int slots : {0, 1, 2, 5}) {
    SCOPED_TRACE("prefetch = " + std::to_string(slots));
    const Clicks run(kUnwaited);
    const Ended ended = run.start(world + depth(slots));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(run.bits(), plain.bits());
    const Sets lines = run.metrics(), expected = plain.metrics();
    ASSERT_EQ(lines.size(), expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], expected[i]) << "values, times, bytes";
    if (slots == 0) continue;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_GT(run.count("told", rank), 1000);
      EXPECT_EQ(run.count("foreign", rank), 0);
    }
  }
}

TEST(Prefetch, T5_ChangesNoBitAndNoTimeOfLockFreeWorkers) {
  expect_same_run_under_the_simulated_clock({"parallel.workers=3", "sync.type=none"}, 1);
}

TEST(Prefetch, T5_ChangesNoBitAndNoTimeOfReplicasInStep) {
  expect_same_run_under_the_simulated_clock({"parallel.ranks=2", "data.batch=24", "model.placement=rows"}, 2);
}

// The owner foresees the next slots of a replica that asks it for rows.
TEST(Prefetch, T5_ChangesNoBitAndNoTimeOfRowsOnRequest) {
  const Sets request{"parallel.ranks=3", "data.batch=16", "model.placement=rows", "sync.type=none",
                     "parallel.rows=request"};
  expect_same_run_under_the_simulated_clock(request, 3);
  expect_same_run_under_the_simulated_clock(
      request + Sets{"parallel.workers=2", "run.accumulate=2",
                     "transport.straggler=[{ranks=[1], kind='factor', factor=1.7}]"},
      3);
  const Clicks run(kUnwaited);
  const Ended ended = run.start(kSimulated + request + depth(1));
  ASSERT_EQ(ended.status, 0) << ended.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_GT(run.count("reads", rank), 1000);
    EXPECT_EQ(run.count("unknown", rank), 0) << "rows that others asked for among them";
  }
}

TEST(Prefetch, AnErrorOfTheTierEndsTheRun) {
  const Clicks run;
  const Ended ended =
      run.start(depth(1) + Sets{"tables.place=[{match='emb.*', tier={type='told', fails_at=5}}]"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("tier.told: the rows of emb.0.weight are out of reach"));
  EXPECT_THAT(ended.err, HasSubstr("rows ahead"));
}

TEST(Prefetch, SaysWhereItHasNothingToActOn) {
  const Clicks none("");
  ASSERT_EQ(none.start(depth(2)).status, 0);
  EXPECT_THAT(none.log(), HasSubstr("tables.prefetch = 2 does nothing: no row table that the data alone "
                                    "selects rows of lies in a tier that fetches rows ahead; place one there "
                                    "([[tables.place]]), or leave prefetch out"));
  const Scratch text;
  ASSERT_EQ(text.train({"--set", "tables.prefetch=1"}).status, 0);
  EXPECT_THAT(text.log(), HasSubstr("tables.prefetch = 1 does nothing: the model has no layer that reads row "
                                    "tables by the data alone"));
}

}  // namespace
}  // namespace tenon::integration::prefetch_test
