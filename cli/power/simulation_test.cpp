// Whole simulations with the shipped policies: closed forms through the program's own files, the speed of the
// simulator, results for people and programs, and configurations that must be refused with file and line.
#include "power/figures.hpp"
#include "power/report.hpp"
#include "test_paths.hpp"

#include <tenon/runtime.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include <cmath>
#include <fstream>

namespace tenon::power {
namespace simulation_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSquare = R"(
[power]
levels = "square.toml"
spec = "@/configs/power/example_utility.toml"
rate_hz = 1000
repeat = 15
lead_s = 0
[[power.phase]]
name = "high"
seconds = 1.64
[[power.phase]]
name = "low"
seconds = 0.36
)";
constexpr const char* kSquareLevels = R"(
[levels]
name = "square"
rated_watts = 1000
[[level]]
phase = "high"
share = 1.0
activity = 1
[[level]]
phase = "low"
share = 0.3
[[level]]
phase = "idle"
share = 0.3
)";

class Site : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    runtime_.discover({});
    write("square.toml", kSquareLevels);
  }

  std::string file(std::string text) {
    if (const std::size_t at = text.find("@/"); at != std::string::npos)
      text.replace(at, 2, std::string(TENON_SOURCE_DIR) + "/");
    return write("site.toml", text);
  }

  SimulationResult run(const std::string& path, const std::vector<std::string>& sets = {}) {
    plan_ = read_plan(Config::load(path, sets), runtime_.registry(), path);
    testing::QuietHost host;
    std::vector<Component<Power>> components;
    std::vector<PowerPolicy*> policies;
    for (PolicyPlan& policy : plan_.policies) {
      components.push_back(runtime_.registry().create<Power>(policy.type, *policy.options, host));
      policies.push_back(static_cast<PowerPolicy*>(components.back()->query(PowerPolicy::kId)));
    }
    return simulate(plan_, policies);
  }

  std::string refusal(const std::string& text, const std::vector<std::string>& sets = {}) {
    try {
      run(file(text), sets);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      return error.what();
    }
    return "accepted";
  }

  Runtime runtime_;
  Plan plan_;
};

std::string policy(const std::string& at, const std::string& rest) {
  return "[[power.policy]]\nat = \"" + at + "\"\n" + rest + "\n";
}

TEST_F(Site, P4_FloorOverheadThroughTheWholeChain) {
  const SimulationResult result =
      run(file(kSquare + policy("worker", "type = \"floor_ramp\"\nfloor = 0.9\nceiling = 1.0")),
          {"power.workers.count=8"});
  ASSERT_EQ(result.stages.size(), 2u);
  const double closed = 0.18 * (0.9 - 0.3) / (0.3 + 0.82 * 0.7);
  EXPECT_NEAR(result.stages[1].energy_j / result.stages[0].energy_j - 1, closed, 1e-9);
  EXPECT_NEAR(result.stages[0].reading.range, 8 * 700, 1e-9);
  EXPECT_NEAR(result.stages[1].reading.range, 8 * 100, 1e-9);
  // The fundamental scales by (hi - f) / (hi - lo).
  EXPECT_NEAR(result.stages[1].reading.peak_amplitude / result.stages[0].reading.peak_amplitude, 0.1 / 0.7,
              1e-9);
  EXPECT_NEAR(result.stages[1].reading.band_share / result.stages[0].reading.band_share,
              std::pow(0.1 / 0.7, 2), 1e-9);
  EXPECT_NEAR(result.stages[0].reading.peak_hz, 0.5, 1e-9);
}

TEST_F(Site, StagesAreNamedInTheirOrder) {
  const SimulationResult result =
      run(file(kSquare + policy("worker", "type = \"filler\"") + policy("worker", "type = \"floor_ramp\"") +
               policy("site", "type = \"bess\"\ncapacity_s = 2.0")));
  std::vector<std::string> names;
  for (const Stage& stage : result.stages) names.push_back(stage.name);
  EXPECT_THAT(names, ElementsAre("unmitigated", "+ filler at each worker", "+ floor_ramp at each worker",
                                 "+ bess at the site"));
  EXPECT_LT(result.stages[3].reading.range, result.stages[0].reading.range);
}

