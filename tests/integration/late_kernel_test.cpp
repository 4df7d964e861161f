// A kernel that does not return ends the run by [run] deadline and is named, whichever process it spins in;
// one that is only slow does not.
#include "run_program.hpp"

namespace tenon::integration::late_kernel_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kDeadline = 2, kLaunchedDeadline = 10;  // processes take their time to find each other

/// Slot 3 of a run that saves after every second slot and evaluates before slot 4.
std::vector<std::string> sets(const std::string& pass, int ranks, double seconds,
                              double deadline = kDeadline) {
  const int slot = pass == "evaluation" ? 4 : 3;
  std::vector<std::string> words = {
      "--set",
      "model.insert=[{after = 'transformer.h.0.mlp.act', type = 'endless', name = 'spins', pass = '" + pass +
          "', slot = " + std::to_string(slot) + ", on_rank = " + std::to_string(ranks - 1) +
          ", seconds = " + std::to_string(seconds) + "}]",
      "--set",
      "run.deadline=" + std::to_string(deadline),
      "--set",
      "run.eval_every=4",
      "--set",
      "run.eval_batches=2"};
  if (ranks > 1) {
    for (const char* more : {"parallel.ranks=2", "sync.type=ddp", "transport.type=thread"})
      words.insert(words.end(), {"--set", more});
  }
  return words;
}

struct Place {
  const char* name;
  const char* pass;   ///< of the layer
  const char* named;  ///< in the message
  int ranks;
  bool launched;
};

class LateKernel : public ::testing::TestWithParam<Place> {};

TEST_P(LateKernel, EndsTheRunAndIsNamed) {
  const auto& [name, pass, named, ranks, launched] = GetParam();
  const Scratch scratch;
  std::vector<std::string> words = {"train", "run.toml", "--quiet"};
  const std::vector<std::string> more = sets(pass, ranks, 1e9, launched ? kLaunchedDeadline : kDeadline);
  words.insert(words.end(), more.begin(), more.end());
  if (launched) words.insert(words.begin(), {"launch", "-n", std::to_string(ranks), "--"});
  Child child({words, scratch.folder(), {{"TENON_PLUGIN_PATH", TENON_ENDLESS}}});
  const Ended ended = child.wait(60);
  EXPECT_EQ(ended.status, 1) << ended.signal << ended.err;
  const std::string place = "rank " + std::to_string(ranks - 1) + " in slot ";
  const auto says = AllOf(HasSubstr(place), HasSubstr(named), HasSubstr("layer.endless, node 'spins'"),
                          HasSubstr(launched ? "did not return within 10 s" : "did not return within 2 s"),
                          HasSubstr("device.kernels"), HasSubstr("1 thread(s)"), HasSubstr("run.deadline"));
  EXPECT_THAT(ended.err, says);
  EXPECT_EQ(scratch.summary("status"), "\"failed\"");
  EXPECT_THAT(scratch.summary("error"), says);
  EXPECT_THAT(read_file(scratch / "runs/tiny/latest" / ("log.rank" + std::to_string(ranks - 1) + ".txt")),
              says);
  EXPECT_THAT(read_file(scratch / "runs/tiny/latest/manifest.json"), HasSubstr("failed: "));
  EXPECT_TRUE(fs::exists(scratch / "runs/tiny/latest/metrics.jsonl"));
  // Earlier saves allow the run to continue.
  if (ranks > 1) return;
  const Ended resumed = scratch.train({"--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

INSTANTIATE_TEST_SUITE_P(Places, LateKernel,
                         ::testing::Values(Place{"forward", "forward", "during forward of", 1, false},
                                           Place{"backward", "backward", "during backward of", 1, false},
                                           Place{"evaluation", "evaluation",
                                                 "during an evaluation's forward of", 1, false},
                                           Place{"threads", "backward", "during backward of", 2, false},
                                           Place{"processes", "backward", "during backward of", 2, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LateKernels, OneThatIsOnlySlowIsWaitedFor) {
  const Scratch scratch;
  const Ended ended =
      scratch.train(sets("backward", 1, 0.6 * kDeadline), {{"TENON_PLUGIN_PATH", TENON_ENDLESS}});
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.status, 0) << ended.signal;
}

}  // namespace
}  // namespace tenon::integration::late_kernel_test
