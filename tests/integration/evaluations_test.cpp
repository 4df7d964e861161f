// [[evaluate]]: a run measures the weights that it evaluates on further data, each at its own interval, and
// trains as it would without; and losses per byte of text. Their numbers are those of `tenon evaluate` on the
// same weights and data.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstring>
#include <set>
#include <sstream>
#include <tuple>

namespace tenon::integration::evaluations_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// An entry of the list with data of the shape that the tiny run trains on.
std::string entry(const std::string& name, const std::string& file, const std::string& more = "") {
  return "\n[[evaluate]]\nname = \"" + name + "\"\n" + more + "[evaluate.data]\ntype = \"text\"\npath = \"" +
         file + "\"\ncontext = 16\nbatch = 2\n";
}

const std::vector<std::string> kTwo = {"--set", "parallel.ranks=2", "--set", "transport.type=\"thread\""};
const std::vector<std::string> kDdp = {"--set", "sync={type=\"ddp\"}"};
// Between its rounds a replica trains other weights than those that it evaluates.
const std::vector<std::string> kAnchored = {"--set", "sync={type=\"diloco\", interval=4}"};

std::vector<std::string> operator+(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Step, split, name and value of a line.
using Line = std::tuple<std::int64_t, std::string, std::string, double>;

class Evaluations : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string other;
    for (int i = 0; i < 900; ++i) other += "other words "[i * i % 12];
    write_file(scratch_ / "other.txt", other);
  }
  void configure(const std::string& more) const {
    write_file(scratch_ / "run.toml", std::string(Scratch::kRun) + more);
  }
  json train(const std::string& folder, const std::vector<std::string>& more = {},
             std::map<std::string, std::string> environment = {}) const {
    const Ended ended = scratch_.train(std::vector<std::string>{"--run-dir", folder} + more, environment);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return summary(folder);
  }
  json summary(const std::string& folder) const {
    return json::parse(read_file(scratch_ / (folder + "/1/summary.json")));
  }
  /// The lines of metrics.jsonl whose split begins with "val".
  std::vector<Line> lines(const std::string& folder) const {
    std::vector<Line> found;
    std::istringstream in(read_file(scratch_ / (folder + "/1/metrics.jsonl")));
    for (std::string text; std::getline(in, text);) {
      const json line = json::parse(text);
      if (line["split"].get<std::string>().starts_with("val"))
        found.emplace_back(line["step"], line["split"], line["name"], line["value"]);
    }
    return found;
  }
  std::set<std::int64_t> steps(const std::string& folder, const std::string& split) const {
    std::set<std::int64_t> found;
    for (const auto& [step, of, name, value] : lines(folder)) {
      if (of != split || name != "loss") continue;
      EXPECT_TRUE(found.insert(step).second) << split << " " << step;
    }
    return found;
  }
  double evaluated(const std::string& folder, const std::string& file) const {
    const Ended ended = scratch_.run({"evaluate", folder, "--json", "--set", "data.path='" + file + "'"});
    EXPECT_EQ(ended.status, 0) << ended.err;
    return json::parse(ended.out)["metrics"]["val/loss"];
  }

  Scratch scratch_;
};

TEST_F(Evaluations, MeasureTheWeightsThatTheRunStandsFor) {
  configure(entry("same", "text.txt") + entry("other", "other.txt"));
  const json alone = train("alone", {"--set", "run.eval_every=2"});
  const json& metrics = alone["metrics"];
  EXPECT_EQ(metrics["val.same/loss"], metrics["val/loss"]);
  EXPECT_EQ(metrics["val.other/loss"], evaluated("alone", "other.txt"));
  EXPECT_NE(metrics["val.other/loss"], metrics["val/loss"]);
  EXPECT_FALSE(metrics.contains("val.other/lr"));
  const json manifest = json::parse(read_file(scratch_ / "alone/1/manifest.json"));
  ASSERT_EQ(manifest["data"].size(), 2u) << "each file once";
  EXPECT_THAT(manifest["data"][1]["path"].get<std::string>(), HasSubstr("other.txt"));

  for (const auto& [name, sync] : {std::pair{"ddp", kDdp}, std::pair{"anchored", kAnchored}}) {
    train(name, kTwo + sync + std::vector<std::string>{"--set", "run.eval_every=2"});
    std::map<std::int64_t, double> own, same;
    for (const auto& [step, split, metric, value] : lines(name)) {
      if (metric != "loss") continue;
      if (split == "val") own[step] = value;
      if (split == "val.same") same[step] = value;
    }
    EXPECT_EQ(own.size(), 3u) << name;
    EXPECT_EQ(own, same) << name;
  }
}