TEST_F(Site, NumbersAreCalledModelled) {
  const SimulationResult result = run(file(kSquare + policy("site", "type = \"bess\"\ncapacity_s = 2.0")));
  EXPECT_THAT(table_markdown(plan_, result), HasSubstr("Every number on this page is modelled"));
  const json record = json::parse(result_json(plan_, result));
  EXPECT_EQ(record["label"], "modelled");
  EXPECT_EQ(record["stages"].size(), 2u);
  EXPECT_EQ(record["stages"][1]["verdict"].size(), 4u);
  for (const auto& [name, drawing] : figures(plan_, result))
    EXPECT_THAT(drawing, HasSubstr("modelled")) << name;
  const std::string csv = traces_csv(result);
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "seconds,modelled_w:unmitigated,modelled_w:+ bess at the site,modelled_charge_j:bess");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 30001);
  EXPECT_THAT(closing_text(plan_, result), ::testing::StartsWith("modelled: "));
}

TEST_F(Site, SixDrawingsForAllPolicies) {
  const SimulationResult result =
      run(std::string(TENON_SOURCE_DIR) + "/configs/power/square_site.toml", {"power.workers.count=4"});
  std::vector<std::string> names;
  for (const auto& [name, drawing] : figures(plan_, result)) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("time.svg", "spectrum.svg", "filler.svg", "floor.svg", "storage.svg", "stack.svg"));
}

TEST_F(Site, AHundredTimesRealTimeFor1024Workers) {
  const SimulationResult result = run(
      file(kSquare + policy("worker", "type = \"floor_ramp\"\nfloor = 0.65\nramp_up = 0.5\nramp_down = 0.5") +
           policy("site", "type = \"bess\"\ncapacity_s = 2.0\nramp_up = 0.1\nramp_down = 0.1")),
      {"power.workers.count=1024", "power.workers.jitter_s=0.05", "power.repeat=50"});
  const double times = result.stages[0].trace.seconds() / result.wall_s;
  std::printf("1,024 workers at 1 kHz: %.0f times real time\n", times);
  EXPECT_GT(times, 100);
}

TEST_F(Site, PhasesOfARunWithTwoRanks) {
  std::filesystem::create_directories(folder_ + "/run");
  const auto timeline = [](double shift) {
    std::string text = "[";
    const char* comma = "\n";
    for (int step = 0; step < 40; ++step) {
      const double begin = (step + shift) * 1e6;
      for (const auto& [track, at, length] :
           {std::tuple{"compute", 0.0, 0.7e6}, std::tuple{"communication", 0.7e6, 0.3e6}}) {
        text +=
            fmt::format("{}{{\"ph\":\"X\",\"name\":\"forward\",\"cat\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f}}}",
                        comma, track, begin + at, length);
        comma = ",\n";
      }
    }
    return text + "\n]\n";
  };
  write("run/trace.rank0.json", timeline(0));
  write("run/trace.rank1.json", timeline(0.1));
  std::string text =
      "[power]\ntrace = \"run\"\nlead_s = 0\nspec = \"@/configs/power/example_utility.toml\"\n";
  const SimulationResult measured = run(file(text), {"power.workers.count=4"});
  EXPECT_NEAR(measured.stages[0].reading.peak_hz, 1, 0.03);
  const double apart = measured.stages[0].reading.peak_amplitude;
  const SimulationResult aligned =
      run(file(text), {"power.workers.count=4", "power.workers.offsets=aligned"});
  // Two workers a tenth of a period apart: |1 + exp(0.2 i pi)| / 2.
  EXPECT_NEAR(apart / aligned.stages[0].reading.peak_amplitude, std::cos(0.1 * 3.14159265), 0.01);
}

