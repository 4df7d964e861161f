// Row tables in whole runs: for any placement of the rows the run has the same bits, checkpoints fit any
// number of replicas, kills lose nothing, and lock-free workers use every sample once.
#include "run_program.hpp"

#include <tenon/checkpoint.hpp>

#include <chrono>
#include <cmath>
#include <regex>
#include <thread>

namespace tenon::integration::tables_test {
namespace {

using Sets = std::vector<std::string>;
using ::testing::HasSubstr;

constexpr const char* kPlanted = R"([run]
name = "tiny"
steps = 4
eval_batches = 2

[device]
type = "cpu"
threads = 1

[data]
type = "synthetic_ctr"
tables = 8
rows = [{rows}]
batch = 256
val_samples = 512

[model]
type = "dlrm"

[optimizer]
type = "rowwise_adagrad"
lr = 0.02
)";

class Tables : public Scratch {
 public:
  Tables() { write_file(*this / "run.toml", clicks_run()); }

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

// Rows are averaged over the replicas as dense gradients are, so several replicas with their shares of a
// batch train like one with all of it, up to the rounding of sums in another order, which training amplifies.
TEST(Replicas, TrainLikeOneWithAllTheirSamples) {
  // Adagrad is invariant to a factor on all gradients; plain SGD is not.
  const Sets rules[] = {{}, {"optimizer.type=sgd", "optimizer.lr=0.2"}};
  for (const Sets& rule : rules) {
    const Tables one, three;
    ASSERT_EQ(one.train_with(world(1, "replicated") + rule).status, 0);
    ASSERT_EQ(three.train_with(world(3, "rows") + rule).status, 0);
    EXPECT_NEAR(three.number("val/loss"), one.number("val/loss"), 1e-4);
    EXPECT_NEAR(three.number("val/auc"), one.number("val/auc"), 1e-4);
  }
}

// A sanitizer's shadow memory does not count.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Tables and their state once, and memory for a batch: no copy for initial values, hashes or gradients.
TEST(Memory, IsTheTablesTheirStateAndSixtyFourMebibytes) {
  const auto peak = [](const std::string& rows) {
    const Tables run;
    write_file(run / "run.toml", replaced(kPlanted, "{rows}", rows));
    const Ended ended = run.train();
    EXPECT_EQ(ended.status, 0) << ended.err;
    return run.number("peak_anonymous_mb");
  };
  // 8 tables x 400,000 rows x (16 + 1) numbers of 4 bytes.
  const double tables_mb = 8 * 400000.0 * 17 * 4 / (1 << 20);
  EXPECT_LT(peak("400000"), tables_mb + 64);
  EXPECT_LT(peak("1000"), 64);
}
#endif

// A strategy whose replicas update their dense weights alone leaves the tables one copy.
TEST(ReplicasThatUpdateAlone, ShareTheirTablesAndResumeToTheSameBits) {
  const Sets sets = world(2, "rows") + Sets{"sync.type=none", "recovery.keep=1000"};
  const Tables whole;
  const Ended ended = whole.train_with(sets);
  ASSERT_EQ(ended.status, 0) << ended.err;
  const std::vector<std::string> hashes = {whole.summary("weights_hash"), whole.summary("state_hash"),
                                           whole.summary("val/auc")};
  for (const char* step : {"step-24", "step-18"}) fs::remove_all(whole / "runs/tiny/1/checkpoints" / step);
  const Ended again = whole.train_with(sets, {"--resume"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(hashes, (std::vector<std::string>{whole.summary("weights_hash"), whole.summary("state_hash"),
                                              whole.summary("val/auc")}));
  EXPECT_LT(whole.number("val/loss"), 0.55) << "the entropy of the base rate";
}

/// A rate too small to change any weight: the hashed weights are the initial ones.
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

TEST(Checkpoints, P19_OfTablesAreReadAtAnyNumberOfReplicas) {
  const Tables run;
  ASSERT_EQ(run.train_with(world(4, "rows")).status, 0);
  const std::string weights = run.summary("weights_hash");
  for (const auto& [replicas, placement] :
       {std::pair{2, "rows"}, {3, "tables"}, {1, "replicated"}, {8, "rows"}, {4, "rows"}}) {
    const Ended ended = run.train_with(world(replicas, placement), {"--resume"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(run.summary("weights_hash"), weights) << replicas << " " << placement;
    const Ended shown = run.run({"inspect", "runs/tiny", "--tables"});
    EXPECT_EQ(shown.status, 0) << shown.err;
    EXPECT_THAT(shown.out, ::testing::HasSubstr(": " + std::to_string(replicas) + " rank")) << shown.out;
    EXPECT_THAT(shown.out, ::testing::Not(::testing::HasSubstr("rank " + std::to_string(replicas) + ":")));
  }
}

using State = std::map<std::string, std::vector<float>>;

/// Weights and optimizer state of a checkpoint, as logical tensors.
State state_of(const Tables& run, std::int64_t step) {
  const auto files = make_posix_files();
  CheckpointReader reader =
      CheckpointStore(*files, (run / "runs/tiny/1/checkpoints").string(), {}).open(step);
  State state;
  for (const TensorSpec& spec : reader.tensors()) {
    if (spec.name.rfind("model/", 0) != 0 && spec.name.rfind("optimizer.", 0) != 0) continue;
    EXPECT_EQ(spec.dtype, DType::kF32) << spec.name;
    std::vector<float>& values = state[spec.name];
    values.resize(spec.shape.elements());
    reader.read(spec.name, {values.data(), spec.shape, spec.dtype});
  }
  return state;
}

// Half of a run by four ranks, the other half by two, three and eight: rounding apart they end where the four
// would have. An accumulator that begins again at zero would miss half of its sum.
TEST(Checkpoints, P19_OfFourReplicasGoOnWithTheirOptimizerAtTwoThreeAndEight) {
  const Tables whole;
  ASSERT_EQ(whole.train_with(world(4, "rows") + Sets{"recovery.keep=1000"}).status, 0);
  const State expected = state_of(whole, 24);
  int optimizer_tensors = 0;
  for (const auto& [replicas, placement] :
       {std::pair{2, "rows"}, {3, "tables"}, {8, "rows"}, {8, "replicated"}}) {
    SCOPED_TRACE(std::to_string(replicas) + " " + placement);
    const Tables run;
    fs::copy(whole / "runs", run / "runs", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    for (const char* step : {"step-18", "step-24"}) fs::remove_all(run / "runs/tiny/1/checkpoints" / step);
    const Ended ended = run.train_with(world(replicas, placement) + Sets{"recovery.keep=1000"}, {"--resume"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    const State found = state_of(run, 24);
    ASSERT_EQ(found.size(), expected.size()) << "names do not depend on ranks and placement";
    for (const auto& [name, values] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      const std::vector<float>& other = found.at(name);
      ASSERT_EQ(other.size(), values.size()) << name;
      double distance = 0, norm = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        distance += std::pow(double{other[i]} - values[i], 2);
        norm += std::pow(double{values[i]}, 2);
      }
      EXPECT_LE(distance, 0.02 * 0.02 * norm) << name;
      optimizer_tensors += name.rfind("optimizer.", 0) == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(optimizer_tensors, 0);
}

TEST(Kills, LoseNothingOfShardedTablesAndTheirState) {
  const Tables whole;
  const Sets sets = world(2, "rows") + Sets{"run.steps=240", "recovery.keep=1000"};
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
    // After a checkpoint that the attempt itself wrote, in any phase of the run.
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

class RowRules : public ::testing::TestWithParam<const char*> {
 protected:
  Sets rule() const {
    const std::string type = GetParam();
    return {"optimizer.type=" + type, type == "sgd" ? "optimizer.lr=0.2" : "optimizer.lr=0.02"};
  }
};

TEST_P(RowRules, ContinueToTheSameBitsOnShardedTables) {
  const Tables whole, cut;
  ASSERT_EQ(whole.train_with(world(2, "rows") + rule()).status, 0);
  ASSERT_EQ(cut.train_with(world(2, "rows") + rule() + Sets{"run.max_samples=960"}).status, 0);
  EXPECT_EQ(cut.summary("steps"), "10");
  ASSERT_EQ(cut.train_with(world(2, "rows") + rule(), {"--resume"}).status, 0);
  EXPECT_EQ(cut.summary("weights_hash"), whole.summary("weights_hash"));
  EXPECT_EQ(cut.summary("state_hash"), whole.summary("state_hash"));
  const Tables copies;
  ASSERT_EQ(copies.train_with(world(2, "replicated") + rule()).status, 0);
  EXPECT_EQ(copies.summary("weights_hash"), whole.summary("weights_hash"));
}

TEST_P(RowRules, LowerTheLoss) {
  const Tables run;
  const Ended ended =
      run.train_with(rule() + Sets{"run.steps=200", "run.eval_every=200", "recovery.type=none"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_LT(run.number("val/loss"), 0.5) << "0.55 is the entropy of the base rate";
}

INSTANTIATE_TEST_SUITE_P(All, RowRules, ::testing::Values("sgd", "adagrad", "adamw", "rowwise_adagrad"));

// The rows that were read depend on the samples alone; their owners do not matter.
TEST(Inspected, TablesAreTheSameWhereverTheirRowsLie) {
  std::vector<std::string> pages;
  for (const auto& [replicas, placement] :
       {std::pair{1, "replicated"}, {2, "replicated"}, {2, "rows"}, {2, "tables"}}) {
    const Tables run;
    const Ended ended = run.train_with(world(replicas, placement));
    ASSERT_EQ(ended.status, 0) << ended.err;
    const std::string page = run.run({"inspect", "runs/tiny", "--tables"}).out;
    EXPECT_THAT(page, ::testing::StartsWith("runs/tiny/1: " + std::to_string(replicas) +
                                            (replicas > 1 ? " ranks" : " rank") +
                                            ", 24 applied slots from slot 0\n"));
    pages.push_back(std::regex_replace(page.substr(page.find('\n')), std::regex("  rank [^\n]*\n"), ""));
    EXPECT_EQ(pages.back(), pages[0]) << placement;
    if (std::string(placement) != "rows") continue;
    EXPECT_THAT(page, ::testing::HasSubstr("\nemb.0.weight: 9 rows x 8 f32, 288 bytes\n"));
    EXPECT_THAT(page, ::testing::HasSubstr("\n  rank 0: rows 0 to 3, "));
    EXPECT_THAT(page, ::testing::HasSubstr("\n  rank 1: rows 4 to 8, "));
  }
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
    // The number of reads of each row is a function of the samples that were used.
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
  EXPECT_THAT(error({"optimizer={type='sgd', lr=0.1, momentum=0.9}"}),
              HasSubstr("optimizer sgd: momentum cannot be used with the row table 'emb.0.weight': it would "
                        "keep moving rows that no batch reads; set momentum = 0, or choose a rule with a "
                        "rate per row or weight (adagrad, rowwise_adagrad, adamw)"));
  EXPECT_THAT(
      error({"optimizer.type=lamb"}),
      HasSubstr("parameter 'emb.0.weight' is a row table, and the chosen optimizer has no row-sparse form"));
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
  for (const std::string place : {"front", "behind"}) {
    EXPECT_THAT(
        error({"tables.place=[{match='*', tier={type='cached', load_factor=0.5, " + place +
               "={type='half'}}}]"}),
        HasSubstr("row table 'emb.0.weight': tier 'cached' cannot have a tier that rounds rows as its '" +
                  place + "': which rows are rounded would depend on time"));
  }
}

/// Segments of the tier `shared` that hold rows of runs in this folder.
std::vector<fs::path> segments_of(const Scratch& run) {
  std::vector<fs::path> found;
  const std::string folder = (run / "runs/tiny").string();
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    if (!entry.path().filename().string().starts_with("tenon.")) continue;
    std::string head(4096, ' ');
    std::ifstream(entry.path(), std::ios::binary)
        .read(head.data(), static_cast<std::streamsize>(head.size()));
    if (head.find(folder) != std::string::npos) found.push_back(entry.path());
  }
  return found;
}

/// Tables in shared memory, in f32 or in bf16.
class KeptRowsOfRuns : public ::testing::TestWithParam<const char*> {
 protected:
  void place(const Tables& run) const {
    write_file(run / "run.toml",
               clicks_run() + "\n[[tables.place]]\nmatch = \"emb.*.weight\"\ntier = " + GetParam() + "\n");
  }
  static constexpr const char* kTaken =
      " rows of tables are as the process before left them, and 0 come from "
      "the checkpoint of slot ";
};

// The newest checkpoint is that of slot 12; slots 13 to 16 are undone. Each slot of two ranks enters its
// phase twice. A second kill comes after a restart, whose rows are kept, too.
TEST_P(KeptRowsOfRuns, AfterAKillRowsGoBackToTheCheckpointToTheBit) {
  for (const int ranks : {1, 2}) {
    const Sets sets = world(ranks, "rows");
    const Tables whole, killed;
    place(whole);
    place(killed);
    const Ended complete = whole.train_with(sets);
    ASSERT_EQ(complete.status, 0) << complete.err;
    EXPECT_TRUE(segments_of(whole).empty()) << "a complete run leaves nothing";
    std::vector<std::string> words;
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    const auto kill_at = [&](int slots) {
      return std::map<std::string, std::string>{
          {"TENON_KILL_AT", "compute:" + std::to_string(slots * ranks)}};
    };
    ASSERT_EQ(killed.train(words, kill_at(16)).signal, SIGKILL);
    EXPECT_FALSE(segments_of(killed).empty());
    words.emplace_back("--resume");
    ASSERT_EQ(killed.train(words, kill_at(9)).signal, SIGKILL);
    const Ended resumed = killed.train(words);
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_THAT(killed.log(), HasSubstr(kTaken + std::string("18")));
    EXPECT_EQ(hashes_of(killed), hashes_of(whole)) << ranks << " rank(s)";
    EXPECT_TRUE(segments_of(killed).empty());
  }
}

TEST_P(KeptRowsOfRuns, AnEmptiedFolderMeansReadingTheCheckpoint) {
  const Tables whole, killed;
  place(whole);
  place(killed);
  ASSERT_EQ(whole.train_with({}).status, 0);
  ASSERT_EQ(killed.train({}, {{"TENON_KILL_AT", "compute:16"}}).signal, SIGKILL);
  for (const fs::path& segment : segments_of(killed)) fs::remove(segment);
  const Ended resumed = killed.train({"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(killed.log(), ::testing::Not(HasSubstr("are as the process before left them")));
  EXPECT_EQ(hashes_of(killed), hashes_of(whole));
}

TEST_P(KeptRowsOfRuns, AnotherFolderOrAttemptTakesNothing) {
  const Tables killed;
  place(killed);
  ASSERT_EQ(killed.train({}, {{"TENON_KILL_AT", "compute:16"}}).signal, SIGKILL);
  // The attempt as a copy: rows of the same slot, but of a run that may have been another one.
  fs::copy(killed / "runs/tiny/1", killed / "copy", fs::copy_options::recursive);
  fs::remove_all(killed / "runs/tiny/1");
  fs::copy(killed / "copy", killed / "runs/tiny/1", fs::copy_options::recursive);
  const std::size_t before = segments_of(killed).size();
  EXPECT_EQ(killed.run({"check", "run.toml"}).status, 0);
  EXPECT_EQ(segments_of(killed).size(), before) << "a check keeps and removes nothing";
  const Ended resumed = killed.train({"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(killed.log(), ::testing::Not(HasSubstr("are as the process before left them")));
  const Ended fresh = killed.train({}, {{"TENON_KILL_AT", "compute:3"}});
  ASSERT_EQ(fresh.signal, SIGKILL);
  EXPECT_EQ(segments_of(killed).size(), before);
  ASSERT_EQ(killed.train().status, 0) << "a new attempt removes what the one before left";
  EXPECT_TRUE(segments_of(killed).empty());
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, KeptRowsOfRuns,
    ::testing::Values("{ type = \"shared\" }",
                      "{ type = \"half\", over = { type = \"shared\", undo = \"64KiB\" } }"));

}  // namespace
}  // namespace tenon::integration::tables_test
