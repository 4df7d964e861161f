// Row tables in the memory of a device, in whole runs: wherever the rows are, the run has the same bits, and
// the shipped configuration of that kind trains.
#include "run_program.hpp"

#include <cmath>

namespace tenon::integration::zion_test {
namespace {

using ::testing::HasSubstr;
using Sets = std::vector<std::string>;

/// [[tables.place]], first match first.
std::string place(const std::string& match, const std::string& tiers) {
  return "\n[[tables.place]]\nmatch = \"" + match + "\"\n" + tiers + "\n";
}
const std::string kHbm = "tier = { type = \"hbm\" }", kDram = "tier = { type = \"dram\" }";

constexpr const char* kClicks = R"([run]
name = "tiny"
steps = 10
eval_every = 5
eval_batches = 2

[device]
type = "cuda_emulated"
threads = 2

[data]
type = "synthetic_ctr"
tables = 5
rows = [300, 40, 1000, 7, 300]
batch = 48
bag = 4
val_samples = 512

[model]
type = "dlrm"
bottom = [16, 8]
top = [16, 1]

[optimizer]
type = "rowwise_adagrad"
lr = 0.05

[recovery]
type = "full"
every = 5
async = false
)";

struct Found {
  std::string weights, state, loss, auc;
  bool operator==(const Found&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Found& found) {
  return out << found.weights << " " << found.state << " " << found.loss << " " << found.auc;
}

Found found_of(const std::string& toml, const Sets& sets) {
  const Scratch scratch;
  write_file(scratch / "run.toml", toml);
  Sets words;
  for (const std::string& set : sets) {
    words.emplace_back("--set");
    words.push_back(set);
  }
  const Ended ended = scratch.train(words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(scratch.summary("weights_hash").size(), scratch.summary("state_hash").size());
  EXPECT_GT(scratch.summary("state_hash").size(), 16U) << scratch.summary("state_hash");
  return {scratch.summary("weights_hash"), scratch.summary("state_hash"), scratch.summary("train/loss"),
          scratch.summary("val/auc")};
}

struct Case {
  const char* name;
  Sets sets;
};

class TablesOnTheDevice : public ::testing::TestWithParam<Case> {};

TEST_P(TablesOnTheDevice, T1_HaveTheHashesOfTablesInHostMemory) {
  const Sets& sets = GetParam().sets;
  const Found dram = found_of(kClicks + place("emb.*.weight", kDram), sets);
  EXPECT_EQ(found_of(kClicks, sets), dram) << "no places";
  EXPECT_EQ(found_of(kClicks + place("emb.*.weight", kHbm), sets), dram) << "all tables";
  EXPECT_EQ(found_of(kClicks + place("emb.2.*", kDram) + place("emb.*.weight", kHbm), sets), dram)
      << "all but one";
  EXPECT_EQ(found_of(kClicks + place("emb.*.weight", kHbm + "\nstate = { type = \"dram\" }"), sets), dram)
      << "weights without their state";
}

INSTANTIATE_TEST_SUITE_P(
    Runs, TablesOnTheDevice,
    ::testing::Values(Case{"rowwise_adagrad", {}}, Case{"sgd", {"optimizer.type=sgd", "optimizer.lr=0.5"}},
                      Case{"adagrad", {"optimizer.type=adagrad", "run.clip=0.1"}},
                      Case{"adamw", {"optimizer.type=adamw", "optimizer.lr=0.01"}},
                      Case{"means", {"model.mode=mean"}}, Case{"bf16", {"precision.type=bf16"}},
                      Case{"fp64", {"precision.type=fp64"}}, Case{"accumulated", {"run.accumulate=2"}},
                      Case{"two_replicas", {"parallel.ranks=2", "sync.type=ddp", "transport.type=thread"}},
                      Case{"sharded",
                           {"parallel.ranks=2", "sync.type=ddp", "transport.type=thread",
                            "model.placement=rows"}}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows of one tier go on in the other: checkpoints do not know where rows were.
TEST(TablesOnTheDevice, ResumeFromHostMemoryToTheSameBits) {
  const Scratch scratch;
  const auto run_in = [&](const std::string& tier, const Sets& words) {
    write_file(scratch / "run.toml", kClicks + place("emb.*.weight", tier));
    const Ended ended = scratch.train(words);
    ASSERT_EQ(ended.status, 0) << ended.err;
  };
  run_in(kDram, {"--set", "run.steps=5"});
  run_in(kHbm, {"--resume", "--set", "run.steps=10"});
  EXPECT_EQ(scratch.summary("weights_hash"), found_of(kClicks, {}).weights);
}

TEST(TablesOnTheDevice, AreRefusedOnTheProcessor) {
  const Scratch scratch;
  write_file(scratch / "run.toml", kClicks + place("emb.*.weight", kHbm));
  const Ended ended = scratch.train({"--set", "device.type=cpu"});
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("tier hbm: the run's device has no memory of its own"));
  EXPECT_THAT(ended.err, HasSubstr("'emb.0.weight'"));
}

// The shipped configuration, smaller: its tables by its own places, on the emulated device and on the
// processor, whose products have another order of sums.
TEST(DlrmZion, TrainsAsOnTheProcessor) {
  const std::string extends = "extends = [\"" + std::string(TENON_SOURCE_DIR) + "/configs/base/";
  const Sets sets{"run.name=tiny", "run.steps=6", "run.eval_batches=1", "data.batch=32",
                  "data.val_samples=64"};
  const std::string emulated = "\"]\n[device]\ntype = \"cuda_emulated\"\n";
  const Found device = found_of(extends + "dlrm_zion.toml" + emulated, sets);
  const Found again = found_of(extends + "dlrm_zion.toml" + emulated, sets);
  EXPECT_EQ(device, again);
  // dlrm_synthetic.toml is the same model with other rows and no places.
  Sets rows = sets;
  rows.push_back(
      "data.rows=[1000,1000,1000,1000,1000,1000,1000,1000,1000,1000,1000,1000,1000,1000,1000,1000,"
      "1000,1000,1000,1000,200000,200000,200000,200000,200000,200000]");
  const Found without = found_of(extends + "dlrm_synthetic.toml" + emulated, rows);
  EXPECT_EQ(device, without);
  const Found processor = found_of(extends + "dlrm_synthetic.toml\"]\n", rows);
  EXPECT_NEAR(std::stod(device.loss), std::stod(processor.loss), 1e-5 * std::stod(processor.loss));
}

}  // namespace
}  // namespace tenon::integration::zion_test
