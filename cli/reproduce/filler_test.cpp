// Studies of fillers: files that must be refused, and the medians of their tables.
#include "reproduce/filler.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::reproduce {
namespace filler_test {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ::testing::HasSubstr;

constexpr const char* kFillerStudy = R"(title = "Filler"
paper = "p"
question = "q"
base = "run.toml"
metric = "train/loss"
baseline = "off"
[filler]
site = "site.toml"
policy = "target=1.0"
delays_s = [0.005, 0.02]
[size.quick]
steps = 4
seeds = [1]
[size.default]
steps = 4
seeds = [1]
[[arm]]
name = "off"
[[arm]]
name = "on"
)";

std::string refused(const std::string& text) {
  const std::string folder = fresh_folder("filler");
  ab::testing::write_text(folder + "/run.toml", "[run]\nsteps = 1\n");
  ab::testing::write_text(folder + "/site.toml", "[power]\n");
  ab::testing::write_text(folder + "/study.toml", text);
  try {
    const StudyFile study = read_study(folder + "/study.toml");
    EXPECT_EQ(study.as<FillerStudy>().site, folder + "/site.toml");
    EXPECT_EQ(study.as<FillerStudy>().delays_s, (std::vector<double>{0.005, 0.02}));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(FillerStudies, MistakesAreNamed) {
  EXPECT_EQ(refused(kFillerStudy), "accepted");
  const struct {
    const char* what;
    const char* with;
    const char* says;
  } cases[] = {{"site = \"site.toml\"\n", "", "site"},
               {"delays_s = [0.005, 0.02]", "delays_s = []", "at least one delay"},
               {"delays_s = [0.005, 0.02]", "delays_s = [0.0005]", "shorter than filler.period_s"},
               {"delays_s = [0.005, 0.02]", "delays_s = [-1]", "delays_s"},
               {"[filler]\n", "[filler]\ndelay = 1\n", "filler has no option 'delay'"},
               {"[size.quick]",
                "[run_sites]\nsite = \"site.toml\"\ncompute_s = 1\nexchange_s = 1\n[size.quick]", "filler"}};
  for (const auto& c : cases)
    EXPECT_THAT(refused(replaced(kFillerStudy, c.what, c.with)), HasSubstr(c.says)) << c.with;
}

TEST(FillerStudies, SpreadsHaveTheirMedian) {
  const PairSpread odd = pair_spread({3, 1, 2}), even = pair_spread({4, 1, 3, 2}), one = pair_spread({5});
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.high, 3);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(one.low, 5);
  EXPECT_EQ(one.high, 5);
}

}  // namespace filler_test
}  // namespace tenon::reproduce
