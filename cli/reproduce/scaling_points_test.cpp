// Studies of scaling as files: values that are read, the runs that they become, and messages for wrong ones.
#include "reproduce/scaling.hpp"

#include "ab/testing/synthetic_runs.hpp"
#include "reproduce/plan.hpp"
#include "reproduce/render.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ab::testing::write_text;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kBase =
    "[data]\nbatch = 10\n[run]\naccumulate = 2\n[transport.clock]\ntype = \"simulated\"\n";

constexpr const char* kPointStudy = R"(title = "Scaling"
paper = "A paper"
question = "Is it linear?"
base = "base.toml"
baseline = "behind"

[scaling]
points = [1, 2, 4]
alone = "one"
measured = ["threads"]
measured_points = [1, 2]

[size.quick]
samples = 800
measured_samples = 80
seeds = [1]
points = [1, 4]

[size.default]
samples = 8000
measured_samples = 400
seeds = [1, 2]

[[arm]]
name = "one"

[[arm]]
name = "behind"
set = ["parallel.servers=2"]

[[arm]]
name = "threads"
set = ["transport.clock.type=wall"]
)";

StudyFile point_study(const std::string& text, const std::string& folder, const std::string& base = kBase) {
  write_text(folder + "/base.toml", base);
  write_text(folder + "/study.toml", text);
  return read_study(folder + "/study.toml");
}

/// "behind.4: 100 steps".
std::vector<std::string> described(const StudyFile& study) {
  std::vector<std::string> out;
  for (const StudyArm& arm : study.arms)
    out.push_back(arm.arm.name + ": " + std::to_string(arm.arm.steps) + " steps");
  return out;
}

TEST(ScalingPoints, EveryArmRunsAtEveryPointOverTheSameSamples) {
  const StudyFile study = point_study(kPointStudy, fresh_folder("points"));
  const Size& size = *study.size("default");
  const StudyFile points = at_points(study, size);
  // 8000 samples in slots of trainers x 10 x 2, and 400 under the wall clock.
  EXPECT_THAT(described(points), ElementsAre("one.1: 400 steps", "behind.2: 200 steps", "behind.4: 100 steps",
                                             "threads.1: 20 steps", "threads.2: 10 steps"));
  EXPECT_EQ(point_count(study, size), 5u);
  EXPECT_EQ(points.arms[2].of, "behind");
  EXPECT_EQ(points.arms[2].trainers, 4);
  EXPECT_THAT(points.arms[2].arm.set, ElementsAre("parallel.servers=2", "parallel.ranks=4"));
  EXPECT_THAT(
      described(at_points(study, *study.size("quick"))),
      ElementsAre("one.1: 40 steps", "behind.4: 10 steps", "threads.1: 4 steps", "threads.2: 2 steps"));
}

TEST(ScalingPoints, WithoutAnArmForOneTrainerAllHaveThatPoint) {
  const StudyFile study =
      point_study(replaced(kPointStudy, "alone = \"one\"\n", ""), fresh_folder("points_own"));
  EXPECT_THAT(described(at_points(study, *study.size("default"))), Contains("behind.1: 400 steps"));
}

TEST(ScalingPoints, OfOneClockAndPointAreBaselines) {
  const StudyFile study = point_study(kPointStudy, fresh_folder("points_baseline"));
  const StudyFile points = at_points(study, *study.size("default"));
  for (const StudyArm& arm : points.arms)  // "threads.2" and "behind.2" are of two clocks
    EXPECT_EQ(arm.baseline, arm.arm.name);
  const StudyFile two =
      at_points(point_study(replaced(kPointStudy, "[[arm]]\nname = \"threads\"",
                                     "[[arm]]\nname = \"front\"\n\n[[arm]]\nname = \"threads\""),
                            fresh_folder("points_baseline_two")),
                *study.size("default"));
  EXPECT_EQ(two.arm("front.4")->baseline, "behind.4");
}

TEST(ScalingPoints, BecomeTheirOwnCommandLines) {
  const std::string folder = fresh_folder("points_jobs");
  const StudyFile study = point_study(kPointStudy, folder);
  ab::RunnerOptions options;
  options.folder = folder + "/out";
  options.program = "tenon";
  const Size& size = *study.size("default");
  const Plan plan = make_plan(at_points(study, size), size, options,
                              [](const std::string& path, const std::vector<std::string>& sets) {
                                return ResolvedRun{Config::load(path, sets).root(), {}};
                              });
  ASSERT_EQ(plan.runs.size(), 10u);
  const auto found = std::find_if(plan.runs.begin(), plan.runs.end(), [](const PlannedRun& run) {
    return run.job.parent.ends_with("/runs/behind.4/2");
  });
  ASSERT_NE(found, plan.runs.end());
  EXPECT_THAT(found->job.command, Contains("run.steps=100"));
  EXPECT_THAT(found->job.command, Contains("parallel.ranks=4"));
  EXPECT_EQ(flatten(plan.arms[found->job.arm].root).at("run.steps"), "100");
}

