// A ladder with real runs of a fraction of a second: sizes are the parameters that `tenon check` counts,
// steps come from them, and a second call makes no run.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace tenon::integration::ladder_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kLadder = R"(base = "run.toml"
seeds = [1, 2, 3]

[ladder]
tokens_per_parameter = 0.05
points = [
  { name = "w8", set = ["model.width=8"] },
  { name = "w16", set = ["model.width=16"] },
  { name = "w24", set = ["model.width=24"], steps = 5 },
]

[[arm]]
name = "base"

[[arm]]
name = "slow"
set = ["optimizer.lr=1e-4"]
)";

TEST(Ladder, SizesAreTheModelsParameters) {
  const Scratch scratch;
  const std::string run =
      replaced(Scratch::kRun, "type = \"full\"\nevery = 2\nasync = false\n", "type = \"none\"\n");
  write_file(scratch / "run.toml",
             replaced(run, "log_every = 1\n", "log_every = 1\neval_every = 3\neval_batches = 4\n"));
  write_file(scratch / "ladder.toml", kLadder);
  const std::vector<std::string> words{"ab", "ladder.toml", "--out", "out", "--json"};
  const Ended first = scratch.run(words);
  ASSERT_EQ(first.status, 0) << first.err;
  const json verdict = json::parse(first.out);
  const json& points = verdict["ladder"]["points"];
  ASSERT_EQ(points.size(), 3u);
  for (const json& point : points) {
    const std::string width = "model." + point["set"][0].get<std::string>().substr(6);
    const Ended checked = scratch.run({"check", "run.toml", "--set", width});
    EXPECT_THAT(checked.out, HasSubstr("parameters: " + point["parameters"].dump() + " trained"));
    EXPECT_EQ(point["size"], point["parameters"]);
    EXPECT_EQ(point["runs"], 6);
  }
  // A step has two samples of sixteen tokens.
  for (const std::size_t p : {0u, 1u})
    EXPECT_EQ(points[p]["budget"]["amount"], std::ceil(0.05 * points[p]["parameters"].get<double>() / 32));
  EXPECT_EQ(points[2]["budget"]["amount"], 5);
  EXPECT_TRUE(verdict["ladder"]["lines"][0]["slope_per_doubling"].is_number());
  const Ended again = scratch.run(words);
  EXPECT_EQ(again.out, first.out);
  EXPECT_FALSE(fs::exists(scratch / "out/points/w8/runs/base/1/2"));
  const Ended report = scratch.run({"report", "out", "--json"});
  EXPECT_EQ(json::parse(report.out)["format"], "tenon.ab.ladder/1");
  EXPECT_EQ(report.out, read_file(scratch / "out/report.json"));
  // What cannot run is refused before the first run, with the place of its point.
  write_file(scratch / "bad.toml", replaced(kLadder, "model.width=24", "model.width=25"));
  const Ended refused = scratch.run({"ab", "bad.toml", "--out", "bad"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("bad.toml:9:"));
  EXPECT_THAT(refused.err, HasSubstr("point 'w24'"));
  EXPECT_FALSE(fs::exists(scratch / "bad/points"));
}

}  // namespace
}  // namespace tenon::integration::ladder_test