TEST_F(Site, AResumedRunIsOneTimeline) {
  std::filesystem::create_directories(folder_ + "/run");
  // Steps of one second. The first attempt was killed in slot 30; the save before slot 20 was its last.
  const auto timeline = [](int first, int end, bool closed) {
    std::string text = "[";
    const char* comma = "\n";
    for (int step = first; step < end; ++step) {
      for (const auto& [track, at, length] :
           {std::tuple{"compute", 0.0, 0.7e6}, std::tuple{"communication", 0.7e6, 0.3e6}}) {
        text += fmt::format(
            "{}{{\"ph\":\"X\",\"name\":\"forward\",\"cat\":\"{}\",\"ts\":{:.3f},"
            "\"dur\":{:.3f},\"args\":{{\"slot\":{}}}}}",
            comma, track, (step - first) * 1e6 + at, length, step);
        comma = ",\n";
      }
    }
    return text + (closed ? "\n]\n" : ",\n{\"ph\":\"X\",\"na");
  };
  for (const char* rank : {"0", "1"}) {
    write(std::string("run/trace.rank") + rank + ".json", timeline(0, 30, false));
    write(std::string("run/trace.rank") + rank + ".slot20.json", timeline(20, 60, true));
  }
  const SimulationResult result =
      run(file("[power]\ntrace = \"run\"\nlead_s = 0\nspec = \"@/configs/power/example_utility.toml\"\n"));
  ASSERT_EQ(plan_.logs.size(), 2u);
  EXPECT_NEAR(plan_.logs[0].end_s(), 60, 1e-9) << "20 slots of the first attempt and 40 of the second";
  double idle = 0;
  for (const Phase& phase : plan_.logs[0].phases)
    idle += phase.name == "idle" ? phase.end_s - phase.begin_s : 0;
  EXPECT_NEAR(idle, 0, 1e-9) << "there is no gap";
  EXPECT_EQ(plan_.notes.size(), 2u) << "each first file is cut off";
  EXPECT_NEAR(result.job_s, 60, 1e-6);
}

TEST_F(Site, BadConfigurationsNameFileAndLine) {
  EXPECT_THAT(refusal("[powr]\n"),
              HasSubstr("site.toml:1:2: a simulation of power has no table 'powr'; did you mean 'power'?"));
  EXPECT_THAT(refusal(std::string(kSquare) + "[power.workers]\ncuont = 3\n"), HasSubstr("cuont"));
  EXPECT_THAT(refusal("[power]\nspec = \"@/configs/power/example_utility.toml\"\n"),
              HasSubstr("there are no phases"));
  const std::string floor =
      refusal(kSquare + policy("worker", "type = \"floor_ramp\"\nfloor = 0.9\nceiling = 0.5"));
  EXPECT_THAT(floor, HasSubstr("'floor' is 0.9, above the ceiling of 0.5"));
  const std::string battery = refusal(kSquare + policy("site", "type = \"bess\"\ncapacity_s = 0.0001"));
  EXPECT_THAT(battery, HasSubstr("site.toml:17:"));
  EXPECT_THAT(battery, HasSubstr("less than one sample of full swing"));
  EXPECT_THAT(refusal(kSquare + policy("site", "type = \"bess\"\ncapacity_s = 2.0") +
                      policy("worker", "type = \"floor_ramp\"")),
              HasSubstr("site.toml:18:1: a policy at a worker follows one at the site"));
  EXPECT_THAT(refusal(kSquare + policy("wrker", "type = \"floor_ramp\"")), HasSubstr("site.toml:15:"));
  EXPECT_THAT(refusal(kSquare + policy("worker", "type = \"flor_ramp\"")),
              HasSubstr("did you mean 'floor_ramp'?"));
  EXPECT_THAT(refusal(kSquare + policy("site", "type = \"bess\"\ncapacity_s = 2.0\ncharge_efficiency = 1.2")),
              HasSubstr("site.toml:18:"));
  EXPECT_THAT(refusal(kSquare + policy("worker", "tpye = \"floor_ramp\"")),
              HasSubstr("site.toml:16:1: [[power.policy]] has no option 'tpye'; did you mean 'type'?"));
  write("square.toml", "[levels]\nname = \"x\"\nrated_watts = 1\n[[level]]\nphase = \"idle\"\nshare = 1\n");
  EXPECT_THAT(refusal(kSquare), HasSubstr("there is no level of phase 'high' (known: idle)"));
  write("square.toml", "[levels]\nname = \"x\"\nrated_watts = 1\n");
  EXPECT_THAT(refusal(kSquare), HasSubstr("there is no [[level]] of phase 'idle'"));
  write("spec.toml",
        "[spec]\nname = \"x\"\nramp_up = 1\nramp_down = 1\nrange = 1\nband_share = 1\nbnad_low_hz = 2\n");
  write("square.toml", kSquareLevels);
  EXPECT_THAT(refusal(kSquare, {"power.spec=" + folder_ + "/spec.toml"}), HasSubstr("spec.toml:7:1: "));
  EXPECT_THAT(
      refusal(kSquare, {"power.repeat=5"}),
      HasSubstr(
          "site.toml:2:1: the trace lasts 10 s; the band's lower edge of 0.1 Hz needs at least two periods, "
          "20 s; raise repeat, or lower settle_s"));
}

}  // namespace simulation_test
}  // namespace tenon::power