/// The message of the Error that `body` throws.
template <typename Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(ScalingPoints, WhatCannotBeMeasuredIsRefused) {
  const std::string folder = fresh_folder("points_refused");
  const auto said = [&](const std::string& text, const std::string& base) {
    const StudyFile study = point_study(text, folder, base);
    return refusal([&] { at_points(study, *study.size("default")); });
  };
  EXPECT_EQ(said(kPointStudy, "[transport.clock]\ntype = \"simulated\"\n"),
            "tenon reproduce: arm 'one' has no data.batch; a study of scaling needs it in the configuration, "
            "to count "
            "steps by samples");
  EXPECT_EQ(
      said(replaced(kPointStudy, "samples = 8000", "samples = 8040"), kBase),
      "tenon reproduce: arm 'behind' at 4 trainers: 8040 samples are not whole slots of 4 x 20 samples; the "
      "nearest that are: 8000");
  EXPECT_EQ(said(replaced(kPointStudy, "measured = [\"threads\"]", ""), kBase),
            "tenon reproduce: arm 'threads' runs under the wall clock, which belongs into another table; "
            "name the arm "
            "in scaling.measured, or set transport.clock.type=simulated");
  EXPECT_EQ(
      said(replaced(kPointStudy, "measured = [\"threads\"]", "measured = [\"threads\", \"behind\"]"), kBase),
      "tenon reproduce: arm 'behind' runs under the simulated clock, but stands in scaling.measured; set "
      "transport.clock.type=wall, or take it out");
}

struct WrongPoints {
  const char *from, *to, *message;
};

TEST(ScalingFile, ErrorsNamePlaceAndProblem) {
  const std::string folder = fresh_folder("scaling_wrong");
  const WrongPoints cases[] = {
      {"points = [1, 2, 4]", "points = [1, 4, 2]", ":8:10: scaling.points: 2 follows 4; values must ascend"},
      {"points = [1, 2, 4]", "points = [0, 2]",
       ":8:10: scaling.points: 0 is not a number of trainers; expected 1 or more"},
      {"points = [1, 2, 4]", "points = []", "scaling.points: name at least one number of trainers"},
      {"points = [1, 2, 4]", "pionts = [1, 2, 4]", "did you mean 'points'?"},
      {"points = [1, 4]", "points = [4, 1]", ":17:10: size.quick.points: 1 follows 4; values must ascend"},
      {"alone = \"one\"", "alone = \"on\"",
       ":9:9: scaling.alone: no arm is called 'on'; did you mean 'one'?"},
      {"alone = \"one\"", "alone = \"threads\"",
       "scaling.alone: the run that speedups refer to cannot be under another clock than they are"},
      {"measured = [\"threads\"]", "measured = [\"thread\"]",
       ":10:13: scaling.measured[0]: no arm is called 'thread'; did you mean 'threads'?"},
      {"name = \"behind\"", "name = \"behind\"\nsteps_over = 2",
       "arm[1].steps_over: a study of scaling counts samples, and has no steps to divide"},
      {"samples = 8000", "steps = 8000",
       ":20:9: size.default.steps: a study of scaling fixes samples: the steps of a point are samples / "
       "(trainers x "
       "batch)"},
      {"samples = 8000\n", "",
       "size.default.samples: how many samples does every run use? e.g. samples = 1000000"},
      {"measured_samples = 400\n", "",
       "size.default.measured_samples: how many samples does a run under the wall clock use?"},
      {"[scaling]\npoints = [1, 2, 4]\nalone = \"one\"\nmeasured = [\"threads\"]\nmeasured_points = [1, 2]\n",
       "", "size.default.samples: only a study with a table [scaling] has this; others say steps"},
  };
  for (const WrongPoints& wrong : cases) {
    SCOPED_TRACE(wrong.to);
    EXPECT_THAT(refusal([&] { point_study(replaced(kPointStudy, wrong.from, wrong.to), folder); }),
                HasSubstr(wrong.message));
  }
}

TEST(ScalingFile, TheListSaysHowManyRunsThereAre) {
  EXPECT_THAT(list_text({point_study(kPointStudy, fresh_folder("scaling_list"))}),
              HasSubstr("  --quick   3 arms at up to 2 numbers of trainers x 1 seed, 800 samples a run\n"));
}

}  // namespace
}  // namespace tenon::reproduce
