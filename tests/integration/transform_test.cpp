// tenon transform as a user starts it: folders that runs begin with, equal bits and bytes, what is said
// before anything is written, and refusals that leave nothing.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

namespace tenon::integration::transform_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TransformCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const Ended ended = train("source", {});
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  Ended train(const std::string& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> words{"--run-dir", folder};
    words.insert(words.end(), more.begin(), more.end());
    return scratch_.train(words);
  }
  /// One slot that changes nothing, from the weights in `from`.
  Ended still(const std::string& folder, const std::string& from,
              const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"--set", "init.from=" + from, "--set", "run.steps=1",
                                   "--set", "optimizer.lr=0"};
    words.insert(words.end(), more.begin(), more.end());
    return train(folder, words);
  }
  /// A file with these lines in [transform].
  void write(const std::string& name, const std::string& lines) const {
    write_file(scratch_ / name, "[transform]\n" + lines);
  }
  Ended transform(const std::string& lines, const std::vector<std::string>& more = {}) const {
    write("t.toml", lines);
    std::vector<std::string> words{"transform", "t.toml"};
    words.insert(words.end(), more.begin(), more.end());
    return scratch_.run(words);
  }
  json summary(const std::string& folder) const {
    return json::parse(read_file(scratch_ / (folder + "/1/summary.json")));
  }
  std::string hash(const std::string& folder) const { return summary(folder).at("weights_hash"); }
  /// Names in the folder that a transform could have left.
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch_.folder())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("out") || name.find(".tmp") != std::string::npos) names.push_back(name);
    }
    return names;
  }

  Scratch scratch_;
};

TEST_F(TransformCommand, IdentityHasTheHashOfTheRunAndARunBeginsWithIt) {
  const Ended ended = transform("type = \"identity\"\nfrom = [\"source\"]\nto = \"out\"\n");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("source/1, checkpoint of step 6\n"), HasSubstr("identity: model gpt_neo, "),
                    HasSubstr("weights_hash " + hash("source") + "  ->  out\n")));
  ASSERT_EQ(still("after", "out").status, 0);
  EXPECT_EQ(hash("after"), hash("source"));
  const std::string made = read_file(scratch_ / "out/model.toml");
  EXPECT_THAT(made, AllOf(HasSubstr("transform = \"transform.identity\""), HasSubstr("source0_step = \"6\""),
                          HasSubstr("source0_digest = ")));
  // A folder as a source: equal files but for the origin.
  ASSERT_EQ(transform("type = \"identity\"\nfrom = [\"out\"]\n", {"-o", "out2"}).status, 0);
  EXPECT_EQ(read_file(scratch_ / "out2/model.safetensors"), read_file(scratch_ / "out/model.safetensors"));
}

TEST_F(TransformCommand, AnUntiedRunHasTheLossOfTheTiedOne) {
  ASSERT_EQ(transform("type = \"untie\"\nfrom = [\"source\"]\nto = \"out\"\n").status, 0);
  const std::string made = read_file(scratch_ / "out/model.toml");
  EXPECT_THAT(made, AllOf(HasSubstr("[[model.override]]"), HasSubstr("weight = \"lm_head.weight\"")));
  const std::vector<std::string> untied{"--set",
                                        "model.override=[{match='lm_head', weight='lm_head.weight'}]"};
  const Ended ended = still("untied", "out", untied);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(summary("untied")["metrics"]["val/loss"], summary("source")["metrics"]["val/loss"]);
  // The tied model refuses them, and training moves the two apart.
  EXPECT_THAT(still("refused", "out").err, HasSubstr("not in this model: lm_head.weight"));
  std::vector<std::string> moved = untied;
  moved.insert(moved.end(), {"--set", "init.from=out", "--set", "run.steps=2"});
  ASSERT_EQ(train("moved", moved).status, 0);
  ASSERT_EQ(train("tied", {"--set", "init.from=source", "--set", "run.steps=2"}).status, 0);
  EXPECT_NE(summary("moved")["metrics"]["val/loss"], summary("tied")["metrics"]["val/loss"]);
  const Ended again = transform("type = \"untie\"\nfrom = [\"out\"]\n", {"-o", "out_again"});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("has no tied head"));
}

