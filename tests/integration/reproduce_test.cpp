// `tenon reproduce` from end to end on a study of seconds: table, kept runs, an interruption in the middle, a
// run that was killed.
#include "run_program.hpp"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

namespace tenon::integration::reproduce_test {
namespace {

constexpr const char* kStudy = R"(title = "Tiny"
paper = "none"
question = "Does it run?"
base = "run.toml"
baseline = "fp32"

[size.quick]
steps = 2
seeds = [1]

[size.default]
steps = 6
seeds = [1, 2]

[size.cuda]
steps = 6
seeds = [1]
set = ["device.type=cuda"]

[[arm]]
name = "fp32"
set = ["precision.type=fp32"]

[[arm]]
name = "bf16"
set = ["precision.type=bf16"]
)";

class Reproduce : public ::testing::Test {
 protected:
  void SetUp() override { write_file(scratch_ / "tiny.toml", kStudy); }
  Ended reproduce(const std::string& out, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"reproduce", "tiny.toml", "--out", out});
    return scratch_.run(std::move(more));
  }
  nlohmann::json table(const std::string& out) const {
    return nlohmann::json::parse(read_file(scratch_ / (out + "/table.json")));
  }
  /// weights_hash of every run, in the order of the table.
  std::vector<std::string> hashes(const std::string& out) const {
    std::vector<std::string> found;
    const auto json = table(out);
    for (const auto& arm : json["arms"]) {
      for (const auto& run : arm["runs"]) found.push_back(run["weights_hash"]);
    }
    return found;
  }

  Scratch scratch_;
};

TEST_F(Reproduce, WritesTableAndFigureAndKeepsWhatIsDone) {
  const Ended first = reproduce("a");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, ::testing::HasSubstr("reproduce: 0 runs kept, 0 to continue, 4 to start\n"));
  EXPECT_THAT(first.err, ::testing::HasSubstr("reproduce 4/4 runs: "));
  EXPECT_THAT(first.out,
              ::testing::HasSubstr("gap: per cent of the baseline's val/loss; negative = worse\n"));
  const auto json = table("a");
  EXPECT_TRUE(json["complete"].get<bool>());
  EXPECT_EQ(json["arms"][1]["gap_percent"]["pairs"], 2);
  EXPECT_EQ(json["arms"][0]["updates"], 6);
  EXPECT_GT(json["arms"][0]["parameters"], 1000);
  EXPECT_THAT(read_file(scratch_ / "a/table.md"),
              ::testing::HasSubstr("- command: `tenon reproduce tiny.toml --out a`"));
  EXPECT_TRUE(read_file(scratch_ / "a/figure.svg").starts_with("<svg"));

  const auto runs = tree(scratch_ / "a/runs");
  const Ended again = reproduce("a");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, ::testing::HasSubstr("reproduce: 4 runs kept, 0 to continue, 0 to start\n"));
  EXPECT_EQ(changes(scratch_ / "a/runs", runs), std::vector<std::string>());

  // Another configuration is another run, beside the old one.
  write_file(scratch_ / "tiny.toml",
             replaced(kStudy, "precision.type=bf16\"", "precision.type=bf16\", \"run.clip=0.5\""));
  const Ended changed = reproduce("a");
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_THAT(changed.err,
              ::testing::HasSubstr("reproduce: bf16 seed 1 starts again: attempt 1 is of another "
                                   "configuration: run.clip is now 0.5, was 0.0\n"));
  EXPECT_THAT(changed.err, ::testing::HasSubstr("reproduce: 2 runs kept, 0 to continue, 2 to start\n"));
  EXPECT_TRUE(fs::exists(scratch_ / "a/runs/bf16/1/1/summary.json"));
}

