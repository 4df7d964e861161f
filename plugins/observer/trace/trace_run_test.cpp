// A run of two ranks that average gradients: the contents of its timelines, and the rules by which viewers
// read them. Slices of one lane nest (here: are consecutive), and timestamps increase.
#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>

namespace tenon {
namespace {

using nlohmann::json;

constexpr const char* kRun = R"(
[run]
steps = 12
eval_every = 4
deadline = 60
[device]
type = "cpu"
threads = 1
[parallel]
ranks = 2
[transport]
type = "thread"
[data]
type = "text"
path = "FOLDER/text.txt"
context = 16
batch = 2
[model]
type = "gpt_neo"
layers = 2
width = 128
heads = 2
[optimizer]
type = "sgd"
lr = 0.01
[sync]
type = "ddp"
[recovery]
type = "full"
every = 6
[[observe]]
type = "trace"
)";

struct Slice {
  std::string track;
  double begin, end;
};

class TraceRun : public ::testing::Test {
 protected:
  TraceRun()
      : folder_(std::filesystem::temp_directory_path() / ("tenon-traced-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "the quick brown fox " << i << '\n';
  }
  ~TraceRun() override { std::filesystem::remove_all(folder_); }

  RunResult train(const std::vector<std::string>& sets, const std::string& name) {
    std::string toml = kRun;
    toml.replace(toml.find("FOLDER"), 6, folder_.string());
    Runtime runtime;
    runtime.discover({});
    TrainRequest request;
    request.run_dir = (folder_ / name).string();
    request.quiet = true;
    return runtime.train(Config::parse(toml, "run.toml", sets), request);
  }

  /// Returns slices by lane, and checks every rule of the format.
  static std::map<int, std::vector<Slice>> read(const std::string& folder, int rank) {
    std::ifstream file(folder + "/trace.rank" + std::to_string(rank) + ".json");
    const json events = json::parse(file);
    std::map<int, std::vector<Slice>> lanes;
    std::map<int, std::string> names;
    for (const json& event : events) {
      EXPECT_EQ(event.at("pid"), rank);
      const int lane = event.at("tid");
      if (event.at("ph") == "M") {
        if (event.at("name") == "thread_name") names[lane] = event.at("args").at("name");
        continue;
      }
      EXPECT_EQ(event.at("ph"), "X");
      const double begin = event.at("ts"), length = event.at("dur");
      EXPECT_GE(begin, 0);
      EXPECT_GE(length, 0);
      auto& slices = lanes[lane];
      if (!slices.empty()) {
        EXPECT_GE(begin, slices.back().begin) << "timestamps of a lane rise";
        EXPECT_GE(begin + 1e-3, slices.back().end) << "slices of a lane follow one another";
      }
      slices.push_back({event.at("cat"), begin, begin + length});
      EXPECT_TRUE(names.count(lane)) << "a lane is named before its first slice";
      EXPECT_TRUE(names[lane].starts_with(std::string(event.at("cat"))));
    }
    return lanes;
  }
  static int count(const std::map<int, std::vector<Slice>>& lanes, const std::string& track) {
    int sum = 0;
    for (const auto& [lane, slices] : lanes) {
      for (const Slice& slice : slices) sum += slice.track == track ? 1 : 0;
    }
    return sum;
  }

  std::filesystem::path folder_;
};

TEST_F(TraceRun, TwoRanksFollowTheNestingRules) {
  const RunResult result = train({}, "wall");
  ASSERT_EQ(result.error, "");
  for (const int rank : {0, 1}) {
    const auto lanes = read(result.folder, rank);
    EXPECT_EQ(count(lanes, "compute"), 36) << "forward, backward, optimizer";
    EXPECT_EQ(count(lanes, "data"), 12);
    EXPECT_GE(count(lanes, "communication"), 24);
    EXPECT_GE(count(lanes, "overlap"), 12) << "a bucket is on its way while backward goes on";
    EXPECT_EQ(count(lanes, "evaluate"), 3);
    EXPECT_GE(count(lanes, "save"), 2);
    // Overlap spans are beside the compute lane, not in it.
    for (const auto& [lane, slices] : lanes) {
      for (const Slice& slice : slices) EXPECT_EQ(slice.track, slices.front().track);
    }
  }
}

TEST_F(TraceRun, VirtualTimeIsTracedToo) {
  const RunResult result = train({"transport.clock.type=simulated", "transport.clock.compute_seconds=0.5",
                                  "transport.link.latency=0.001"},
                                 "simulated");
  ASSERT_EQ(result.error, "");
  const auto lanes = read(result.folder, 1);
  double declared = 0;
  for (const auto& [lane, slices] : lanes) {
    for (const Slice& slice : slices) {
      if (slice.track == "compute") declared += slice.end - slice.begin;
    }
  }
  EXPECT_NEAR(declared, 12 * 0.5e6, 1);
}

}  // namespace
}  // namespace tenon