TEST_F(Evaluations, HaveIntervalsOfTheirOwn) {
  configure(entry("two", "other.txt", "every = 2\n") + entry("end", "other.txt", "every = 0\n") +
            entry("usual", "other.txt"));
  train("run", {"--set", "run.eval_every=3", "--set", "observe=[{type=\"csv\"}]"});
  EXPECT_EQ(steps("run", "val"), (std::set<std::int64_t>{3, 6}));
  EXPECT_EQ(steps("run", "val.two"), (std::set<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(steps("run", "val.end"), (std::set<std::int64_t>{6}));
  EXPECT_EQ(steps("run", "val.usual"), (std::set<std::int64_t>{3, 6}));
  EXPECT_THAT(read_file(scratch_ / "run/1/metrics.csv"),
              AllOf(HasSubstr("\n2,val.two,loss,"), HasSubstr("6,val,loss,")));
  // Without an interval of the run: its own ones, and all at the end.
  train("sparse", {"--set", "run.steps=5"});
  EXPECT_EQ(steps("sparse", "val"), (std::set<std::int64_t>{5}));
  EXPECT_EQ(steps("sparse", "val.two"), (std::set<std::int64_t>{2, 4, 5}));
}

TEST_F(Evaluations, ChangeNoBitOfTheTraining) {
  const std::string evaluations = entry("often", "other.txt", "every = 1\n");
  const std::vector<std::vector<std::string>> cases = {
      {}, kTwo + kDdp, kTwo + kAnchored, {"--set", "precision={type=\"fp8\"}"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    configure("");
    const json without = train("without" + std::to_string(i), cases[i]);
    configure(evaluations);
    const json with = train("with" + std::to_string(i), cases[i]);
    EXPECT_EQ(with["weights_hash"], without["weights_hash"]) << i;
    EXPECT_EQ(with["metrics"]["val/loss"], without["metrics"]["val/loss"]) << i;
    EXPECT_EQ(steps("with" + std::to_string(i), "val.often").size(), 6u) << i;
  }
}

// What a run began with is measured before its first slot, once, and changes no bit.
TEST_F(Evaluations, ComeFirstWhereTheRunSaysSo) {
  configure(entry("other", "other.txt"));
  const json without = train("without");
  const json with = train("with", {"--set", "run.evaluate_first=true", "--set", "run.eval_every=0"});
  EXPECT_EQ(with["weights_hash"], without["weights_hash"]);
  const std::int64_t last = with["steps"];
  EXPECT_EQ(steps("with", "val"), (std::set<std::int64_t>{0, last}));
  EXPECT_EQ(steps("with", "val.other"), (std::set<std::int64_t>{0, last}));
  // The next run begins with these weights, so it first measures what this one measured last.
  write_file(scratch_ / "next.toml", "extends = [\"run.toml\"]\n[init]\nfrom = \"with\"\n");
  const Ended ended = scratch_.run(
      {"train", "next.toml", "--quiet", "--run-dir", "next", "--set", "run.evaluate_first=true"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(std::get<3>(lines("next").front()), std::get<3>(lines("with").at(lines("with").size() / 2)));
}

TEST_F(Evaluations, AreTheSameAfterAResume) {
  configure(entry("two", "other.txt", "every = 2\n") + entry("three", "text.txt", "every = 3\n"));
  const std::vector<std::string> words = {"--set", "run.eval_every=2"};
  const json whole = train("whole", words);
  const std::vector<Line> expected = lines("whole");
  EXPECT_EQ(expected.size(), 16u) << "two numbers for each of 3, 3 and 2 evaluations";
  for (const char* moment : {"evaluate:1", "evaluate:2", "evaluate:3", "evaluate:4"}) {
    const std::string folder = std::string("killed") + moment[9];
    const Ended killed =
        scratch_.train(std::vector<std::string>{"--run-dir", folder} + words, {{"TENON_KILL_AT", moment}});
    EXPECT_EQ(killed.signal, SIGKILL) << moment;
    const json resumed = train(folder, words + std::vector<std::string>{"--resume"});
    EXPECT_EQ(lines(folder), expected) << moment;
    EXPECT_EQ(resumed["weights_hash"], whole["weights_hash"]) << moment;
    EXPECT_EQ(resumed["metrics"]["val.two/loss"], whole["metrics"]["val.two/loss"]) << moment;
  }
}

TEST_F(Evaluations, WorkUnderTheSimulatedClockAndOnAMesh) {
  configure(entry("other", "other.txt", "every = 3\n"));
  const std::string link =
      "transport={type=\"thread\", link={bandwidth=1e6}, clock={type=\"simulated\", compute_seconds=0.1}}";
  const json simulated = train("simulated", std::vector<std::string>{"--set", "parallel.ranks=2"} + kDdp +
                                                std::vector<std::string>{"--set", link});
  const json real = train("real", kTwo + kDdp);
  EXPECT_EQ(simulated["metrics"]["val.other/loss"], real["metrics"]["val.other/loss"]);
  EXPECT_EQ(real["metrics"]["val.other/loss"], evaluated("real", "other.txt"));
}

TEST_F(Evaluations, AreFoundByComparisonsStudiesAndPages) {
  configure(entry("other", "other.txt", "every = 2\n"));
  train("a");
  train("b", {"--set", "optimizer.lr=2e-2"});
  EXPECT_THAT(scratch_.run({"compare", "a", "b"}).out, HasSubstr("val.other/loss"));
  const Ended told = scratch_.run({"report", "a", "--json"});
  EXPECT_TRUE(json::parse(told.out)["metrics"].contains("val.other/loss")) << told.err;
  ASSERT_EQ(scratch_.run({"report", "a"}).status, 0);
  EXPECT_THAT(read_file(scratch_ / "a/1/report.html"), HasSubstr("val.other/loss"));
  write_file(scratch_ / "study.toml",
             "base = \"run.toml\"\nseeds = [1, 2, 3]\nbudget = { steps = 6 }\nmetric = "
             "\"val.other/loss\"\n[[arm]]\nname = \"plain\"\n"
             "[[arm]]\nname = \"faster\"\nset = [\"optimizer.lr=2e-2\"]\n");
  const Ended study = scratch_.run({"ab", "study.toml", "--out", "study"});
  EXPECT_EQ(study.status, 0) << study.err;
  EXPECT_THAT(study.out, HasSubstr("val.other/loss differs by"));
  // Arms that were evaluated on other data are no pair.
  write_file(scratch_ / "study.toml",
             "base = \"run.toml\"\nseeds = [1, 2]\nbudget = { steps = 6 }\nmetric = "
             "\"val.other/loss\"\n[[arm]]\nname = \"plain\"\n"
             "[[arm]]\nname = \"elsewhere\"\nset = [\"evaluate[0].data.path='text.txt'\"]\n");
  const Ended refused = scratch_.run({"ab", "study.toml", "--out", "refused"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.out + refused.err, HasSubstr("evaluate[0].data.path"));
}

TEST_F(Evaluations, AreListedAndJudgedByCheck) {
  configure(entry("two", "other.txt", "every = 2\n") + entry("end", "text.txt"));
  const Ended listed = scratch_.run({"check", "run.toml"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr("evaluation val.two: 6 samples of text, every 2 slots\n"),
                                HasSubstr("evaluation val.end: 19 samples of text, at the end\n")));

  const std::string place = "run.toml:31:1: ";
  const std::string other = entry("a", "other.txt");
  const struct {
    std::string toml;
    std::vector<std::string> says;
  } cases[] = {
      {entry("a b", "other.txt"),
       {"run.toml:32:8: [[evaluate]] name = 'a b': expected letters, digits, '_' and '-', which make the "
        "metric "
        "val.NAME/loss"}},
      {entry("", "other.txt"), {"run.toml:32:8: [[evaluate]] name = ''"}},
      {other + entry("a", "text.txt"),
       {"[[evaluate]] name = 'a' is that of the entry at ",
        "run.toml:31:1, too; expected another one for each"}},
      {"\n[[evaluate]]\nname = \"a\"\n",
       {place + "[[evaluate]] needs [evaluate.data], a table with a 'type': the name of a component of kind "
                "dataset"}},
      {"\n[[evaluate]]\nname = \"a\"\n[evaluate.data]\npath = \"other.txt\"\n",
       {"[evaluate.data] needs 'type'"}},
      {"\n[evaluate]\nname = \"a\"\n", {"expected [[evaluate]], a list of tables, found a table"}},
      {other + "contxt = 16\n", {"did you mean 'context'?"}},
      {replaced(other, "name = \"a\"\n", ""), {"'name'"}},
      {other + "val_fraction = 0.0\n", {place + "[[evaluate]] 'a': its data have no samples to validate on"}},
      {replaced(other, "context = 16", "context = 8"),
       {place +
        "[[evaluate]] 'a': its samples have the fields 'tokens' i32 [8], 'targets' i32 [8]; the model was "
        "built for those of [data]: 'tokens' i32 [16], 'targets' i32 [16]"}},
      {replaced(other, "batch = 2", "batch = 3"),
       {place + "[[evaluate]] 'a': its data come in batches of 3, and the model runs on 2 samples at once"}},
      {other + "vocabulary = 300\n",
       {place + "[[evaluate]] 'a': the model is another one for its data, from node '",
        "'vocabulary' is 300 here and 256 in [data]"}},
      {replaced(other, "context = 16\nbatch = 2", "context = 900\nbatch = 2"),
       {place + "[[evaluate]] 'a': ", "a window of context = 900 needs 901 tokens"}},
  };
  for (const auto& c : cases) {
    configure(c.toml);
    const Ended refused = scratch_.run({"check", "run.toml"});
    EXPECT_EQ(refused.status, 2) << c.toml << refused.out;
    for (const std::string& says : c.says) EXPECT_THAT(refused.err, HasSubstr(says)) << c.toml;
  }
}

// Tokens of a vocabulary of four: each of a byte, "the ", an end of text, and three bytes.
TEST_F(Evaluations, ReportLossPerByteWhereTheBytesAreKnown) {
  configure(entry("other", "other.txt"));
  const json plain = train("plain");
  EXPECT_EQ(plain["metrics"]["val/loss_per_byte"], plain["metrics"]["val/loss"]) << "a byte per target";
  EXPECT_EQ(plain["metrics"]["val.other/loss_per_byte"], plain["metrics"]["val.other/loss"]);

  const int lengths[] = {1, 4, 13, 3};
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240328;
  header[1] = 2;
  header[2] = 4;
  header[3] = 2;
  std::string tokenizer(reinterpret_cast<const char*>(header.data()), 1024);
  for (const int length : lengths) tokenizer += static_cast<char>(length) + std::string(length, 'x');
  write_file(scratch_ / "tokenizer.bin", tokenizer);
  std::vector<std::uint16_t> ids;
  for (int i = 0; i < 500; ++i) ids.push_back(static_cast<std::uint16_t>(i * i / 3 % 4));
  write_file(scratch_ / "tokens.bin", std::string(reinterpret_cast<const char*>(ids.data()), 1000));
  // The last tenth is held out, and its first token is no target.
  double bytes = 0;
  for (int i = 451; i < 500; ++i) bytes += ids[i] == 2 ? 0 : lengths[ids[i]];
  const double per_target = bytes / 49;
  configure("");
  const std::vector<std::string> data = {
      "--set",
      "data={type=\"text\", path=\"tokens.bin\", context=16, batch=2, token_bytes=\"tokenizer.bin\"}"};
  const json counted = train("counted", data);
  EXPECT_NEAR(counted["metrics"]["val/loss_per_byte"].get<double>(),
              counted["metrics"]["val/loss"].get<double>() / per_target, 1e-12);
  const Ended again = scratch_.run({"evaluate", "counted", "--json"});
  EXPECT_EQ(json::parse(again.out)["metrics"],
            (json{{"val/loss", counted["metrics"]["val/loss"]},
                  {"val/loss_per_byte", counted["metrics"]["val/loss_per_byte"]}}));
  const json unknown =
      train("unknown", {"--set", "data={type=\"text\", path=\"tokens.bin\", context=16, batch=2}"});
  EXPECT_FALSE(unknown["metrics"].contains("val/loss_per_byte"));
}

}  // namespace
}  // namespace tenon::integration::evaluations_test
