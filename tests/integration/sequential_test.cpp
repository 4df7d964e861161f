// Sequential studies with real runs of a fraction of a second: an early end, interruptions at random moments,
// a proposal, and the loop of docs/questions.md.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <random>
#include <sstream>
#include <thread>

namespace tenon::integration::sequential_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kStudy = R"(base = "run.toml"
seeds = { from = 3 }
margin = 0.001

[sequential]
max_seeds = 12
first_look = 4
block = 2

[budget]
steps = 6

[[arm]]
name = "base"

[[arm]]
name = "slow"
set = ["optimizer.lr=1e-4"]

[[arm]]
name = "near"
set = ["optimizer.lr=1.02e-2"]
)";

/// The tiny run with a value of val/loss at its end, and without the checkpoints that it waits for.
std::string run_with_evaluations() {
  const std::string run =
      replaced(Scratch::kRun, "type = \"full\"\nevery = 2\nasync = false\n", "type = \"none\"\n");
  return replaced(run, "log_every = 1\n", "log_every = 1\neval_every = 3\neval_batches = 4\n");
}

class Sequential : public ::testing::Test {
 protected:
  Sequential() {
    write_file(scratch_ / "run.toml", run_with_evaluations());
    write_file(scratch_ / "study.toml", kStudy);
  }

  Ended ab(std::vector<std::string> more) const {
    more.insert(more.begin(), "ab");
    return scratch_.run(more);
  }

  /// Attempts of every run of a study that completed: "arm/seed" -> how many.
  std::map<std::string, int> completed(const std::string& study) const {
    std::map<std::string, int> out;
    const fs::path runs = scratch_ / (study + "/runs");
    if (!fs::exists(runs)) return out;
    for (const auto& arm : fs::directory_iterator(runs)) {
      for (const auto& seed : fs::directory_iterator(arm)) {
        for (const auto& attempt : fs::directory_iterator(seed)) {
          if (attempt.is_symlink() || !fs::exists(attempt.path() / "summary.json")) continue;
          if (read_file(attempt.path() / "summary.json").find("\"completed\"") == std::string::npos) continue;
          ++out[arm.path().filename().string() + "/" + seed.path().filename().string()];
        }
      }
    }
    return out;
  }

  Scratch scratch_;
};

json verdict_of(const Ended& ended) {
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 1) << ended.out << ended.err;
  return json::parse(ended.out);
}

TEST_F(Sequential, AStudyEndsEarlyAndASecondCallRunsNothing) {
  const Ended first = ab({"study.toml", "--out", "out", "--json", "--exit-verdict"});
  const json verdict = verdict_of(first);
  EXPECT_EQ(verdict["arms"][0]["verdict"], "worse") << first.out;
  EXPECT_EQ(verdict["pairs"], 10);  // eight pairs of much the same size make 23, and 40 is needed
  EXPECT_GT(verdict["seconds"].get<double>(), 0);
  const std::map<std::string, int> runs = completed("out");
  EXPECT_EQ(
      std::count_if(runs.begin(), runs.end(), [](const auto& r) { return r.first.starts_with("slow/"); }),
      10);
  for (const auto& [name, attempts] : runs) EXPECT_EQ(attempts, 1) << name;
  const Ended again = ab({"study.toml", "--out", "out", "--json", "--exit-verdict"});
  EXPECT_EQ(again.out, first.out);
  EXPECT_EQ(again.status, first.status);
  EXPECT_EQ(completed("out"), runs);
  // Without the options: words, and the usual status.
  const Ended words = ab({"study.toml", "--out", "out"});
  EXPECT_EQ(words.status, 0);
  EXPECT_THAT(words.out, HasSubstr("slow is worse than base"));
  EXPECT_THAT(words.out, HasSubstr("not valid here"));
}