TEST_F(TransformCommand, ATiedDecoderIsUntiedByItsOption) {
  const auto decoder = [](const char* tied) {
    return std::string("model={type='decoder', pattern='*-', width=16, heads=2, hidden=24, tied=") + tied +
           "}";
  };
  ASSERT_EQ(train("tied", {"--set", decoder("true")}).status, 0);
  ASSERT_EQ(transform("type = \"untie\"\nfrom = [\"tied\"]\nto = \"out\"\n").status, 0);
  const Ended ended = still("untied", "out", {"--set", decoder("false")});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(summary("untied")["metrics"]["val/loss"], summary("tied")["metrics"]["val/loss"]);
}

TEST_F(TransformCommand, MergeTakesSeveralStepsOfOneRun) {
  ASSERT_EQ(transform("type = \"merge\"\nfrom = [\"source\"]\nstep = [4, 6]\nto = \"out\"\n").status, 0);
  ASSERT_EQ(transform("type = \"merge\"\nfrom = [\"source\"]\nstep = [6, 6, 6]\nto = \"out_self\"\n").status,
            0);
  ASSERT_EQ(
      transform(
          "type = \"merge\"\nfrom = [\"source\"]\nstep = [4, 6]\nweights = [0.0, 2.0]\nto = \"out_last\"\n")
          .status,
      0);
  for (const char* folder : {"out", "out_self", "out_last"})
    ASSERT_EQ(still(std::string("after_") + folder, folder).status, 0) << folder;
  EXPECT_EQ(hash("after_out_self"), hash("source"));
  EXPECT_EQ(hash("after_out_last"), hash("source"));
  EXPECT_NE(hash("after_out"), hash("source"));
}

TEST_F(TransformCommand, ARunTakesRoundedValuesAndNoOtherType) {
  ASSERT_EQ(transform("type = \"cast\"\nfrom = [\"source\"]\ndtype = \"bf16\"\nto = \"out\"\n").status, 0);
  const Ended refused = still("after", "out");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("is bf16 [16] there and f32 [16] here"));
  const std::string back = "type = \"cast\"\nfrom = [\"out\"]\ndtype = \"f32\"\nto = \"out_back\"\n";
  const std::string at_once =
      "type = \"cast\"\nfrom = [\"source\"]\ndtype = \"f32\"\nthrough = \"bf16\"\nto = \"out_at_once\"\n";
  ASSERT_EQ(transform(back).status, 0);
  ASSERT_EQ(transform(at_once).status, 0);
  EXPECT_EQ(read_file(scratch_ / "out_back/model.safetensors"),
            read_file(scratch_ / "out_at_once/model.safetensors"));
  const Ended begun = still("rounded", "out_at_once");
  ASSERT_EQ(begun.status, 0) << begun.err;
  EXPECT_NE(hash("rounded"), hash("source"));
}

TEST_F(TransformCommand, CheckSaysTheSameAndWritesNothing) {
  write("t.toml", "type = \"cast\"\nfrom = [\"source\"]\ndtype = \"bf16\"\nto = \"out\"\n");
  const auto before = tree(scratch_.folder());
  const Ended check = scratch_.run({"check", "t.toml"});
  ASSERT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(changes(scratch_.folder(), before), ::testing::IsEmpty());
  const Ended made = scratch_.run({"transform", "t.toml"});
  ASSERT_EQ(made.status, 0) << made.err;
  ASSERT_THAT(check.out, ::testing::StartsWith("t.toml: ok\n"));
  EXPECT_THAT(made.out, ::testing::StartsWith(check.out.substr(check.out.find('\n') + 1)));
  const Ended again = scratch_.run({"check", "t.toml"});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("'out' exists; nothing is written over"));
  EXPECT_THAT(scratch_.run({"check", "t.toml", "--print"}).err,
              HasSubstr("tenon check: --print is for runs, and t.toml is a transform"));
}

