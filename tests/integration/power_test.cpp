// tenon power as a user types it: a site in files, anybody's trace under the meter, a run with two ranks, and
// refusals.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace tenon::integration::power_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kSpec = "configs/power/example_utility.toml";

std::string square_csv(int seconds) {
  std::string text = "seconds,watts\n";
  for (int i = 0; i < 100 * seconds; ++i)
    text += std::to_string(i / 100) + "." + (i % 100 < 10 ? "0" : "") + std::to_string(i % 100) + "," +
            (i % 200 < 160 ? "1000" : "400") + "\n";
  return text;
}

TEST(Power, WritesASiteAndCallsItModelled) {
  const Scratch scratch;
  const Ended ended = scratch.run({"power", TENON_SOURCE_DIR "/configs/power/square_site.toml", "--set",
                                   "power.folder=site", "--set", "power.workers.count=8"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, StartsWith("modelled: 8 workers, levels h100_like, 140 s at 1000 Hz\n"));
  for (const char* name : {"table.md", "power.json", "traces.csv", "time.svg", "spectrum.svg", "filler.svg",
                           "floor.svg", "storage.svg", "stack.svg"})
    EXPECT_TRUE(fs::exists(scratch / ("site/" + std::string(name)))) << name;
  const json record = json::parse(read_file(scratch / "site/power.json"));
  ASSERT_EQ(record["stages"].size(), 4u);
  // No single layer is enough, and together they are.
  for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(record["stages"][stage]["passes"], stage == 3) << stage;
  EXPECT_NEAR(record["stages"][0]["peak_hz"], 0.5, 0.01);
}

TEST(Power, TheMeterReadsAnybodysTrace) {
  const Scratch scratch;
  write_file(scratch / "my.csv", square_csv(60));
  const Ended text = scratch.run({"power", "meter", "my.csv", "--spec", kSpec});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(
      text.out,
      HasSubstr("against example utility, rated power 1 kW (the highest sample; --rated says otherwise)"));
  EXPECT_THAT(text.out, HasSubstr("  range                 0.6 rated, limit 0.1: fails\n"));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("modelled")));
  const Ended ended = scratch.run({"power", "meter", "my.csv", "--spec", kSpec, "--rated", "2000", "--json"});
  const json record = json::parse(ended.out);
  EXPECT_NEAR(record["verdict"][2]["value"], 0.3, 1e-12);
  // The closed form of the fundamental, sampled.
  const double pi = std::acos(-1.0);
  EXPECT_NEAR(record["peak_amplitude_w"], 2 * 600 / 200.0 * std::abs(std::sin(pi * 0.8) / std::sin(pi / 200)),
              1e-6);
}

TEST(Power, TheMeterCallsNoShareWatts) {
  const Scratch scratch;
  std::string csv = square_csv(60);
  csv.replace(0, csv.find('\n'), "# all cores, measured\nseconds,share");
  for (std::size_t at = 0; (at = csv.find(",1000\n")) != std::string::npos;) csv.replace(at, 5, ",1");
  for (std::size_t at = 0; (at = csv.find(",400\n")) != std::string::npos;) csv.replace(at, 4, ",0.4");
  write_file(scratch / "shares.csv", csv);
  const Ended text = scratch.run({"power", "meter", "shares.csv", "--spec", kSpec});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("by the file's own word: all cores, measured\n"));
  EXPECT_THAT(text.out, HasSubstr("a proxy of power: no figure below is in watts\n"));
  EXPECT_THAT(text.out, HasSubstr("lowest, highest       0.4 shares, 1 shares\n"));
  EXPECT_THAT(text.out, ::testing::Not(::testing::ContainsRegex("[0-9] [kM]?W")));
  const Ended ended = scratch.run({"power", "meter", "shares.csv", "--spec", kSpec, "--json"});
  const json record = json::parse(ended.out);
  EXPECT_EQ(record["unit"], "share");
  EXPECT_NEAR(record["mean_share"], 0.88, 1e-9);
  EXPECT_FALSE(record.contains("mean_w"));
}

TEST(Power, TwoRanksOverAShapedLink) {
  const Scratch scratch;
  const Ended trained =
      scratch.train({"--set", "run.steps=12", "--set", "parallel.ranks=2", "--set", "sync={type=\"ddp\"}",
                     "--set", "transport={type=\"thread\", link={bandwidth=1e7, latency=0.001}}", "--set",
                     "observe=[{type=\"trace\"}]"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  write_file(scratch / "site.toml",
             "[power]\ntrace = \"runs/tiny/1\"\nrepeat = 400\nlead_s = 0\n[power.workers]\ncount = "
             "64\njitter_s = 0.001\n"
             "[[power.policy]]\nat = \"worker\"\ntype = \"floor_ramp\"\nfloor = 0.65\n");
  const Ended ended = scratch.run({"power", "site.toml", "--json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json record = json::parse(ended.out);
  EXPECT_EQ(record["phases"].size(), 2u);
  EXPECT_GE(record["stages"][1]["lowest_w"], 0.65 * 700 * 64 * 0.999);
}

TEST(Power, RefusesWhatItCannotDo) {
  const Scratch scratch;
  write_file(scratch / "gap.csv", "0,1\n1,2\n2,3\n5,4\n6,5\n");
  write_file(scratch / "my.csv", square_csv(5));
  const struct {
    std::vector<std::string> words;
    const char* says;
  } cases[] = {
      {{"power"}, "tenon power: which CONFIG?"},
      {{"power", "meter"}, "tenon power meter: which trace?"},
      {{"power", "meter", "my.csv"}, "tenon power meter: --spec is missing"},
      {{"power", "meter", "gap.csv", "--spec", kSpec}, "gap.csv:4: 3 s after the line before"},
      {{"power", "meter", "my.csv", "--spec", kSpec},
       "my.csv: the trace lasts 5 s; the band's lower edge of 0.1 Hz"},
      {{"power", "meter", "my.csv", "--spec", kSpec, "--rated", "0"}, "the rated power is 0 W"},
      {{"power", "site.toml", "--spec", kSpec}, "--spec belongs to tenon power meter"},
      {{"power", "a.toml", "b.toml"}, "'b.toml' is one word too many"},
  };
  for (const auto& refusal : cases) {
    const Ended ended = scratch.run(refusal.words);
    EXPECT_EQ(ended.status, 2) << refusal.says;
    EXPECT_THAT(ended.err, HasSubstr(refusal.says));
    EXPECT_EQ(ended.out, "");
  }
}

}  // namespace
}  // namespace tenon::integration::power_test