TEST_F(Sequential, InterruptedAtRandomMomentsItReachesTheSameVerdict) {
  const json whole = verdict_of(ab({"study.toml", "--out", "whole", "--json", "--jobs", "2"}));
  std::mt19937 random(20);
  Command command{{"ab", "study.toml", "--out", "parts", "--json", "--jobs", "2"}, scratch_.folder()};
  command.own_group = true;
  std::map<std::string, int> before;
  int interrupted = 0;
  for (int start = 0; start < 20; ++start) {
    Child child(command);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 130));
    if (!child.ended()) ++interrupted;
    child.send_all(start % 2 == 0 ? SIGINT : SIGTERM);
    child.wait();
    const std::map<std::string, int> now = completed("parts");
    for (const auto& [name, attempts] : before) EXPECT_EQ(now.at(name), attempts) << name << " was repeated";
    before = now;
  }
  EXPECT_GE(interrupted, 5);
  const json parts = verdict_of(ab({"study.toml", "--out", "parts", "--json", "--jobs", "2"}));
  for (const char* key : {"verdict", "effect", "interval", "e_values", "pairs"})
    EXPECT_EQ(parts[key], whole[key]) << key;
  for (std::size_t arm = 0; arm < whole["arms"].size(); ++arm)
    EXPECT_EQ(parts["arms"][arm], whole["arms"][arm]);
  for (const auto& [name, attempts] : completed("parts")) EXPECT_EQ(attempts, 1) << name;
}

TEST_F(Sequential, AnEditBetweenTwoLooksIsRefused) {
  const std::string two_arms = std::string(kStudy).substr(0, std::string(kStudy).rfind("[[arm]]"));
  write_file(scratch_ / "study.toml", replaced(two_arms, "max_seeds = 12", "max_seeds = 4"));
  ASSERT_EQ(ab({"study.toml", "--out", "out"}).status, 0);
  write_file(scratch_ / "run.toml", replaced(run_with_evaluations(), "lr = 1e-2", "lr = 2e-2"));
  const Ended edited = ab({"study.toml", "--out", "out"});
  EXPECT_EQ(edited.status, 2);
  EXPECT_THAT(edited.err, HasSubstr("was edited after"));
  EXPECT_EQ(ab({"study.toml", "--out", "out", "--restart"}).status, 0);
  EXPECT_TRUE(fs::exists(scratch_ / "out/earlier/1/runs/base/3/1/summary.json"));
}

TEST_F(Sequential, AProposalIsWrittenAndRun) {
  const std::vector<std::string> words{"--propose", "optimizer.lr=1e-4", "optimizer.weight_decay=0.1",
                                       "--base",    "run.toml",          "--exit-verdict",
                                       "--json"};
  const Ended ended = ab(words);
  EXPECT_EQ(ended.status, 11) << ended.err;
  const std::string folder = fs::path(verdict_of(ended)["report"].get<std::string>()).parent_path().string();
  EXPECT_THAT(folder, HasSubstr("/out/propose-"));
  EXPECT_THAT(read_file(folder + "/experiment.toml"),
              HasSubstr("set = [\"optimizer.lr=1e-4\", \"optimizer.weight_decay=0.1\"]"));
  // The file is an experiment like any other.
  EXPECT_EQ(ab({folder + "/experiment.toml", "--out", folder, "--json", "--exit-verdict"}).out, ended.out);
  EXPECT_THAT(ab({"--propose", "optimizer.lr", "--base", "run.toml"}).err,
              HasSubstr("expected KEY=VALUE, found 'optimizer.lr'"));
  EXPECT_THAT(ab({"--propose", "optimizer.lr=1"}).err, HasSubstr("--base RUN belong together"));
  EXPECT_THAT(ab({"study.toml", "--propose", "optimizer.lr=1", "--base", "run.toml"}).err,
              HasSubstr("there is none to name"));
  Ended other = ab({"--propose", "optimizer.lr=3e-2", "--base", "run.toml", "--out", folder});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("is another proposal"));
  write_file(scratch_ / "endless.toml", replaced(run_with_evaluations(), "steps = 6\n", ""));
  EXPECT_THAT(ab({"--propose", "optimizer.lr=1", "--base", "endless.toml"}).err,
              HasSubstr("has no run.steps"));
}

