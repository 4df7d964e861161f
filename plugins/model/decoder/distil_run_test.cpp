// Whole runs of a `decoder` that learns from a stored one: its losses fall and its metrics are reported, the
// teacher's run is left as it was, a run that goes on after a stop has the bits of one that never stopped,
// and a model that learned is itself a teacher.
#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/runtime.hpp>
#include <tenon/testing/folders.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace tenon::testing::distil_run {
namespace {

constexpr const char* kRun = R"(
[run]
name = "distil"
log_every = 1
eval_batches = 2
seed = 3
[device]
type = "cpu"
threads = 1
[data]
type = "text"
context = 16
batch = 2
[optimizer]
type = "adamw"
lr = 3e-3
[recovery]
type = "full"
every = 5
)";
constexpr const char* kTeacher =
    "[model]\ntype = 'decoder'\npattern = '*-*-'\nwidth = 32\nheads = 2\nhidden = 48\n";
constexpr const char* kStudent =
    "[model]\ntype = 'decoder'\npattern = '*-'\nwidth = 16\nheads = 2\nhidden = 24\n";

RunResult run_of(const std::string& model, const std::string& folder, int steps, bool resume = false) {
  Runtime runtime;
  runtime.discover({});
  TrainRequest request;
  request.run_dir = folder;
  request.resume = resume;
  request.quiet = true;
  return runtime.train(Config::parse(kRun + model, "distil.toml", {fmt::format("run.steps={}", steps)}),
                       request);
}

RunResult whole_run(const std::string& model, const std::string& folder, int steps, bool resume = false) {
  RunResult result = run_of(model, folder, steps, resume);
  EXPECT_EQ(result.status, "completed") << result.error;
  return result;
}

/// Every file below a folder, by path.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

class DistilRuns : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    whole_run(kTeacher, path("teacher"), 10);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string distil(const std::string& more, const std::string& teacher = "teacher") const {
    return fmt::format("{}[model.distil]\nteacher = '{}'\n{}", kStudent, path(teacher), more);
  }
};

TEST_F(DistilRuns, LearnAndLeaveTheTeacherAsItIs) {
  const auto before = contents(path("teacher"));
  const std::string model =
      distil("losses = ['tokens', 'logits', 'hidden']\nbalance = 'equal'\nproject = true\n");
  const RunResult first = whole_run(model, path("short"), 1), last = whole_run(model, path("long"), 40);
  EXPECT_EQ(contents(path("teacher")), before);
  for (const char* metric : {"val/loss", "val/lm_loss", "val/logit_loss", "val/hidden_loss"}) {
    ASSERT_TRUE(last.metrics.contains(metric)) << metric;
    EXPECT_LT(last.metrics.at(metric), first.metrics.at(metric)) << metric;
  }
}

TEST_F(DistilRuns, ResumeToEqualBits) {
  const std::string model = distil("losses = ['logits', 'hidden']\nproject = true\ntemperature = 2\n");
  const RunResult whole = whole_run(model, path("whole"), 12);
  whole_run(model, path("parts"), 7);
  const RunResult resumed = whole_run(model, path("parts"), 12, true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

TEST_F(DistilRuns, AStudentIsATeacherToo) {
  whole_run(distil("losses = ['logits', 'tokens']\n"), path("second"), 10);
  whole_run(distil("losses = ['logits']\n", "second"), path("third"), 10);
}

}  // namespace
}  // namespace tenon::testing::distil_run
