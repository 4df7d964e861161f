// Studies of time to a loss on real runs: a timing run has the virtual times of the run that it times, slot
// by slot, and is kept like any other run of a study.
#include "run_program.hpp"

#include "ab/run_record.hpp"
#include "reproduce/time_to.hpp"

#include <nlohmann/json.hpp>

namespace tenon::integration::reproduce_time_test {
namespace {

constexpr const char* kRun = R"([run]
name = "t"
steps = 24
eval_every = 6
eval_batches = 2
log_every = 2
clip = 1.0
[device]
type = "cpu"
threads = 1
[data]
type = "text"
path = ")" TENON_SOURCE_DIR R"(/data/text/tinyshakespeare.txt"
context = 16
batch = 3
[model]
type = "gpt_neo"
layers = 2
width = 16
heads = 2
context = 16
[precision]
type = "fp32"
[optimizer]
type = "adamw"
lr = 1e-3
[schedule]
type = "constant"
[sync]
type = "ddp"
[parallel]
ranks = 3
[transport]
type = "thread"
[recovery]
type = "none"
)";

const std::vector<std::string> kLink = {
    "transport.link={bandwidth=2e6, latency=1e-3}",
    "transport.clock={type=\"simulated\", compute_seconds=0.02, optimizer_seconds=0.001, mix_seconds=0.002}"};
const std::vector<std::string> kTiming = {"data.batch=1", "data.context=1",
                                          "optimizer={type=\"sgd\", lr=1e-3}", "run.eval_every=0",
                                          "run.eval_batches=1"};

class TimingRuns : public ::testing::Test {
 protected:
  void SetUp() override { write_file(scratch_ / "time.toml", kRun); }
  ab::RunRecord train(const std::string& name, const std::string& sync, std::vector<std::string> sets) const {
    std::vector<std::string> words{"train", "time.toml",          "--quiet", "--run-dir", name,
                                   "--set", "sync={" + sync + "}"};
    sets.insert(sets.begin(), kLink.begin(), kLink.end());
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    const Ended ended = scratch_.run(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ab::read_run((scratch_ / (name + "/1")).string());
  }

  Scratch scratch_;
};

TEST_F(TimingRuns, HaveTheTimesOfTheRunsThatTheyTimeSlotBySlot) {
  const struct {
    const char *name, *sync;
  } cases[] = {
      {"ddp", "type=\"ddp\", bucket_mb=0.01"},
      {"ddp-bf16", "type=\"ddp\", communication=\"bf16\""},
      {"local", "type=\"local_sgd\", interval=6"},
      {"diloco", "type=\"diloco\", interval=6"},
      {"palsgd", "type=\"palsgd\", interval=6, warmup=6, p=0.3, eta=1"},
      {"shared", "type=\"palsgd\", interval=6, warmup=6, p=0.3, eta=1, decision_scope=\"shared\""},
      {"powersgd", "type=\"powersgd\", start_after=4, inner={type=\"ddp\"}"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const ab::RunRecord run = train(std::string(c.name) + "-run", c.sync, {"run.seed=3"});
    std::vector<std::string> sets = kTiming;
    sets.emplace_back("run.seed=3");
    const ab::RunRecord timing = train(std::string(c.name) + "-timing", c.sync, sets);
    const reproduce::SlotTimes a = reproduce::slot_times(run, "val/loss");
    const reproduce::SlotTimes b = reproduce::slot_times(timing, "val/loss");
    ASSERT_EQ(a.step, b.step);
    ASSERT_EQ(a.step.size(), 12u);
    for (std::size_t i = 0; i < a.step.size(); ++i) {
      // Sums of the same terms in another order: evaluations are between them.
      EXPECT_NEAR(a.seconds[i], b.seconds[i], 1e-9) << "slot " << a.step[i];
      EXPECT_EQ(a.bytes[i], b.bytes[i]) << "slot " << a.step[i];
    }
    EXPECT_GT(b.seconds.back(), 0.3);
    EXPECT_NE(run.final_value("val/loss"), timing.final_value("val/loss"));
    for (const char* purpose : {"gradient", "parameter"}) {
      const auto sent = run.bytes_by_purpose.find(purpose), timed = timing.bytes_by_purpose.find(purpose);
      ASSERT_EQ(sent == run.bytes_by_purpose.end(), timed == timing.bytes_by_purpose.end());
      if (sent != run.bytes_by_purpose.end()) {
        EXPECT_EQ(sent->second, timed->second) << purpose;
      }
    }
  }
}

// The reason for a timing run per seed: replicas draw independently, and synchronisation rounds wait for the
// slowest.
TEST_F(TimingRuns, DependOnTheSeedWhereSlotsAreDrawn) {
  const auto end = [&](const char* name, const char* sync, const char* seed) {
    std::vector<std::string> sets = kTiming;
    sets.emplace_back(seed);
    return reproduce::slot_times(train(name, sync, sets), "val/loss").seconds.back();
  };
  const char* palsgd = "type=\"palsgd\", interval=6, warmup=6, p=0.3, eta=1";
  const char* diloco = "type=\"diloco\", interval=6";
  EXPECT_NE(end("p1", palsgd, "run.seed=1"), end("p2", palsgd, "run.seed=2"));
  EXPECT_EQ(end("d1", diloco, "run.seed=1"), end("d2", diloco, "run.seed=2"));
}

// Plans are pure, so the number of samples that made a gradient is known for all replicas, and after a
// resume.
TEST_F(TimingRuns, SamplesThatMadeAGradientAreCountedOverAllReplicas) {
  const char* palsgd = "type=\"palsgd\", interval=6, warmup=6, p=0.3, eta=1, decision_scope=\"shared\"";
  const auto trained = [](const ab::RunRecord& run) { return run.final_value("train/samples_trained"); };
  const ab::RunRecord shared = train("shared", palsgd, {"run.log_every=1"});
  // With shared draws rank 0 knows all: a slot in which it mixes has no norm of gradients.
  ASSERT_TRUE(trained(shared));
  EXPECT_EQ(*trained(shared), 3.0 * 3.0 * static_cast<double>(shared.series.at("train/grad_norm").size()));
  EXPECT_LT(*trained(shared), shared.samples);
  const ab::RunRecord own =
      train("own", "type=\"palsgd\", interval=6, warmup=6, p=0.3, eta=1", {"run.log_every=1"});
  EXPECT_NE(*trained(own), 3.0 * 3.0 * static_cast<double>(own.series.at("train/grad_norm").size()));
  EXPECT_FALSE(trained(train("diloco", "type=\"diloco\", interval=6", {})));

  const char* sync = "type=\"palsgd\", interval=6, warmup=6, p=0.3, eta=1";
  train("resumed", sync, {"run.max_samples=90", "recovery.type=full"});
  const Ended rest = scratch_.run({"train", "time.toml", "--quiet", "--run-dir", "resumed", "--resume",
                                   "--set", std::string("sync={") + sync + "}", "--set", kLink[0], "--set",
                                   kLink[1], "--set", "recovery.type=full", "--set", "run.log_every=2"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(trained(ab::read_run((scratch_ / "resumed/latest").string())), trained(own));
}

TEST_F(TimingRuns, AreKeptLikeTheRunsOfAStudy) {
  write_file(scratch_ / "links.toml", R"(title = "Links"
paper = "none"
question = "When?"
base = "time.toml"
baseline = "ddp"
[size.quick]
steps = 6
seeds = [1]
[size.default]
steps = 12
seeds = [1, 2]
[time_to]
timing_set = ["data.batch=1", "data.context=1"]
one_seed = ["ddp"]
[[time_to.link]]
name = "slow"
set = ["transport.link={bandwidth=2e6, latency=1e-3}", "transport.clock={type=\"simulated\", compute_seconds=0.02}"]
[[arm]]
name = "ddp"
[[arm]]
name = "palsgd"
set = ["sync={type=\"palsgd\", interval=6, warmup=0, p=0.3, eta=1}"]
)");
  const Ended first = scratch_.run({"reproduce", "links.toml", "--out", "s"});
  ASSERT_EQ(first.status, 0) << first.err << first.out;
  EXPECT_THAT(first.err, ::testing::HasSubstr("reproduce: 0 runs kept, 0 to continue, 7 to start\n"));
  const auto json = nlohmann::json::parse(read_file(scratch_ / "s/table.json"));
  EXPECT_TRUE(json["complete"].get<bool>());
  EXPECT_EQ(json["time_to"]["arms"][0]["links"][0]["threshold"]["seconds"]["runs"], 2);
  EXPECT_LT(json["time_to"]["arms"][1]["links"][0]["seconds_by_part"]["blocking_communication"],
            json["time_to"]["arms"][0]["links"][0]["seconds_by_part"]["blocking_communication"]);

  fs::remove_all(scratch_ / "s/timing/slow/runs/palsgd/2");
  const Ended again = scratch_.run({"reproduce", "links.toml", "--out", "s"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, ::testing::HasSubstr("reproduce: 6 runs kept, 0 to continue, 1 to start\n"));
  EXPECT_EQ(nlohmann::json::parse(read_file(scratch_ / "s/table.json"))["time_to"], json["time_to"])
      << "time is a model: a repetition takes the same";
}

}  // namespace
}  // namespace tenon::integration::reproduce_time_test
