// `tenon reproduce` on studies that do not compare losses, from end to end: slabs of a Fourier operator,
// simulations by several workers, sites, the loads of runs, and fillers.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

namespace tenon::integration::reproduce_kinds_test {
namespace {

using ::testing::HasSubstr;

class ReproduceKinds : public ::testing::Test {
 protected:
  Ended reproduce(const std::string& study, const std::string& text) const {
    write_file(scratch_ / (study + ".toml"), text);
    return scratch_.run({"reproduce", study + ".toml", "--quick", "--out", study});
  }
  nlohmann::json table(const std::string& study) const {
    return nlohmann::json::parse(read_file(scratch_ / (study + "/table.json")));
  }
  Scratch scratch_;
};

constexpr const char* kSlabStudy = R"(title = "Slabs"
paper = "none"
question = "Does it run?"
base = ")" TENON_SOURCE_DIR R"(/configs/base/fno_darcy.toml"
metric = "train/loss"
baseline = "weak"
[slabs]
cut = 1
measured = [1, 2]
counted = [1, 2, 4]
predicted = [1, 2, 8]
[[slabs.link]]
name = "l"
bandwidth = 1e8
latency = 1e-4
[[slabs.problem]]
arm = "weak"
size = "quick"
points = [16, 2, 4, 4]
modes = [5, 1, 2, 2]
of_one_rank = true
[[slabs.problem]]
arm = "weak"
size = "default"
points = [16, 2, 4, 4]
modes = [5, 1, 2, 2]
of_one_rank = true
[size.quick]
steps = 4
seeds = [1]
[size.default]
steps = 4
seeds = [1]
[[arm]]
name = "weak"
title = "small slabs"
set = ["model.width=3", "model.layers=2", "model.projection=8", "model.padding=[0]"]
)";

TEST_F(ReproduceKinds, SlabsAreMeasuredCountedAndPredicted) {
  const Ended ended = reproduce("slabs", kSlabStudy);
  ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  const auto json = table("slabs");
  EXPECT_TRUE(json["complete"].get<bool>()) << json["warnings"];
  EXPECT_FALSE(json["quotable"].get<bool>());
  const auto& points = json["slabs"][0]["points"];
  ASSERT_EQ(points.size(), 4u);
  for (const auto& point : points) {
    const std::int64_t ranks = point["ranks"];
    SCOPED_TRACE(ranks);
    EXPECT_GT(point["compute_s_measured"].get<double>(), 0);
    const auto& link = point["links"][0];
    if (ranks == 2 || ranks == 4) {
      EXPECT_EQ(point["bytes_counted"], point["bytes_by_formula"]) << "10 modes are no equal parts for 4";
      EXPECT_NEAR(point["link_s_simulated"].get<double>() / link["link_s_by_formula"].get<double>(), 1, 0.05);
    } else {
      EXPECT_TRUE(point["bytes_counted"].is_null());
    }
    EXPECT_EQ(point["threads_s_measured"].is_null(), ranks != 2);
    const double compute = points[0]["compute_s_measured"],
                 time = compute + link["link_s_by_formula"].get<double>();
    EXPECT_NEAR(link["efficiency_predicted"].get<double>(), compute / time, 1e-12);
    EXPECT_LE(link["efficiency_latencies_added"].get<double>(), link["efficiency_predicted"].get<double>());
  }
  const std::string text = read_file(scratch_ / "slabs/table.md");
  EXPECT_THAT(text, HasSubstr("### small slabs: weak scaling"));
  EXPECT_THAT(text, HasSubstr("- **weak**: small slabs: `model.width=3`, `model.layers=2`, "
                              "`model.projection=8`, `model.padding=[0]`\n"))
      << "what the study sets stands in the tables";
  EXPECT_THAT(text, HasSubstr("- simulated columns: seconds of the link, simulated\n"));
  EXPECT_TRUE(read_file(scratch_ / "slabs/figure.svg").starts_with("<svg"));
  EXPECT_THAT(reproduce("slabs", kSlabStudy).err,
              HasSubstr("reproduce: 4 runs kept, 0 to continue, 0 to start"));
}

TEST_F(ReproduceKinds, SlabsOfAnOperatorThatTheFormsDoNotKnowAreRefused) {
  const Ended ended = reproduce("slabs", replaced(kSlabStudy, "model.padding=[0]", "model.padding=[0.25]"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err,
              HasSubstr("arm 'weak': closed forms of slabs need model.padding = [0], found [0.25]"));
  EXPECT_FALSE(fs::exists(scratch_ / "slabs/runs"));
}

constexpr const char* kSimulationStudy = R"(title = "Flows"
paper = "none"
question = "Does it run?"
base = "flow.toml"
metric = "tasks/s"
baseline = "plain"
[map]
workers = [1, 2]
[size.quick]
samples = 6
seeds = [1]
[size.default]
samples = 6
seeds = [1]
[[arm]]
name = "plain"
[[arm]]
name = "killed"
set = ["simulate.crash_share=0.6"]
[[arm]]
name = "hanging"
set = ["simulate.hang_share=0.6", "simulate.task_timeout_s=0.3"]
)";

TEST_F(ReproduceKinds, P17_SimulationsHaveTheBitsOfOneWorkerWhateverFails) {
  write_file(
      scratch_ / "flow.toml",
      "[simulate]\nsamples = 1\n[simulator]\ntype = \"buckley_leverett\"\ncells = 30\nsnapshots = 1\n");
  const Ended ended = reproduce("flows", kSimulationStudy);
  ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  const auto json = table("flows");
  EXPECT_TRUE(json["complete"].get<bool>()) << json["warnings"];
  ASSERT_EQ(json["map"].size(), 6u);
  for (const auto& point : json["map"]) {
    SCOPED_TRACE(point["arm"].get<std::string>());
    EXPECT_EQ(point["finished"], 6);
    EXPECT_EQ(point["samples_equal"], 6);
    EXPECT_EQ(point["samples_compared"], 6);
    EXPECT_GT(point["tasks_per_s_measured"]["mean"].get<double>(), 0);
    EXPECT_EQ(point["repeated"] > 0, point["arm"] != "plain");
    EXPECT_EQ(point["lost_workers"] > 0, point["arm"] == "killed");
  }
  EXPECT_EQ(json["map"][0]["efficiency_measured"]["mean"], 1);
  EXPECT_THAT(read_file(scratch_ / "flows/table.md"), HasSubstr("| killed | 2 | plain |"));
  EXPECT_THAT(reproduce("flows", kSimulationStudy).err, HasSubstr("reproduce: 6 runs kept, 0 to start"));
  // Another configuration is another run, beside the old one.
  const Ended changed = reproduce("flows", replaced(kSimulationStudy, "crash_share=0.6", "crash_share=0.3"));
  EXPECT_THAT(changed.err, HasSubstr("reproduce: killed by 1 workers, seed 1 starts again: attempt 1 is of "
                                     "another configuration"));
  EXPECT_TRUE(fs::exists(scratch_ / "flows/runs/killed.1/1/1/output.log"));
  EXPECT_TRUE(fs::exists(scratch_ / "flows/runs/killed.1/1/2/output.log"));
}

TEST_F(ReproduceKinds, ASimulationThatCannotRunIsRefusedBeforeAnyRun) {
  write_file(scratch_ / "flow.toml", "[simulate]\nsamples = 1\n[simulator]\ntype = \"buckley_leverett\"\n");
  const Ended ended =
      reproduce("flows", replaced(kSimulationStudy, "simulate.crash_share=0.6", "simulate.crash_shar=0.6"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err,
              HasSubstr("flows at size quick cannot run here, and nothing was started. Arm 'killed'"));
  EXPECT_THAT(ended.err, HasSubstr("did you mean 'crash_share'?"));
}

constexpr const char* kSitesStudy = R"(title = "Floors"
paper = "none"
question = "Does it run?"
base = ")" TENON_SOURCE_DIR R"(/configs/power/two_level_site.toml"
metric = "energy"
baseline = "none"
[sites]
[[sites.arm]]
arm = "square"
closed_form = true
[[sites.arm]]
arm = "drawn"
step_jitter = 0.02
[size.quick]
seeds = [1, 2]
set = ["power.repeat=20", "power.rate_hz=200"]
[size.default]
seeds = [1]
[[arm]]
name = "none"
[[arm]]
name = "square"
set = ["power.policy=[{at='worker', type='floor_ramp', floor=0.9}]"]
[[arm]]
name = "drawn"
set = ["power.policy=[{at='worker', type='floor_ramp', floor=0.9}, {at='site', type='bess', capacity_s=2.0}]"]
)";

TEST_F(ReproduceKinds, SitesAreSimulatedAndComparedWithClosedForms) {
  const Ended ended = reproduce("sites", kSitesStudy);
  ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  const auto json = table("sites");
  EXPECT_TRUE(json["complete"].get<bool>()) << json["warnings"];
  ASSERT_EQ(json["sites"].size(), 3u);
  const auto& square = json["sites"][1];
  const double closed = 100 * 0.18 * 0.6 / (0.3 + 0.82 * 0.7);
  EXPECT_NEAR(square["energy_percent_computed"].get<double>(), closed, 1e-9);
  EXPECT_NEAR(square["energy_percent_modelled"].get<double>(), closed, 1e-9);
  EXPECT_EQ(square["runs"][0]["energy_percent_modelled"], square["runs"][1]["energy_percent_modelled"]);
  const auto& drawn = json["sites"][2]["runs"];
  EXPECT_NE(drawn[0]["mean_modelled"], drawn[1]["mean_modelled"]) << "each seed draws its own steps";
  EXPECT_LT(drawn[0]["verdict_modelled"][2]["value"].get<double>(), 0.1) << "range of floor and battery";
  EXPECT_THAT(read_file(scratch_ / "sites/table.md"), HasSubstr("### Against the limits, modelled"));
  EXPECT_TRUE(read_file(scratch_ / "sites/figure.svg").starts_with("<svg"));
}

TEST_F(ReproduceKinds, ASiteThatCannotBeSimulatedNamesItsArm) {
  const Ended ended = reproduce("sites", replaced(kSitesStudy, "capacity_s=2.0", "capacity=2.0"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("sites at size quick: arm 'drawn': "));
  EXPECT_THAT(ended.err, HasSubstr("capacity"));
  const Ended levels =
      reproduce("levels", replaced(kSitesStudy, "floor=0.9}]\"", "floor=0.9, ramp_down=0.5}]\""));
  EXPECT_EQ(levels.status, 1) << "ramps are not in the closed form";
  EXPECT_FALSE(table("levels")["complete"].get<bool>());
}

constexpr const char* kStrategiesStudy = R"(title = "Strategies"
paper = "none"
question = "Does it run?"
base = ")" TENON_SOURCE_DIR R"(/configs/reproduce/shakespeare_micro_clock.toml"
metric = "train/loss"
baseline = "ddp"
[run_sites]
site = ")" TENON_SOURCE_DIR R"(/configs/power/two_level_site.toml"
set = ["power.workers.count=8", "power.rate_hz=500", "power.repeat=10"]
compute_s = 0.4
exchange_s = 0.36
first = 8
[[run_sites.arm]]
arm = "ddp"
closed_form = true
[[run_sites.arm]]
arm = "diloco"
slots = 8
closed_form = true
[size.quick]
steps = 24
seeds = [1]
[size.default]
steps = 24
seeds = [1]
[[arm]]
name = "ddp"
[[arm]]
name = "overlap"
set = ["sync.bucket_mb=0"]
[[arm]]
name = "diloco"
set = ["sync={type='diloco', interval=8}"]
)";

TEST_F(ReproduceKinds, LoadsOfRunsFollowTheirDuty) {
  const Ended ended = reproduce("strategies", kStrategiesStudy);
  ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  const auto json = table("strategies");
  EXPECT_TRUE(json["complete"].get<bool>()) << json["warnings"];
  const auto& loads = json["run_sites"];
  ASSERT_EQ(loads.size(), 3u);
  EXPECT_NEAR(loads[0]["duty_simulated"].get<double>(), 0.4 / 0.76, 1e-5) << "the declared update computes";
  EXPECT_NEAR(loads[0]["band_percent_modelled"].get<double>(), 97.7, 1);
  EXPECT_NEAR(loads[0]["variance_ratio_modelled"].get<double>(), 1, 1e-12);
  const double overlapped = loads[1]["variance_ratio_modelled"];
  EXPECT_LT(overlapped, 0.9);
  EXPECT_NEAR(overlapped / loads[1]["variance_ratio_of_duties"].get<double>(), 1, 0.05);
  EXPECT_TRUE(loads[1]["duty_computed"].is_null());
  EXPECT_NEAR(loads[2]["duty_simulated"].get<double>(), 3.2 / 3.56, 1e-5);
  EXPECT_NEAR(loads[2]["line_hz_modelled"].get<double>() * 3.56, 1, 0.05);
  EXPECT_NEAR(loads[2]["variance_ratio_modelled"].get<double>(), 0.365, 0.365 * 0.05);
  EXPECT_NEAR(loads[2]["range_modelled"].get<double>(), 0.7, 1e-9) << "rounds leave the range as it is";
  EXPECT_THAT(read_file(scratch_ / "strategies/table.md"), HasSubstr("### Swing of the load"));
}

TEST_F(ReproduceKinds, ARunThatDoesNotKeepTheStudysTimesIsNotComplete) {
  const Ended ended =
      reproduce("strategies", replaced(kStrategiesStudy, "exchange_s = 0.36", "exchange_s = 0.2"));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.out, HasSubstr("ddp: duty 0.5263, by closed form 0.6667"));
}