TEST_F(Reproduce, AnInterruptedStudyEndsInTheSameBits) {
  ASSERT_EQ(reproduce("straight").status, 0);
  Child child({{"reproduce", "tiny.toml", "--out", "pieces"}, scratch_.folder(), {}});
  const auto some_done = [&] { return fs::exists(scratch_ / "pieces/runs/fp32/1/1/summary.json"); };
  for (int i = 0; i < 6000 && !some_done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  child.send(SIGINT);
  const Ended interrupted = child.wait();
  EXPECT_EQ(interrupted.status, 1) << interrupted.err;
  EXPECT_THAT(interrupted.out,
              ::testing::HasSubstr("interrupted: the same command continues where it stopped\n"));
  EXPECT_FALSE(table("pieces")["complete"].get<bool>());

  const Ended rest = reproduce("pieces");
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(hashes("pieces"), hashes("straight"));
  EXPECT_EQ(hashes("pieces").size(), 4u);

  // State after a kill: an attempt without an end, whose last checkpoint is an earlier one.
  const fs::path attempt = scratch_ / "pieces/runs/bf16/2/1";
  fs::remove(attempt / "summary.json");
  fs::remove_all(attempt / "checkpoints/step-6");
  const Ended after_kill = reproduce("pieces");
  ASSERT_EQ(after_kill.status, 0) << after_kill.err;
  EXPECT_THAT(after_kill.err, ::testing::HasSubstr("reproduce: 3 runs kept, 1 to continue, 0 to start\n"));
  EXPECT_EQ(hashes("pieces"), hashes("straight"));
  EXPECT_FALSE(fs::exists(scratch_ / "pieces/runs/bf16/2/2"));
}

// Arms in stages share what is equal, are kept by what all of their stages are, and say what each came to.
TEST_F(Reproduce, ArmsInStagesAreKeptAndMeasuredStageByStage) {
  write_file(scratch_ / "chain.toml",
             "[recovery]\ntype = \"full\"\n[[stage]]\nname = \"teacher\"\n[[stage]]\nname = \"copy\"\n"
             "transform = \"identity\"\n[[stage]]\nname = \"student\"\n[at.teacher.run]\nsteps = 4\n");
  const std::string study = replaced(kStudy, "\n[[arm]]\nname = \"bf16\"\nset = [\"precision.type=bf16\"]\n",
                                     "\n[[arm]]\nname = \"chain\"\nextends = [\"chain.toml\"]\n"
                                     "set = [\"run.evaluate_first=true\"]\n"
                                     "[[arm]]\nname = \"slow\"\nextends = [\"chain.toml\"]\n"
                                     "set = [\"run.evaluate_first=true\", \"at.student.optimizer.lr=1e-5\"]\n"
                                     "[[compare]]\narm = \"chain:begin\"\nminus = \"chain:teacher\"\n"
                                     "at_most = 0\nat_least = 0\nevery_seed = true\n");
  write_file(scratch_ / "tiny.toml", study);
  const Ended first = reproduce("s");
  ASSERT_EQ(first.status, 0) << first.err << first.out;
  const auto json = table("s");
  const auto& chain = json["arms"][1]["runs"][0]["stages"];
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[0]["updates"], 4);
  EXPECT_TRUE(chain[1]["transforms"].get<bool>());
  EXPECT_EQ(chain[0]["end"], chain[2]["begin"]) << "an identity changes nothing";
  EXPECT_EQ(chain[1]["end"], chain[2]["begin"]);
  EXPECT_EQ(chain[0]["parameters"], json["arms"][1]["parameters"]);
  EXPECT_EQ(chain[1]["parameters"], chain[0]["parameters"]);
  EXPECT_TRUE(json["differences"][0]["met"].get<bool>());
  EXPECT_THAT(read_file(scratch_ / "s/table.md"), ::testing::HasSubstr("| chain | copy (transform) |"));
  std::size_t teachers = 0;
  for (const auto& entry : fs::directory_iterator(scratch_ / "s/stages")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("teacher-") && !name.ends_with(".lock")) ++teachers;
  }
  EXPECT_EQ(teachers, 2u) << "one per seed";

  const Ended again = reproduce("s");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, ::testing::HasSubstr("reproduce: 6 runs kept, 0 to continue, 0 to start\n"));

  // An earlier stage that changes makes everything after it another run.
  write_file(scratch_ / "chain.toml", replaced(read_file(scratch_ / "chain.toml"), "steps = 4", "steps = 5"));
  const Ended changed = reproduce("s");
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_THAT(changed.err,
              ::testing::HasSubstr("reproduce: chain seed 1 starts again: attempt 1 is of another "
                                   "configuration: stage teacher is another\n"));
  EXPECT_THAT(changed.err, ::testing::HasSubstr("reproduce: 2 runs kept, 0 to continue, 4 to start\n"));

  // Without its last stage a run continues there.
  const fs::path student = fs::read_symlink(scratch_ / "s/runs/chain/1/2/03-student");
  fs::remove_all(student);
  fs::remove(scratch_ / "s/runs/chain/1/2/summary.json");
  const Ended rest = reproduce("s");
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, ::testing::HasSubstr("reproduce: 5 runs kept, 1 to continue, 0 to start\n"));

  write_file(scratch_ / "chain.toml",
             "[[stage]]\nname = \"teacher\"\n[[stage]]\nname = \"copy\"\ntransform = \"identity\"\n");
  write_file(scratch_ / "tiny.toml", replaced(study, ", \"at.student.optimizer.lr=1e-5\"", ""));
  EXPECT_THAT(
      reproduce("s").err,
      ::testing::HasSubstr("stage 'copy' is the last and a transform, which has no metrics; end with a "
                           "stage that trains"));
}