/// The block of docs/questions.md after the line <!-- loop.sh -->.
std::string loop_of_the_page() {
  const std::string page = read_file(fs::path(TENON_SOURCE_DIR) / "docs/questions.md");
  const std::string fence = "<!-- loop.sh -->\n```sh\n";
  const std::size_t begin = page.find(fence);
  if (begin == std::string::npos) return "";
  const std::size_t text = begin + fence.size();
  return page.substr(text, page.find("```\n", text) - text);
}

TEST_F(Sequential, TheLoopOfThePageKeepsWhatIsBetter) {
  const std::string loop = loop_of_the_page();
  ASSERT_NE(loop, "");
  EXPECT_LE(std::count(loop.begin(), loop.end(), '\n'), 25);
  write_file(scratch_ / "loop.sh", loop);
  write_file(scratch_ / "run.toml", replaced(run_with_evaluations(), "lr = 1e-2", "lr = 1e-4"));
  const std::string command = "cd " + scratch_.folder().string() + " && PATH=" + TENON_BINARY_DIR +
                              "/bin:$PATH sh loop.sh optimizer.lr=1e-2 optimizer.lr=1e-5 >said 2>errors";
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(scratch_ / "errors");
  EXPECT_EQ(read_file(scratch_ / "said"),
            "kept optimizer.lr=1e-2\ndiscarded optimizer.lr=1e-5\nthe run is now best1.toml\n");
  EXPECT_THAT(read_file(scratch_ / "errors"), HasSubstr("2 questions, 2 discoveries, 0 open"));
  std::istringstream lines(read_file(scratch_ / "verdicts.jsonl"));
  std::vector<std::string> verdicts;
  for (std::string line; std::getline(lines, line);) {
    const json verdict = json::parse(line);
    verdicts.push_back(verdict["verdict"]);
    EXPECT_EQ(verdict["family"]["question"], verdicts.size());
    // The second one has less of alpha, and twice that for the discovery before it.
    EXPECT_NEAR(verdict["family"]["level"].get<double>(), verdicts.size() == 1 ? 0.01464 : 0.01298, 1e-5);
  }
  EXPECT_THAT(verdicts, ::testing::ElementsAre("better", "worse"));
  EXPECT_EQ(scratch_.run({"check", "best1.toml"}).status, 0);
}

TEST_F(Sequential, AQuestionOfAFamilyIsSpentOnceHoweverOftenItIsKilled) {
  const std::vector<std::string> words{"study.toml", "--out", "out", "--family", "family", "--json"};
  Command command{{"ab"}, scratch_.folder()};
  command.arguments.insert(command.arguments.end(), words.begin(), words.end());
  command.own_group = true;
  std::mt19937 random(21);
  int killed = 0;
  for (int start = 0; start < 8; ++start) {
    Child child(command);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 130));
    if (!child.ended()) ++killed;
    child.send_all(SIGKILL);
    child.wait();
  }
  EXPECT_GE(killed, 2);
  const Ended ended = ab(words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NEAR(verdict_of(ended)["family"]["level"].get<double>(), 0.01464, 1e-5);
  const json ledger = json::parse(ab({"--ledger", "family", "--json"}).out);
  EXPECT_EQ(ledger["questions"].size(), 1u);
  EXPECT_EQ(ledger["open"], 0);
  EXPECT_THAT(ab({"--ledger", "family"}).out, HasSubstr("1 question, one discovery, 0 open"));
  // tenon report repeats the verdict at the same level.
  const json before = json::parse(read_file(scratch_ / "out/report.json"));
  EXPECT_THAT(scratch_.run({"report", "out"}).out, HasSubstr("Question 1 of the family"));
  const json after = json::parse(read_file(scratch_ / "out/report.json"));
  for (const char* key : {"verdict", "family", "experiment"}) EXPECT_EQ(after[key], before[key]) << key;
  EXPECT_THAT(ab({"study.toml", "--out", "out"}).err, HasSubstr("go on with --family"));
  EXPECT_THAT(ab({"study.toml", "--ledger", "family"}).err,
              HasSubstr("an experiment has no place beside it"));
}

}  // namespace
}  // namespace tenon::integration::sequential_test
