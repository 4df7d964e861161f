// `tenon fuzz` on the program itself: planted bugs of an outside plugin are found, shrunk, kept and found
// again by --replay; what is sound passes; wrong input is refused with a text.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <set>

namespace tenon::integration::fuzz_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Found {
  json report;
  int status = -1;
  std::string err;

  /// The identity that the first failure breaks.
  std::string identity() const {
    return report.at("failures").empty() ? "" : report.at("failures")[0].at("identity").get<std::string>();
  }
  fs::path folder(const Scratch& scratch) const {
    return scratch.folder() / report.at("failures")[0].at("case").get<std::string>();
  }
};

class FuzzCommand : public ::testing::Test {
 protected:
  void write_run(const std::string& bug) const {
    write_file(
        scratch_ / "run.toml",
        replaced(replaced(Scratch::kRun, "type = \"adamw\"", "type = \"faulty\"\nbug = \"" + bug + "\""),
                 "[run]", "plugins.paths = [\"" TENON_FUZZ_FIXTURE "\"]\n[run]"));
  }
  /// Varies schedules alone, so that the optimizer stays.
  Found fuzz(std::vector<std::string> more) const {
    std::vector<std::string> words{"fuzz", "--base", "run.toml", "--kinds", "schedule", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    Child child({.arguments = words, .folder = scratch_.folder()});
    const Ended ended = child.wait(250);
    return {json::parse(ended.out, nullptr, false), ended.status, ended.err};
  }

  Scratch scratch_;
};

TEST_F(FuzzCommand, ASoundPluginPasses) {
  write_run("none");
  const Found found = fuzz({"--count", "8", "--seed", "5"});
  EXPECT_EQ(found.status, 0) << found.report.dump(1) << found.err;
  ASSERT_TRUE(found.report.is_object()) << found.err;
  EXPECT_EQ(found.report.at("compositions"), 8);
  EXPECT_GT(found.report.at("trained"), 5);
  EXPECT_THAT(read_file(scratch_ / "fuzz/report.html"), HasSubstr("optimizer.faulty"));
}

TEST_F(FuzzCommand, FindsPlantedBugsByTheIdentityThatTheyBreak) {
  const struct {
    const char* bug;
    std::vector<std::string> identities;
    const char* text = "";
  } cases[] = {
      {"weights", {"repetition", "resolved", "order", "layers", "observers", "plugin_twice"}},
      {"state", {"repetition", "resolved", "order", "layers", "observers", "plugin_twice"}},
      {"crash", {"process"}, "signal 11"},
      {"late", {"trains"}, "refused late"},
      {"stated", {"stated"}},
  };
  for (const auto& it : cases) {
    write_run(it.bug);
    const Found found = fuzz({"--count", "2", "--shrink", "0", "--out", it.bug});
    ASSERT_TRUE(found.report.is_object()) << it.bug << found.err;
    EXPECT_EQ(found.status, 1) << it.bug;
    EXPECT_THAT(it.identities, ::testing::Contains(found.identity())) << it.bug << found.report.dump(1);
    EXPECT_THAT(found.report.at("failures").dump(), HasSubstr(it.text));
  }
}

TEST_F(FuzzCommand, ShrinksAndKeepsACaseThatReplayFindsAgain) {
  write_run("weights");
  const Found found =
      fuzz({"--count", "3", "--failures", "1", "--jobs", "1", "--out", "first", "--shrink", "100"});
  ASSERT_EQ(found.status, 1) << found.err;
  EXPECT_EQ(found.report.at("compositions"), 1);
  const std::string text = read_file(found.folder(scratch_) / "case.toml");
  EXPECT_THAT(text, AllOf(HasSubstr("# identity: "), HasSubstr("# see: tenon train case.toml --run-dir a"),
                          HasSubstr("bug = \"weights\"")));
  EXPECT_LE(found.report.at("failures")[0].at("lines"), 25) << text;
  int summaries = 0, checkpoints = 0;
  for (const auto& entry : fs::recursive_directory_iterator(found.folder(scratch_) / "records")) {
    summaries += entry.path().filename() == "summary.json" ? 1 : 0;
    checkpoints += entry.path().filename() == "checkpoints" ? 1 : 0;
  }
  EXPECT_GT(summaries, 0) << "what the runs wrote before the case was made smaller";
  EXPECT_EQ(checkpoints, 0);
  const Ended again =
      scratch_.run({"fuzz", "--count", "0", "--replay", "first", "--out", "second", "--json"});
  const json report = json::parse(again.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << again.err;
  EXPECT_EQ(again.status, 1);
  EXPECT_EQ(report.at("failures").size(), 1u);
  EXPECT_EQ(report.at("failures")[0].at("identity"), found.identity());
  // Mended, the old case holds.
  write_file(found.folder(scratch_) / "case.toml", replaced(text, "bug = \"weights\"", "bug = \"none\""));
  EXPECT_EQ(scratch_.run({"fuzz", "--count", "0", "--replay", "first", "--out", "third"}).status, 0);
}

TEST_F(FuzzCommand, FindsANumberThatIsNotInCheckpoints) {
  write_run("unsaved");
  const Found found = fuzz({"--count", "12", "--seed", "2", "--shrink", "0"});
  ASSERT_TRUE(found.report.is_object()) << found.err;
  std::set<std::string> identities;
  for (const json& failure : found.report.at("failures")) identities.insert(failure.at("identity"));
  for (const std::string& identity : identities)
    EXPECT_THAT((std::vector<std::string>{"crash", "sigterm", "resume_twice", "transport_resume"}),
                ::testing::Contains(identity));
  EXPECT_FALSE(identities.empty());
}

/// A run that learns from answers which it draws itself; where a gradient is 0 it is updated by 0 / 0.
constexpr const char* kAnswers = R"([run]
steps = 4
on_nan = "continue"
[device]
type = "cpu"
[model]
type = "gpt_neo"
layers = 1
width = 4
heads = 1
objective = "policy"
[optimizer]
type = "adamw"
eps = 0.0
[data]
type = "rollouts"
path = "sums.jsonl"
context = 16
batch = 2
answers = 2
answer_tokens = 4
[data.reward]
type = "exact"
[data.conversations]
type = "conversations"
path = "sums.jsonl"
context = 16
batch = 2
val_fraction = 0.5
[data.conversations.template.user]
after = "="
[data.conversations.template.assistant]
after = "\n"
)";

std::string sums() {
  std::string lines;
  for (int i = 0; i < 16; ++i) {
    const std::string answer = std::to_string(i + 1);
    const json said = {{{"role", "user"}, {"content", std::to_string(i) + "+1"}},
                       {{"role", "assistant"}, {"content", answer}}};
    lines += json{{"messages", said}, {"check", "number"}, {"answer", answer}}.dump() + "\n";
  }
  return lines;
}

/// A run that legal options make diverge ends as the loop or a component decides, which is no finding.
TEST_F(FuzzCommand, TrainingThatDivergesNeedNotEnd) {
  write_file(scratch_ / "sums.jsonl", sums());
  const std::string goes_on = replaced(Scratch::kRun, "[run]", "[run]\non_nan = \"continue\"");
  const struct {
    const char* words;
    std::string text;
  } cases[] = {
      {"training diverged again",
       replaced(replaced(goes_on, "lr = 1e-2", "lr = 1e30"), "type = \"full\"",
                "type = \"spike_guard\"\nretries = 0\n[recovery.inner]\ntype = \"full\"")},
      {"gradients were not finite",
       goes_on + "[precision]\ntype = \"fp16\"\nloss_scale = \"static\"\nscale = 1e15\npatience = 1\n"},
      {"loss is ", replaced(Scratch::kRun, "lr = 1e-2", "lr = 1e30")},
      {"the weights are not usable", kAnswers},
  };
  for (const auto& [words, text] : cases) {
    SCOPED_TRACE(words);
    write_file(scratch_ / "run.toml", text);
    const Ended run = scratch_.train();
    ASSERT_EQ(run.status, 1);
    ASSERT_THAT(run.err, HasSubstr(words));
    write_file(scratch_ / "old/one/case.toml", "# identity: trains\n# seed: 1\n# composition: 1\n" + text);
    const Ended ended = scratch_.run({"fuzz", "--count", "0", "--replay", "old"});
    EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  }
}

/// Segments name the folder of their run in their first bytes.
TEST_F(FuzzCommand, RowsInSharedMemoryEndWithTheirJudgement) {
  write_file(scratch_ / "old/one/case.toml", "# identity: repetition\n# seed: 1\n# composition: 1\n" +
                                                 clicks_run() +
                                                 "[[tables.place]]\nmatch = \"*\"\ntier = {type = "
                                                 "\"shared\"}\n[[fault]]\nrank = 0\nstep = 3\nkind = "
                                                 "\"crash\"\n");
  const std::string folder = fs::canonical(scratch_.folder()).string();
  const auto segments = [&] {
    std::vector<fs::path> mine;
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      if (entry.path().filename().string().starts_with("tenon.") &&
          read_file(entry.path()).substr(0, 4096).find(folder) != std::string::npos)
        mine.push_back(entry.path());
    }
    return mine;
  };
  ASSERT_EQ(scratch_.run({"train", "old/one/case.toml", "--quiet", "--run-dir", "mine"}).status, 1);
  const std::vector<fs::path> of_a_run = segments();
  EXPECT_FALSE(of_a_run.empty()) << "they outlive a run that fails";
  const Ended ended = scratch_.run({"fuzz", "--count", "0", "--replay", "old"});
  EXPECT_EQ(ended.status, 1) << ended.err;
  EXPECT_EQ(segments().size(), of_a_run.size());
  for (const fs::path& segment : of_a_run) fs::remove(segment);
}