// A search, the ranks that it is tried by, an arm that follows the best one, and what decoding takes.
TEST_F(Reproduce, TriesTheRanksOfASearchAndLetsTheBestGoOn) {
  write_file(
      scratch_ / "large.toml",
      "[run]\nname = \"x\"\nevaluate_first = true\n[device]\ntype = \"cpu\"\nthreads = 1\n"
      "[data]\ntype = \"text\"\npath = \"text.txt\"\ncontext = 16\nbatch = 2\n"
      "[model]\ntype = \"decoder\"\npattern = \"*-\"\nwidth = 16\nheads = 2\nhead_width = 8\nhidden = 24\n"
      "ffn = \"gelu\"\n[optimizer]\ntype = \"adamw\"\nlr = 1e-2\n[recovery]\ntype = \"full\"\n");
  const std::string stages =
      "[transform]\nsamples = 4\n[transform.data]\ntype = \"text\"\npath = \"text.txt\"\ncontext = 16\nbatch "
      "= 2\n"
      "[[transform.search]]\nwidth = [8, 12]\nhidden = [8, 16, 24]\nmemory_limit = 40000\ncontext = 16\n"
      "[[stage]]\nname = \"train\"\n[[stage]]\nname = \"width\"\ntransform = \"minitron\"\n"
      "[[stage]]\nname = \"short\"\nmodel = \"width\"\n";
  write_file(scratch_ / "short.toml", "extends = [\"large.toml\"]\n" + stages);
  write_file(scratch_ / "long.toml",
             "extends = [\"large.toml\"]\n" + stages + "[[stage]]\nname = \"long\"\nmodel = \"width\"\n");
  const std::string study =
      "title = \"t\"\npaper = \"none\"\nquestion = \"?\"\nbase = \"large.toml\"\nbaseline = \"one\"\n"
      "[size.quick]\nsteps = 3\nseeds = [1]\n[size.default]\nsteps = 3\nseeds = [1]\n"
      "[search]\narm = \"one\"\nstage = \"width\"\nranks = 2\nthen = [\"rest\"]\n"
      "[decode]\ncontexts = [16]\narms = [\"rest\"]\ntokens = 4\n"
      "[[arm]]\nname = \"one\"\nextends = [\"short.toml\"]\n"
      "[[arm]]\nname = \"rest\"\nextends = [\"long.toml\"]\n";
  write_file(scratch_ / "tiny.toml", study);
  const Ended ended = reproduce("found");
  ASSERT_EQ(ended.status, 0) << ended.err << ended.out;
  const auto json = table("found");
  const auto& search = json["search"];
  EXPECT_EQ(search["enumerated"], 6);
  ASSERT_GE(search["shapes"].size(), 2u);
  EXPECT_LE(search["shapes"][0]["loss"], search["shapes"][1]["loss"]);
  const bool first = search["shapes"][0]["trained"] <= search["shapes"][1]["trained"];
  EXPECT_EQ(search["best"], first ? 1 : 2);
  ASSERT_EQ(json["arms"].size(), 3u);
  EXPECT_EQ(json["arms"][0]["name"], "one.1");
  EXPECT_EQ(json["arms"][2]["parameters"], search["shapes"][first ? 0 : 1]["parameters"]);
  // The bytes of the closed form are those that were measured, up to rounding.
  const double measured =
      json["decoding"][0]["kept_bytes"].get<double>() + json["decoding"][0]["weight_bytes"].get<double>();
  EXPECT_NEAR(search["shapes"][first ? 0 : 1]["memory"].get<double>(), measured, 256);
  EXPECT_THAT(read_file(scratch_ / "found/table.md"), ::testing::HasSubstr("Memory limit: 40,000 bytes."));
  const Ended again = reproduce("found");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, ::testing::HasSubstr("reproduce: 3 runs kept, 0 to continue, 0 to start\n"));

  write_file(scratch_ / "tiny.toml", replaced(study, "seeds = [1]\n[search]", "seeds = [1, 2]\n[search]"));
  EXPECT_THAT(reproduce("found").err,
              ::testing::HasSubstr("size.default.seeds: the shapes that a search finds are those of "
                                   "one seed's model; give one seed"));
  write_file(scratch_ / "tiny.toml", study);
  write_file(scratch_ / "short.toml",
             replaced(read_file(scratch_ / "short.toml"), "memory_limit = 40000", "memory_limit = 900"));
  EXPECT_NE(reproduce("none").status, 0);
  EXPECT_THAT(read_file(scratch_ / "none/runs/one.1/1/output.log"),
              ::testing::HasSubstr("none of 6 shapes is within the bounds: at most 900 bytes"));
}

