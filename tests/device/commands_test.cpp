// The program's commands on runs of the device under test: their output equals that for a run of the
// processor, which starts from the same weights.
#include "device_test.hpp"
#include "run_program.hpp"

namespace tenon::testing::commands_test {
namespace {

using integration::Ended;
using integration::Scratch;
using ::testing::HasSubstr;

class Commands : public ::testing::Test {
 protected:
  Commands() {
    const Ended ended = scratch_.train({"--set", "device.type=" + tested_device()});
    EXPECT_EQ(ended.status, 0) << ended.err;
  }
  Ended run(const std::vector<std::string>& words) {
    Ended ended = scratch_.run(words);
    EXPECT_EQ(ended.status, 0) << words[0] << ": " << ended.err;
    return ended;
  }
  Scratch scratch_;
};

TEST_F(Commands, Evaluate) {
  const std::string words =
      run({"evaluate", "runs/tiny/1", "--json", "--write", "transformer.wte=values.npy"}).out;
  EXPECT_THAT(words, HasSubstr("\"val/loss\": " + scratch_.summary("val/loss")));
  EXPECT_GT(std::filesystem::file_size(scratch_ / "values.npy"), 128u);
}

TEST_F(Commands, ExportAndGenerate) {
  run({"export", "runs/tiny/1", "--out", "weights.safetensors"});
  EXPECT_GT(std::filesystem::file_size(scratch_ / "weights.safetensors"), 1000u);
  EXPECT_NE(run({"generate", "runs/tiny/1", "--prompt", "to", "--tokens", "4", "--seed", "3"}).out, "");
}

TEST_F(Commands, MeasureTheSameOnTheProcessor) {
  // A checkpoint is host memory: another device reads the same weights.
  const std::string here = run({"evaluate", "runs/tiny/1", "--json"}).out;
  const std::string there = run({"evaluate", "runs/tiny/1", "--json", "--set", "device.type=cpu"}).out;
  const auto loss = [](const std::string& json) {
    const std::size_t at = json.find("\"val/loss\": ");
    return at == std::string::npos ? -1.0 : std::stod(json.substr(at + 12));
  };
  // One forward pass of two layers and 2^8 terms in f32, in two orders.
  EXPECT_NEAR(loss(here), loss(there), loss(here) * 0x1p-24 * 0x1p8);
}

}  // namespace
}  // namespace tenon::testing::commands_test