constexpr const char* kFillerStudy = R"(title = "Filler"
paper = "none"
question = "Does it run?"
base = ")" TENON_SOURCE_DIR R"(/configs/reproduce/shakespeare_tiny_wait.toml"
metric = "train/loss"
baseline = "off"
[filler]
site = ")" TENON_SOURCE_DIR R"(/configs/power/two_level_site.toml"
set = ["power.rate_hz=1000", "power.repeat=20"]
policy = "target=1.0, block=0.05, most_blocks=20, gain=1.0"
delays_s = [0.005, 0.05]
[size.quick]
steps = 6
seeds = [1]
[size.default]
steps = 6
seeds = [1]
[[arm]]
name = "off"
[[arm]]
name = "on"
set = ["power.actuator={type='filler'}"]
)";

TEST_F(ReproduceKinds, AFillerIsModelledLateAndMeasuredHere) {
  const Ended ended = reproduce("filler", kFillerStudy);
  ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  const auto json = table("filler");
  EXPECT_TRUE(json["complete"].get<bool>()) << json["warnings"];
  const auto& late = json["filler_modelled"];
  ASSERT_EQ(late.size(), 3u);
  EXPECT_TRUE(late[0]["delay_s"].is_null());
  EXPECT_EQ(late[0]["energy_percent"], 0.0);
  EXPECT_LT(late[1]["band_share"].get<double>(), 0.1);
  EXPECT_GT(late[2]["band_share"].get<double>(), late[1]["band_share"].get<double>()) << "later is worse";
  const auto& on = json["filler_measured"][1]["runs"][0];
  EXPECT_TRUE(on["same_weights"].get<bool>());
  EXPECT_GT(on["time_ratio"].get<double>(), 0);
  EXPECT_GE(on["account"]["fills"].get<double>(), 6);
  EXPECT_TRUE(json["filler_measured"][0]["runs"][0]["account"].empty());
  EXPECT_THAT(read_file(scratch_ / "filler/table.md"),
              HasSubstr("### What the real filler does here, measured"));
  EXPECT_TRUE(read_file(scratch_ / "filler/figure.svg").starts_with("<svg"));
}

}  // namespace
}  // namespace tenon::integration::reproduce_kinds_test