TEST_F(Reproduce, AFailureIsTheTablesAndNamesNoFolderOfTheMachine) {
  const auto with = [](const char* name, const char* more) {
    return std::string("\n[[arm]]\nname = \"") + name + "\"\n" + more +
           "set = [\"precision.type=fp16\", \"precision.loss_scale=static\", \"precision.scale=1e15\", "
           "\"precision.patience=2\"]\n";
  };
  write_file(scratch_ / "tiny.toml", kStudy + with("wanted", "may_fail = true\n") + with("unwanted", ""));
  const Ended ended = reproduce("d", {"--quick"});
  EXPECT_EQ(ended.status, 1) << "an arm failed that may not";
  const std::string text = read_file(scratch_ / "d/table.md");
  EXPECT_THAT(text, ::testing::HasSubstr("- wanted, seed 1: failed: plugin tenon.precision_fp16"));
  EXPECT_THAT(text,
              ::testing::HasSubstr("- unwanted seed 1: exit status 1, log in runs/unwanted/1/output.log"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("log in runs/wanted")));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr(scratch_.folder().string())));
}

TEST_F(Reproduce, WhatCannotRunIsRefusedBeforeAnyRun) {
  const Ended cuda = reproduce("c", {"--cuda"});
  EXPECT_EQ(cuda.status, 2);
  EXPECT_THAT(cuda.err,
              ::testing::HasSubstr("tiny at size cuda cannot run here, and nothing was started. Arm 'fp32': "
                                   "--set device.type=cuda: there is no device.cuda"));
  EXPECT_FALSE(fs::exists(scratch_ / "c/runs"));
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"reproduce", "tiny.toml", "--full"},
       "tenon: tenon reproduce: tiny has no size 'full' (see tiny.toml)\n"},
      {{"reproduce", "tiny.toml", "--full", "--quick"},
       "tenon: tenon reproduce: --quick and --full are two sizes; give one\n"},
      {{"reproduce", "tiny.toml", "--jobs", "0"}, "tenon: --jobs is 0; expected at least 1\n"},
      {{"reproduce", "tiny.toml", "other"},
       "tenon: tenon reproduce: too many words; usage: tenon reproduce [NAME] [options]\n"},
  };
  for (const auto& c : cases) {
    const Ended ended = scratch_.run(c.arguments);
    EXPECT_EQ(ended.status, 2);
    EXPECT_EQ(ended.err, c.message);
  }
}

