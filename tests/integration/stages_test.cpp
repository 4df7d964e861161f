// [[stage]]: a file of several runs, each of which begins with the weights of an earlier one; interrupted
// anywhere they end in the same bits, and studies train equal ones once.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <random>

namespace tenon::integration::stages_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kStages = R"(
[[stage]]
name = "first"
set = ["run.steps=4"]

[[stage]]
name = "second"
set = ["optimizer.lr=1e-3"]

[[stage]]
name = "third"
init = "first"
set = ["run.steps=3", "run.seed_order=9"]
)";

class Stages : public ::testing::Test {
 protected:
  Stages() { write_file(scratch_ / "staged.toml", read_file(scratch_ / "run.toml") + kStages); }
  Ended train(const std::string& folder, std::vector<std::string> more = {},
              const std::map<std::string, std::string>& environment = {}) const {
    more.insert(more.begin(), {"train", "staged.toml", "--quiet", "--run-dir", folder});
    return scratch_.run(more, environment);
  }
  json summary(const std::string& folder) const {
    return json::parse(read_file(scratch_ / (folder + "/summary.json")));
  }
  std::string hash(const std::string& folder) const { return summary(folder).at("weights_hash"); }

  Scratch scratch_;
};

TEST_F(Stages, AreTheRunsThatTheyAreAlone) {
  const Ended ended = train("all");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(summary("all/1/01-first/1")["steps"], 4);
  EXPECT_EQ(summary("all/1/02-second/1")["steps"], 6);
  EXPECT_EQ(summary("all/1/03-third/1")["steps"], 3);
  // One by one, by hand.
  const auto alone = [&](const char* folder, std::vector<std::string> sets) {
    sets.insert(sets.begin(), {"--run-dir", folder});
    const Ended run = scratch_.train(sets);
    EXPECT_EQ(run.status, 0) << run.err;
    return hash(std::string(folder) + "/1");
  };
  EXPECT_EQ(alone("a", {"--set", "run.steps=4"}), hash("all/1/01-first/1"));
  EXPECT_EQ(alone("b", {"--set", "optimizer.lr=1e-3", "--set", "init.from=a"}), hash("all/1/02-second/1"));
  EXPECT_EQ(alone("c", {"--set", "run.steps=3", "--set", "run.seed_order=9", "--set", "init.from=a"}),
            hash("all/1/03-third/1"));
  // The attempt stands for its last stage: in commands, and for a run that begins with it.
  EXPECT_EQ(hash("all/1"), hash("all/1/03-third/1"));
  const Ended evaluated = scratch_.run({"evaluate", "all"});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
  EXPECT_EQ(alone("d", {"--set", "init.from=all", "--set", "run.steps=1", "--set", "optimizer.lr=0"}),
            hash("all/1"));
  // What [at.NAME] says reaches one stage; a value of the file reaches those that do not say it themselves.
  const Ended changed = train("changed", {"--set", "at.third.run.steps=5", "--set", "run.steps=2"});
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_EQ(hash("changed/1/01-first/1"), hash("all/1/01-first/1"));
  EXPECT_EQ(summary("changed/1/02-second/1")["steps"], 2);
  EXPECT_EQ(summary("changed/1/03-third/1")["steps"], 5);
}

