// The section about ranks: parts, bytes, distributions and timelines of files written by hand.
#include "report/communication.hpp"
#include "report/pages.hpp"
#include "report/testing_runs.hpp"

#include <gmock/gmock.h>

#include <fmt/format.h>

namespace tenon::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Communication : public RunFolders {
 protected:
  std::string with_ranks() const {
    const std::string folder = run("tiny");
    const std::string rank = R"({"compute_s": 6, "exposed_s": 2, "late_s": 1, "data_s": 0.5, "evaluate_s": 0,
      "save_s": 0, "other_s": 0.5, "total_s": 10, "overlapped_s": 3,
      "purposes": {"gradient": {"bytes_sent": 4000, "operations": 20, "blocked_s": 3, "late_s": 1, "transfer_s": 5}}})";
    write("tiny/1/summary.json",
          "{\"status\": \"completed\", \"steps\": 5, \"samples\": 80, \"tokens\": 800, \"wall_s\": 2.5, "
          "\"bytes_sent\": 0, \"metrics\": {}, \"weights_hash\": \"w\", \"state_hash\": \"s\", "
          "\"communication\": [" +
              rank + "," + rank +
              "], \"distributions\": {\"sync_gap\": {\"count\": 9, "
              "\"mean\": 4.5, \"min\": 1, \"max\": 17, \"not_positive\": 0, "
              "\"histogram\": {\"1\": 2, \"4\": 6, \"16\": 1}}}}");
    return folder;
  }
  void timeline(int rank, double wait) const {
    std::string events =
        "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"rank\"}}";
    for (int slot = 0; slot < 9; ++slot) {
      const auto event = [&](const char* track, const char* name, double at, double length) {
        events += fmt::format(
            ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":1,\"ts\":{:.3f},\"dur\":{:."
            "3f},"
            "\"args\":{{\"slot\":{}}}}}",
            name, track, rank, 1e6 * (slot + at), 1e6 * length, slot);
      };
      event("compute", "forward", 0, 0.3);
      event("compute", "backward", 0.3, 0.4);
      event("wait", "all-reduce", 0.7, slot == 6 ? wait : 0.01);
      event("overlap", "all-reduce", 0.5, 0.2);
    }
    write(fmt::format("tiny/1/trace.rank{}.json", rank), events + "\n]\n");
  }
};

TEST_F(Communication, PartsBytesAndDistributionsAreOnThePage) {
  const std::string page = run_page(load_run(with_ranks()));
  EXPECT_THAT(page,
              AllOf(HasSubstr("<h2>Ranks</h2>"), HasSubstr("waiting for ranks"), HasSubstr("60.0 %"),
                    HasSubstr("<code>gradient</code>"), HasSubstr("8 kB"), HasSubstr("sync_gap: mean 4.5")));
  EXPECT_THAT(page, Not(HasSubstr("<h3>Timeline</h3>"))) << "nobody traced";
}

TEST_F(Communication, TheTimelineShowsTheSlotsAroundTheMostCommunication) {
  const std::string folder = with_ranks();
  timeline(0, 0.25);
  timeline(1, 0.01);
  const auto files = make_posix_files();
  const CommunicationFacts facts = read_communication(*files, folder);
  ASSERT_EQ(facts.timelines.size(), 2u);
  EXPECT_EQ(facts.timelines[0].size(), 36u);
  const std::string section = communication_section(facts);
  EXPECT_THAT(section, AllOf(HasSubstr("<h3>Timeline</h3>"), HasSubstr("Slots 4 to 7"), HasSubstr("slot 6")));
}

TEST_F(Communication, ATraceThatWasCutShortAndASummaryThatIsDamaged) {
  const std::string folder = with_ranks();
  timeline(0, 0.1);
  write("tiny/1/trace.rank1.json",
        "[\n{\"ph\":\"X\",\"name\":\"forward\",\"cat\":\"compute\",\"ts\":1.0,\"dur\":2.0},\n{\"ph\":\"X\","
        "\"na");
  const auto files = make_posix_files();
  EXPECT_EQ(read_communication(*files, folder).timelines.at(1).size(), 1u);
  for (const char* text :
       {"{\"communication\": [3]}", "{\"communication\": 7}", "{\"distributions\": {\"a\": 1}}"}) {
    write("tiny/1/summary.json", text);
    try {
      communication_section(read_communication(*files, folder));
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("summary.json")) << text;
    }
  }
}

}  // namespace
}  // namespace tenon::report