// A study that simulates its data, trains on it on one rank and on two, and is measured on other states.
TEST_F(Reproduce, SimulatesItsDataBeforeTheRunsAndMeasuresThemElsewhere) {
  write_file(scratch_ / "flow.toml", "[simulate]\nsamples = 4\n[simulator]\ntype = \"buckley_leverett\"\n");
  write_file(scratch_ / "learn.toml",
             "[run]\nname = \"x\"\nlog_every = 1\n[device]\ntype = \"cpu\"\nthreads = 1\n"
             "[data]\ntype = \"simulated\"\npath = \"nowhere\"\ninputs = [\"x=initial\"]\n"
             "targets = [\"y=saturation\"]\nval_fraction = 0.4\nbatch = 2\n"
             "[model]\ntype = \"fno\"\nwidth = 4\nmodes = [4]\nlayers = 1\n[precision]\ntype = \"fp32\"\n"
             "[optimizer]\ntype = \"adamw\"\n[recovery]\ntype = \"full\"\n");
  const std::string study =
      "title = \"Flow\"\npaper = \"none\"\nquestion = \"?\"\nbase = \"learn.toml\"\nbaseline = \"one\"\n"
      "[simulate]\nconfig = \"flow.toml\"\nset = [\"simulator.cells=20\", \"simulator.snapshots=3\"]\n"
      "[size.quick]\nsteps = 3\nseeds = [1]\nsimulate = [\"simulate.samples=8\"]\n"
      "[size.default]\nsteps = 3\nseeds = [1]\n"
      "[[evaluate]]\nname = \"all of them\"\nset = [\"data.val_fraction=0.8\", \"data.batch=1\"]\narms = "
      "[\"one\"]\n"
      "[[agree]]\narm = \"two\"\nwith = \"one\"\nupdates = 3\n"
      "[[arm]]\nname = \"one\"\n"
      "[[arm]]\nname = \"two\"\nset = [\"parallel.grid=[2]\", \"transport.type=thread\", "
      "\"model.insert=[{after='x', name='spread', type='repartition', dims=[2], axes=[0]}, "
      "{after='y', name='targets', type='repartition', dims=[2], axes=[0]}]\"]\n";
  write_file(scratch_ / "tiny.toml", study);
  const Ended first = reproduce("flow", {"--quick"});
  ASSERT_EQ(first.status, 0) << first.err << first.out;
  const auto json = table("flow");
  EXPECT_THAT(json["provenance"]["simulation"].get<std::string>(),
              ::testing::StartsWith("buckley_leverett (seed 1), 8 of 8 samples, 0 failed, in "));
  EXPECT_THAT(read_file(scratch_ / "flow/table.md"), ::testing::HasSubstr("path = \"flow/simulation\""));
  ASSERT_EQ(json["evaluations"][0]["runs"].size(), 1u);
  EXPECT_GT(json["evaluations"][0]["runs"][0]["value"], 0);
  EXPECT_NE(json["evaluations"][0]["runs"][0]["value"], json["arms"][0]["value"]["mean"]);
  EXPECT_EQ(json["agreements"][0]["seeds"], 1);
  EXPECT_LT(json["agreements"][0]["largest_relative_difference"], 1e-4);

  const auto before = tree(scratch_ / "flow/simulation");
  const Ended again = reproduce("flow", {"--quick"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, ::testing::HasSubstr("reproduce: 2 runs kept, 0 to continue, 0 to start\n"));
  EXPECT_EQ(changes(scratch_ / "flow/simulation", before), std::vector<std::string>());

  write_file(scratch_ / "tiny.toml", replaced(study, "cells=20", "cells=30"));
  const Ended other = reproduce("flow", {"--quick"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err,
              ::testing::HasSubstr("the data of tiny at size quick could not be simulated: exit status "));
  EXPECT_THAT(other.err, ::testing::HasSubstr("cells"));
}

TEST_F(Reproduce, ListsTheShippedStudies) {
  const Ended text = scratch_.run({"reproduce"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out,
              ::testing::HasSubstr("nvfp4-ablation\n  NVFP4 training: what each technique is worth\n"));
  const Ended json = scratch_.run({"reproduce", "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  const auto parsed = nlohmann::json::parse(json.out);
  ASSERT_GE(parsed["studies"].size(), 2u);
  EXPECT_GE(parsed["studies"][0]["sizes"].size(), 3u);
}

}  // namespace
}  // namespace tenon::integration::reproduce_test
