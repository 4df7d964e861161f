// Rehearses checkpoints whose rows the policy encodes: increments hold the changed rows, encoded rows are
// restored as their decoded values (P4, P24), and exact ones unchanged.
#include "lookup.hpp"

#include <tenon/checkpoint.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

namespace rehearsal::quantised_rows_test {
namespace {

using namespace tenon;

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.quantised", .version = "1.0.0", .summary = "rows"},
                    Lookup)

std::vector<std::string> sets(const std::string& recovery, int steps) {
  return {"model.layer=[{name='loss', type='lookup', inputs=['x']}]",
          "optimizer={type='rowwise_adagrad', lr=0.05}",
          "recovery={type='checknrun', every=4, keep=100, async=false" + recovery + "}",
          "run.steps=" + std::to_string(steps)};
}

/// Weights of the generation at `slot`, as a run would restore them.
std::vector<float> weights_at(const Folder& folder, const std::string& run, std::int64_t slot) {
  const auto files = make_posix_files();
  CheckpointStore store(*files, folder.path + "/" + run + "/1/checkpoints", {});
  CheckpointReader reader = store.open(slot);
  std::vector<float> rows(kRows * kWidth);
  for (const TensorSpec& tensor : reader.tensors()) {
    if (tensor.name.ends_with("model/rows")) reader.read(tensor.name, {rows.data(), Shape{kRows, kWidth}});
  }
  EXPECT_NE(rows, std::vector<float>(rows.size()));
  return rows;
}

std::int64_t bytes_of(const Folder& folder, const std::string& run, std::int64_t slot) {
  return static_cast<std::int64_t>(std::filesystem::file_size(
      folder.path + "/" + run + "/1/checkpoints/step-" + std::to_string(slot) + "/rank0.safetensors"));
}

TEST(QuantisedRows, P24_IncrementsGiveTheBytesOfCompleteCheckpoints) {
  const Folder folder;
  std::vector<std::string> complete = sets("", 24);
  complete[2] = "recovery={type='full', every=4, keep=100, async=false}";
  train(plugin, "", complete, folder, "full");
  for (const std::string policy : {"one_shot", "consecutive", "intermittent"}) {
    train(plugin, "", sets(", increments='" + policy + "'", 24), folder, policy);
    for (std::int64_t slot = 4; slot <= 24; slot += 4)
      EXPECT_EQ(weights_at(folder, policy, slot), weights_at(folder, "full", slot)) << policy << slot;
    EXPECT_LT(bytes_of(folder, policy, 8), bytes_of(folder, "full", 8) / 4) << "eight rows of 512 changed";
  }
  EXPECT_LT(bytes_of(folder, "consecutive", 24), bytes_of(folder, "one_shot", 24));
}

TEST(QuantisedRows, ARunContinuedFromExactIncrementsHasTheSameBits) {
  const Folder folder;
  const RunResult whole = train(plugin, "", sets("", 24), folder, "whole");
  std::vector<std::string> crash = sets("", 24);
  crash[0] = "model.layer=[{name='loss', type='lookup', inputs=['x'], crash_at=14}]";
  EXPECT_EQ(try_train(plugin, "", crash, folder, "cut", false).status, "failed");
  const RunResult resumed = train(plugin, "", sets("", 24), folder, "cut", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

TEST(QuantisedRows, ARollBackReadsDecodedRows) {
  for (const std::string bits : {"8", "4", "2"}) {
    const Folder folder;
    std::vector<std::string> with_failure = sets(", bits='" + bits + "'", 9);
    with_failure.emplace_back("emulate={hours=9.0, shards=2, failure=[{hour=8.0, shards=[0]}]}");
    // Failure and roll-back at slot 8, where there is a checkpoint: slot 8 runs on decoded rows.
    const RunResult back = train(plugin, "", with_failure, folder, "back");
    const RunResult calm = train(plugin, "", sets(", bits='" + bits + "'", 9), folder, "calm");
    EXPECT_NE(back.weights_hash, calm.weights_hash) << "rows were rounded once";
    const auto files = make_posix_files();
    const std::string log = read_text(*files, folder.path + "/back/1/recovery.jsonl", 1 << 20);
    EXPECT_THAT(log, ::testing::HasSubstr("\"action\":\"roll_back\",\"from_slot\":8"));
    // Those of the run that was rolled back differ from those of the other by at most one more rounding.
    EXPECT_NEAR(back.metrics.at("val/loss"), calm.metrics.at("val/loss"),
                0.02 * std::abs(calm.metrics.at("val/loss")));
  }
}

}  // namespace
}  // namespace rehearsal::quantised_rows_test
