// TensorBoard's own reader on the files of the observer `tensorboard`, a resumed run included.
#include "run_program.hpp"

#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <cstdio>

namespace tenon::integration {
namespace {

struct Said {
  int status = 0;
  std::string text;
};

Said read_with_tensorboard(const std::string& arguments) {
  const std::string command = std::string("'") + TENON_PEER_PYTHON + "' '" + TENON_SOURCE_DIR +
                              "/tests/peers/read_tensorboard.py' " + arguments + " 2>&1";
  Said said;
  FILE* pipe = ::popen(command.c_str(), "r");
  char block[4096];
  while (const std::size_t n = std::fread(block, 1, sizeof block, pipe)) said.text.append(block, n);
  said.status = WEXITSTATUS(::pclose(pipe));
  return said;
}

TEST(TensorBoardPeer, ReadsWhatWasWritten) {
  if (std::string(TENON_PEER_PYTHON).find("NOTFOUND") != std::string::npos) GTEST_SKIP() << "no Python 3";
  const Scratch scratch;
  Runtime runtime;
  runtime.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  TrainRequest request;
  request.run_dir = (scratch / "run").string();
  request.quiet = true;
  const auto train = [&](const std::string& more) {
    return runtime.train(Config::parse(std::string(Scratch::kRun) +
                                           "\n[[observe]]\ntype = \"tensorboard\"\nhistograms_every = 5\n",
                                       "run.toml",
                                       {"run.log_every=1", "run.eval_every=5", "recovery.every=10",
                                        "data.path=" + (scratch / "text.txt").string(), more}),
                         request);
  };
  // The checkpoint of slot 20 is lost, so the resumed run repeats slots that the first file shows.
  const RunResult first = train("run.steps=20");
  ASSERT_EQ(first.error, "");
  fs::remove_all(fs::path(first.folder) / "checkpoints" / "step-20");
  request.resume = true;
  const RunResult second = train("run.steps=30");
  ASSERT_EQ(second.error, "");
  ASSERT_EQ(second.folder, first.folder);
  const Said said = read_with_tensorboard("'" + first.folder + "' --histograms");
  std::cout << said.text;
  if (said.status == 77) GTEST_SKIP() << said.text;
  EXPECT_EQ(said.status, 0) << said.text;
  EXPECT_THAT(said.text, testing::HasSubstr("train/loss: step 30 "));
}

}  // namespace
}  // namespace tenon::integration