TEST_F(TransformCommand, JsonHasTheResult) {
  const Ended ended =
      transform("type = \"identity\"\nfrom = [\"source\"]\nstep = [4]\nto = \"out\"\n", {"--json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json result = json::parse(ended.out);
  EXPECT_EQ(result["sources"][0]["step"], 4);
  EXPECT_EQ(result["model"], "gpt_neo");
  EXPECT_EQ(result["bytes"], 4 * result["elements"].get<std::int64_t>());
  EXPECT_EQ(result["weights_hash"].get<std::string>().size(), 32U);
  EXPECT_GT(fs::file_size(scratch_ / "out/model.safetensors"), result["bytes"].get<std::uintmax_t>());
}

TEST_F(TransformCommand, RefusalsSayWhyAndLeaveNothing) {
  ASSERT_EQ(transform("type = \"identity\"\nfrom = [\"source\"]\nto = \"model\"\n").status, 0);
  ASSERT_EQ(train("wide", {"--set", "model.width=32"}).status, 0);
  ASSERT_EQ(train("unsaved", {"--set", "recovery={type=\"none\"}"}).status, 0);
  fs::copy(scratch_ / "model", scratch_ / "damaged");
  std::fstream(scratch_ / "damaged/model.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-3, std::ios::end)
      .put('x');
  const struct {
    const char *lines, *words;
    int status;
  } cases[] = {
      {"type = \"identity\"\nfrom = [\"source\"]\nto = \"model\"\n",
       "'model' exists; nothing is written over", 2},
      {"type = \"identity\"\nfrom = [\"model\"]\nto = \"model\"\n", "never writes over its source", 2},
      {"type = \"identity\"\nfrom = [\"source\"]\nto = \"source/1/out\"\n", "is inside the source", 2},
      {"type = \"identity\"\nfrom = [\"nowhere\"]\nto = \"out\"\n", "nowhere", 2},
      {"type = \"identity\"\nfrom = [\"unsaved\"]\nto = \"out\"\n", "has no checkpoint", 2},
      {"type = \"identity\"\nfrom = [\"source\"]\nstep = [5]\nto = \"out\"\n", "has no checkpoint of step 5",
       2},
      {"type = \"identity\"\nfrom = [\"model\"]\nstep = [5]\nto = \"out\"\n",
       "model folder, which has no steps", 2},
      {"type = \"identity\"\nfrom = [\"damaged\"]\nto = \"out\"\n", "expected weights_hash", 1},
      {"type = \"identity\"\nfrom = [\"source\", \"model\"]\nto = \"out\"\n", "takes one model, found 2", 2},
      {"type = \"merge\"\nfrom = [\"source\", \"wide\"]\nto = \"out\"\n",
       "transformer.wpe.weight: f32 [16, 16] in ", 2},
      {"type = \"identiti\"\nfrom = [\"source\"]\nto = \"out\"\n", "did you mean", 2},
      {"type = \"cast\"\nfrom = [\"source\"]\ndtype = \"int8\"\nto = \"out\"\n", "int8", 2},
      {"type = \"identity\"\nfrom = [\"source\"]\nto = \"run.toml/out\"\n", "run.toml", 1},
  };
  for (const auto& c : cases) {
    const Ended ended = transform(c.lines);
    EXPECT_EQ(ended.status, c.status) << c.lines << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(c.words)) << c.lines;
    EXPECT_THAT(left(), ::testing::IsEmpty()) << c.lines;
  }
  EXPECT_THAT(scratch_.run({"transform"}).err, HasSubstr("tenon transform: which CONFIG?"));
  EXPECT_THAT(scratch_.run({"transform", "run.toml"}).err, HasSubstr("there is no table [transform]"));
}

TEST_F(TransformCommand, AStageOfARunTransformsTheOneBefore) {
  write_file(scratch_ / "staged.toml",
             "extends = [\"run.toml\"]\n[run]\nname = \"staged\"\n[transform]\nweights = [0.0, 1.0]\n"
             "[[stage]]\nname = \"first\"\n"
             "[[stage]]\nname = \"mixed\"\ntransform = \"merge\"\nset = [\"transform.step=[4, 6]\"]\n"
             "[[stage]]\nname = \"last\"\nset = [\"run.steps=1\", \"optimizer.lr=0\"]\n");
  const Ended check = scratch_.run({"check", "staged.toml"});
  EXPECT_EQ(check.status, 0) << check.err;
  const Ended ended = scratch_.run({"train", "staged.toml", "--quiet"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(read_file(scratch_ / "runs/staged/1/02-mixed/model.toml"),
              HasSubstr("transform = \"transform.merge\""));
  const json last = json::parse(read_file(scratch_ / "runs/staged/1/03-last/1/summary.json"));
  const json first = json::parse(read_file(scratch_ / "runs/staged/1/01-first/1/summary.json"));
  EXPECT_EQ(last.at("weights_hash"), first.at("weights_hash"));
}

TEST_F(TransformCommand, AFullDiskLeavesNoFolder) {
  write("t.toml", "type = \"identity\"\nfrom = [\"source\"]\nto = \"out\"\n");
  const Ended ended = Child({{"transform", "t.toml"}, scratch_.folder(), {}, 2000}).wait();
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("File too large"));
  EXPECT_THAT(left(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tenon::integration::transform_test
