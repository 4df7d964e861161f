// The section of a run's page about its power: measured and modelled apart, shares never in watts, and
// messages for damaged files.
#include "report/power_section.hpp"
#include "report/pages.hpp"
#include "report/testing_runs.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace tenon::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string record(const std::string& sensor, const std::string& origin, const std::string& unit,
                   const std::string& ended = "") {
  return "{\"rank\": 0, \"source\": {\"type\": \"any\", \"ended\": \"" + ended + "\", \"sensor\": \"" +
         sensor + "\", \"origin\": \"" + origin + "\", \"unit\": \"" + unit +
         "\", \"rated\": null, \"rate_hz\": 100, \"rows\": 400, \"held_rows\": 4, \"seconds\": 4, "
         "\"update_hz\": 50, "
         "\"mean\": 0.25, \"lowest\": 0, \"highest\": 0.75" +
         (unit == "watts" ? ", \"joules\": 3.5, \"counted_joules\": null" : "") + "}}";
}

std::string trace(const std::string& unit) {
  std::string out = "# any\nseconds," + unit + "\n";
  for (int i = 0; i < 400; ++i) out += fmt::format("{:.6f},{:.4f}\n", 0.01 * i, i % 100 < 80 ? 0.75 : 0.0);
  return out;
}

class PowerSection : public RunFolders {};

TEST_F(PowerSection, ShowsReadingsAndSaysWhatTheyAre) {
  const std::string attempt = run("tiny");
  EXPECT_THAT(run_page(load_run(attempt)), Not(HasSubstr("<h2>Power</h2>"))) << "a run without [power]";
  write("tiny/1/power.rank0.json", record("a <model>", "modelled", "watts"));
  write("tiny/1/power.rank0.csv", trace("watts"));
  write("tiny/1/power.rank1.json", record("cores", "measured", "share"));
  write("tiny/1/power.rank1.csv", trace("share"));
  const std::string page = run_page(load_run(attempt));
  EXPECT_THAT(page,
              AllOf(HasSubstr("<h2>Power</h2>"), HasSubstr("a &lt;model&gt;"), HasSubstr("power, modelled"),
                    HasSubstr("share busy, a proxy, measured"), HasSubstr("0.25 W"), HasSubstr("3.5 J"),
                    HasSubstr("50 Hz of 100"), HasSubstr("1.0 %"), HasSubstr("rank 0, power, modelled")));
}

TEST_F(PowerSection, ShowsWhatEndedEarlyAndWhatActuatorsDid) {
  const std::string attempt = run("tiny");
  write("tiny/1/power.rank0.json",
        "{\"rank\": 0, \"source\": {\"type\": \"rapl\", \"ended\": \"no /sys/class/powercap\"}, "
        "\"actuator\": {\"type\": "
        "\"filler\", \"ended\": \"\", \"account\": {\"fills\": 12}}}");
  write("tiny/1/power.rank1.json",
        "{\"rank\": 1, \"actuator\": {\"type\": \"filler\", \"ended\": \"no thread\", \"account\": {}}}");
  EXPECT_THAT(run_page(load_run(attempt)), AllOf(HasSubstr("no /sys/class/powercap"), HasSubstr("fills 12"),
                                                 HasSubstr("given up: no thread")));
}

TEST_F(PowerSection, DamagedFilesAreNamedAndThePageIsThere) {
  const std::string attempt = run("tiny");
  write("tiny/1/power.rank0.json", record("cores", "measured", "share"));
  write("tiny/1/power.rank0.csv", "seconds,share\n0,0.5\n0.01,x\n");
  EXPECT_THAT(run_page(load_run(attempt)),
              AllOf(HasSubstr("power.rank0.csv:3: expected"), HasSubstr("<h2>Curves</h2>")));
  write("tiny/1/power.rank0.csv", "seconds,share\n0,0.5\n0.01,1.5\n");
  EXPECT_THAT(run_page(load_run(attempt)),
              HasSubstr("power.rank0.csv:3: 1.5 of a share, which is at most 1"));
  write("tiny/1/power.rank0.json", "{\"source\": ");
  EXPECT_THAT(run_page(load_run(attempt)),
              AllOf(HasSubstr("power.rank0.json: not a record of power"), HasSubstr("<h2>Curves</h2>")));
}

}  // namespace
}  // namespace tenon::report