TEST_F(FuzzCommand, FindsAnObserverThatChangesWhatItSees) {
  write_file(scratch_ / "run.toml",
             replaced(Scratch::kRun, "[run]", "plugins.paths = [\"" TENON_NOSY "\"]\n[run]"));
  const Found found = fuzz({"--count", "12", "--failures", "1", "--shrink", "0"});
  ASSERT_TRUE(found.report.is_object()) << found.err;
  EXPECT_EQ(found.identity(), "observers") << found.report.dump(1);
}

TEST_F(FuzzCommand, WrongInputIsRefused) {
  write_run("none");
  const struct {
    std::vector<std::string> words;
    const char* text;
  } cases[] = {
      {{"--kinds", "synk"}, "tenon fuzz: --kinds: 'synk' is none of device, precision, "},
      {{"--count", "-1"}, "tenon fuzz: --count -1: expected 0 to 1000000 compositions"},
      {{"--seconds", "-2"}, "tenon fuzz: --seconds -2: expected a time of 0 s or more"},
      {{"--seconds", "nan"}, "expected a time of 0 s or more"},
      {{"--failures", "-1"}, "tenon fuzz: --failures -1: expected 0 or more"},
      {{"--shrink", "-1"}, "tenon fuzz: --shrink -1: expected a time of 0 s or more"},
      {{"--seed", "-3"}, "tenon fuzz: --seed -3: expected 0 or more"},
      {{"--jobs", "5000"}, "tenon fuzz: --jobs 5000: expected 0 to 1024"},
      {{"--out", ""}, "tenon fuzz: --out needs the name of a folder"},
      {{"--out", "run.toml"}, "tenon fuzz: --out run.toml: "},
      {{"--replay", "absent"}, "tenon fuzz: --replay absent: there is no */case.toml in it"},
      {{"--base", "absent.toml"}, "absent.toml"},
      {{"--judge", "absent.json"}, "tenon fuzz: absent.json is no request to judge"},
  };
  for (const auto& it : cases) {
    std::vector<std::string> words{"fuzz"};
    words.insert(words.end(), it.words.begin(), it.words.end());
    const Ended ended = scratch_.run(words);
    EXPECT_EQ(ended.status, 2) << it.text;
    EXPECT_THAT(ended.err, HasSubstr(it.text));
  }
  fs::create_directories(scratch_ / "cases/one");
  write_file(scratch_ / "cases/one/case.toml", "# identity: repetition\n# seed: x\n[run]\n");
  EXPECT_THAT(
      scratch_.run({"fuzz", "--replay", "cases"}).err,
      HasSubstr("expected a line '# seed: NUMBER' before the run, as tenon fuzz writes it; found 'x'"));
}

}  // namespace
}  // namespace tenon::integration::fuzz_test