TEST_F(Stages, InterruptedAnywhereEndInTheSameBits) {
  ASSERT_EQ(train("whole").status, 0);
  std::minstd_rand draws(7);
  int kills = 0;
  for (const std::string phase : {"compute", "write", "rename"}) {
    // Each attempt ends at a random place of the stage that is running.
    for (int attempt = 0; attempt < 16; ++attempt) {
      const int count = std::uniform_int_distribution<int>(1, 3)(draws);
      std::vector<std::string> words = {"--set", "recovery.every=1"};
      if (attempt > 0) words.emplace_back("--resume");
      const Ended ended = train(phase, words, {{"TENON_KILL_AT", phase + ":" + std::to_string(count)}});
      if (ended.status == 0) break;
      ASSERT_EQ(ended.signal, SIGKILL) << ended.err;
      ++kills;
    }
    const Ended ended = train(phase, {"--set", "recovery.every=1", "--resume"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(hash(phase + "/1"), hash("whole/1")) << phase;
  }
  EXPECT_GE(kills, 20);
  // A stage that is complete is not trained again, so it must be the one that the file describes.
  const Ended other = train("compute", {"--set", "at.first.optimizer.lr=0.5", "--resume"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("stage \"first\" is complete, with another configuration"));
}

TEST_F(Stages, OfEqualConfigurationAreTrainedOnceBelowOneFolder) {
  ASSERT_EQ(train("a", {"--stages", "shared"}).status, 0);
  ASSERT_EQ(train("b", {"--stages", "shared", "--set", "at.third.optimizer.lr=1e-4"}).status, 0);
  ASSERT_EQ(train("c", {"--stages", "shared", "--set", "run.seed=5"}).status, 0);
  // Two stages of one configuration are two where they begin with others.
  ASSERT_EQ(train("d", {"--stages", "shared", "--set", "at.first.optimizer.lr=5e-3"}).status, 0);
  int first = 0, second = 0, third = 0;
  for (const auto& entry : fs::directory_iterator(scratch_ / "shared")) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename();
    first += name.starts_with("first-");
    second += name.starts_with("second-");
    third += name.starts_with("third-");
  }
  EXPECT_EQ(first, 3) << "two of one seed, for their rates, and one of another";
  EXPECT_EQ(second, 3);
  EXPECT_EQ(third, 4);
  EXPECT_NE(hash("a/1"), hash("b/1"));
  EXPECT_EQ(hash("a/1/02-second/1"), hash("b/1/02-second/1"));
}

TEST_F(Stages, ThatArmsOfAStudyShareAreTrainedOncePerSeed) {
  const std::string run =
      replaced(read_file(scratch_ / "run.toml"), "log_every = 1\n", "log_every = 1\neval_batches = 4\n");
  write_file(scratch_ / "base.toml", run + replaced(kStages, "\"run.steps=3\", ", ""));
  std::string study = "base = \"base.toml\"\nseeds = [3, 4]\nmargin = 0.001\n[budget]\nsteps = 6\n";
  for (const char* rate : {"1e-3", "2e-3", "3e-3", "4e-3"})
    study +=
        std::string("[[arm]]\nname = \"at") + rate + "\"\nset = [\"at.third.optimizer.lr=" + rate + "\"]\n";
  write_file(scratch_ / "study.toml", study);
  const Ended ended = scratch_.run({"ab", "study.toml", "--out", "out", "--jobs", "2", "--json"});
  ASSERT_EQ(ended.status, 0) << ended.err << ended.out;
  std::map<std::string, int> trained;
  for (const auto& entry : fs::directory_iterator(scratch_ / "out/stages")) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename();
    ++trained[name.substr(0, name.find('-'))];
    EXPECT_FALSE(fs::exists(entry.path() / "2")) << name << " was trained twice";
  }
  EXPECT_EQ(trained, (std::map<std::string, int>{{"first", 2}, {"second", 2}, {"third", 8}}));
  EXPECT_EQ(json::parse(ended.out)["arms"].size(), 3u) << "beside the baseline";
}

TEST_F(Stages, MayTransformModelsOfEarlierOnes) {
  write_file(scratch_ / "mixed.toml", read_file(scratch_ / "run.toml") + kStages + R"(
[[stage]]
name = "mix"
transform = "merge"
set = ['transform.from=["stage:second", "stage:third"]', "transform.weights=[0.5, 0.5]"]

[[stage]]
name = "last"
set = ["run.steps=2"]

[[stage]]
name = "copy"
transform = "identity"
)");
  const Ended ended = scratch_.run({"train", "mixed.toml", "--quiet", "--run-dir", "mixed"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const std::string copy = read_file(scratch_ / "mixed/1/06-copy/model.toml");
  EXPECT_THAT(copy, HasSubstr(hash("mixed/1/05-last/1"))) << "a copy has the hash of its source";
  const std::string mix = read_file(scratch_ / "mixed/1/04-mix/model.toml");
  const json last = json::parse(read_file(scratch_ / "mixed/1/05-last/1/manifest.json"));
  EXPECT_THAT(mix, HasSubstr(last["init"]["digest"].get<std::string>()));
  // The attempt is the copy: another run begins with it.
  const Ended next = scratch_.train(
      {"--run-dir", "next", "--set", "init.from=mixed", "--set", "run.steps=1", "--set", "optimizer.lr=0"});
  ASSERT_EQ(next.status, 0) << next.err;
  EXPECT_EQ(hash("next/1"), hash("mixed/1/05-last/1"));
  const Ended again = scratch_.run({"train", "mixed.toml", "--run-dir", "mixed", "--resume"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("stage 6 of 6: copy, complete already"));
  const Ended check = scratch_.run({"check", "mixed.toml"});
  EXPECT_EQ(check.status, 0) << check.err;
}

// A transform may decide what the model is: the stages after it have its [model], with their own laid over
// it.
TEST_F(Stages, MayHaveTheModelThatATransformMade) {
  const std::string file = read_file(scratch_ / "run.toml") + R"(
[[stage]]
name = "first"

[[stage]]
name = "apart"
transform = "untie"

[[stage]]
name = "second"
model = "apart"

[at.second.model]
clip = 0.5
)";
  write_file(scratch_ / "found.toml", file);
  const Ended check = scratch_.run({"check", "found.toml"});
  EXPECT_EQ(check.status, 0) << check.err;
  const Ended ended =
      scratch_.run({"train", "found.toml", "--quiet", "--run-dir", "found", "--stages", "shared"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const std::string second = read_file(scratch_ / "found/1/config.resolved.toml");
  EXPECT_THAT(second, AllOf(HasSubstr("[[model.override]]"), HasSubstr("clip = 0.5")));
  const Ended again = scratch_.run({"train", "found.toml", "--run-dir", "found", "--stages", "shared"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("stage 3 of 3: second, complete already"));
  // Without it the weights do not fit the file's model.
  write_file(scratch_ / "unsaid.toml", replaced(file, "model = \"apart\"\n", ""));
  EXPECT_THAT(scratch_.run({"train", "unsaid.toml", "--quiet", "--run-dir", "unsaid"}).err,
              HasSubstr("do not fit this model"));
}

TEST_F(Stages, MistakesAreNamedWithTheirPlace) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"[[stage]]\nset = []\n", "name"},
      {"[[stage]]\nname = \"a/b\"\n", "a name has letters"},
      {"[[stage]]\nname = \"a\"\n[[stage]]\nname = \"a\"\n", "two stages are called"},
      {"[[stage]]\nname = \"a\"\ninit = \"b\"\n[[stage]]\nname = \"b\"\n", "which comes later"},
      {"[[stage]]\nname = \"a\"\ninit = \"a\"\n", "which is itself"},
      {"[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\ninit = \"c\"\n", "there is no stage"},
      {"[[stage]]\nname = \"a\"\nset = [\"recovery.typ=1\"]\n", "recovery"},
      {"[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\nset = [\"optimizer.lrr=1\"]\n",
       "did you mean 'lr'"},
      {"[at.b.run]\nsteps = 1\n[[stage]]\nname = \"a\"\n", "[at.b]: there is no stage of that name"},
      {"[[stage]]\nname = \"a\"\nsteps = 3\n", "has no option 'steps'"},
      {"[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\nmodel = \"a\"\n",
       "model = \"a\": expected the name of an earlier stage that transforms"},
      {"[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\ntransform = \"identity\"\nmodel = \"a\"\n",
       "a transform makes its own model"},
      {"[[stage]]\nname = \"a\"\nextends = [\"nowhere.toml\"]\n", "nowhere.toml"},
  };
  for (const auto& c : cases) {
    write_file(scratch_ / "wrong.toml",
               replaced(read_file(scratch_ / "run.toml"), "\"tiny\"", "\"wrong\"") + "\n" + c.text);
    for (const char* command : {"check", "train"}) {
      const Ended ended = scratch_.run({command, "wrong.toml"});
      EXPECT_EQ(ended.status, 2) << c.text << ended.err;
      EXPECT_THAT(ended.err, AllOf(HasSubstr(c.says), HasSubstr("wrong.toml"))) << command;
    }
    EXPECT_FALSE(fs::exists(scratch_ / "runs/wrong")) << c.text;
  }
  // A later stage of another width is refused when its turn comes, and what was trained is kept.
  const Ended check = scratch_.run({"check", "staged.toml"});
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("stage 3 of 3: third"));
  const Ended planned = scratch_.run({"check", "staged.toml", "--set", "at.second.model.width=32"});
  EXPECT_EQ(planned.status, 2);
  EXPECT_THAT(planned.err, AllOf(HasSubstr("stage \"second\" begins with the weights of \"first\""),
                                 HasSubstr("is f32 [16] there and f32 [32] here")));
  // A stage that also reads its source in its graph can be built only once that is there.
  const std::string teacher =
      "at.second.model.insert=[{after=\"tokens\", name=\"t\", type=\"frozen\", model=\"stage:first\", "
      "inputs=[\"tokens\"]}]";
  const Ended reads = scratch_.run({"check", "staged.toml", "--set", teacher});
  EXPECT_EQ(reads.status, 0) << reads.err;
  EXPECT_THAT(reads.out, HasSubstr("reads other stages, so it is built when they are there"));
  const Ended wider = train("wider", {"--set", "at.second.model.width=32"});
  EXPECT_EQ(wider.status, 2);
  EXPECT_THAT(wider.err, HasSubstr("is f32 [16] there and f32 [32] here"));
  EXPECT_EQ(summary("wider/1/01-first/1")["status"], "completed");
}

}  // namespace
}  // namespace tenon::integration::stages_test
