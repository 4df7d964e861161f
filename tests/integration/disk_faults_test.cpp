// Whole runs on disks that fail or are slow: training goes on, reports it at its end, and is continued from
// the previous generation to the bits of an undisturbed run.
#include "run_program.hpp"

#include <cerrno>
#include <numeric>
#include <regex>

namespace tenon::integration::disk_faults_test {
namespace {

using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

/// Values of a metric, in the order of its lines.
std::vector<double> metric(const Scratch& scratch, const std::string& name) {
  const std::string text = read_file(scratch / "runs/tiny/latest/metrics.jsonl");
  const std::regex line("\"name\": \"" + name + "\", \"value\": ([-0-9.e+]+)");
  std::vector<double> values;
  for (std::sregex_iterator found(text.begin(), text.end(), line), end; found != end; ++found)
    values.push_back(std::stod((*found)[1]));
  return values;
}

#ifdef TENON_FAILING_DISK

Environment disk(const std::string& fault, Environment more = {}) {
  more["LD_PRELOAD"] = TENON_FAILING_DISK;
  more["FAILING_DISK"] = fault;
  return more;
}

struct Fault {
  const char* name;
  const char* call;
  int error;
  const char* said;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

class DiskFaults : public ::testing::TestWithParam<Fault> {};

// Saves of slots 4 and 6 fail, that of slot 2 remains.
TEST_P(DiskFaults, LetTrainingGoOnAndTheOlderGenerationLoads) {
  const Fault& fault = GetParam();
  const Scratch whole, scratch;
  ASSERT_EQ(whole.train().status, 0);
  const Ended ended =
      scratch.train({}, disk(fault.call, {{"FAILING_DISK_ERROR", std::to_string(fault.error)}}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("checkpoint of slot 6 could not be saved"));
  EXPECT_THAT(ended.err, HasSubstr(fault.said));
  EXPECT_EQ(scratch.summary("status"), "\"completed\"");
  EXPECT_EQ(scratch.summary("steps"), "6");
  EXPECT_EQ(scratch.summary("weights_hash"), whole.summary("weights_hash"));
  EXPECT_EQ(metric(scratch, "checkpoint_failed").size(), 2u);
  for (const auto& entry : fs::directory_iterator(scratch / "runs/tiny/latest/checkpoints"))
    EXPECT_EQ(entry.path().filename(), "step-2");

  const Ended resumed = scratch.train({"--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(read_file(scratch / "runs/tiny/latest/recovery.jsonl"),
              ::testing::ContainsRegex("\"event\": ?\"resume\", ?\"slot\": ?2,"));
  EXPECT_EQ(scratch.summary("weights_hash"), whole.summary("weights_hash"));
  EXPECT_EQ(scratch.summary("state_hash"), whole.summary("state_hash"));
}

constexpr Fault kFaults[] = {
    {"F4_full_in_a_write", "write", ENOSPC, "No space left on device"},
    {"F4_full_in_a_sync", "sync", ENOSPC, "No space left on device"},
    {"F4_full_in_the_sync_of_a_folder", "sync_folder", ENOSPC, "No space left on device"},
    {"F4_full_in_the_rename_of_a_manifest", "rename_manifest", ENOSPC, "No space left on device"},
    {"F4_full_in_the_rename_of_a_generation", "rename_generation", ENOSPC, "No space left on device"},
    {"F5_error_in_a_write", "write", EIO, "Input/output error"},
    {"F5_error_in_a_sync", "sync", EIO, "Input/output error"},
};
INSTANTIATE_TEST_SUITE_P(All, DiskFaults, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FullDisk, F4_AtTheEndTooStillTellsWhatCameOfTheRun) {
  const Scratch whole, scratch;
  ASSERT_EQ(whole.train().status, 0);
  const Ended ended =
      scratch.train({}, disk("write summary", {{"FAILING_DISK_ERROR", std::to_string(ENOSPC)}}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.out, HasSubstr("completed after 6 steps"));
  EXPECT_THAT(ended.err, HasSubstr("checkpoint of slot 6 could not be saved"));
  EXPECT_THAT(ended.err, HasSubstr("the end of the run could not be recorded"));
  EXPECT_THAT(ended.err, HasSubstr("summary.json.tmp: No space left on device"));
  ASSERT_EQ(scratch.train({"--resume"}).status, 0);
  EXPECT_EQ(scratch.summary("weights_hash"), whole.summary("weights_hash"));
}

TEST(SlowDisk, F5_ShortWritesAreContinued) {
  const Scratch whole, scratch;
  ASSERT_EQ(whole.train().status, 0);
  ASSERT_EQ(scratch.train({}, disk("short")).status, 0);
  const std::string part = "runs/tiny/1/checkpoints/step-6/rank0.safetensors";
  EXPECT_EQ(read_file(scratch / part), read_file(whole / part));
}

TEST(SlowDisk, F5_ADiskAHundredTimesSlowerSkipsSavesAndChangesNoBit) {
  const Scratch whole, scratch;
  ASSERT_EQ(whole.train().status, 0);
  const std::vector<double> fast = metric(whole, "checkpoint_s");
  ASSERT_EQ(fast.size(), 3u);
  // The file of the rank and the manifest are synced: half of the time in each.
  const double mean_s = std::accumulate(fast.begin(), fast.end(), 0.0) / 3;
  const Environment slow = disk("slow", {{"FAILING_DISK_SECONDS", std::to_string(50 * mean_s)}});
  ASSERT_EQ(scratch.train({"--set", "recovery.async=true"}, slow).status, 0);
  const std::vector<double> written = metric(scratch, "checkpoint_s");
  const std::vector<double> skipped = metric(scratch, "checkpoint_skipped");
  EXPECT_GE(skipped.size(), 1u) << "training waited";
  EXPECT_EQ(written.size() + skipped.size(), 3u);
  for (const double seconds : written) EXPECT_GE(seconds, 100 * mean_s * 0.99);
  EXPECT_EQ(scratch.summary("weights_hash"), whole.summary("weights_hash"));

  // The files written during training are of one slot.
  fs::remove_all(scratch / "runs/tiny/latest/checkpoints/step-6");
  ASSERT_EQ(scratch.train({"--resume"}).status, 0);
  EXPECT_THAT(scratch.log(), ::testing::Not(HasSubstr("damaged")));
  EXPECT_THAT(read_file(scratch / "runs/tiny/latest/recovery.jsonl"),
              ::testing::ContainsRegex("\"event\": ?\"resume\", ?\"slot\": ?[24],"));
  EXPECT_EQ(scratch.summary("weights_hash"), whole.summary("weights_hash"));
}

#endif

struct Times {
  double stall_s, written_s;
};

/// Waiting time of training, and time of the saves: at slots 2, 4 and 6 of 7.
Times train_and_save(const Scratch& scratch, const char* async, const Environment& environment = {}) {
  const Ended ended =
      scratch.train({"--set", "model.width=256", "--set", "model.layers=5", "--set", "run.steps=7", "--set",
                     "recovery.save_at_end=false", "--set", std::string("recovery.async=") + async},
                    environment);
  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::vector<double> written = metric(scratch, "checkpoint_s");
  return {std::stod(scratch.summary("stall_s")), std::accumulate(written.begin(), written.end(), 0.0)};
}

// Twelve million numbers of weights and moments: enough to be seen.
TEST(Stall, OfASynchronousSaveIsAllOfItsWriting) {
  const Scratch scratch;
  const Times times = train_and_save(scratch, "false");
  EXPECT_EQ(metric(scratch, "checkpoint_s").size(), 3u);
  EXPECT_GT(times.written_s, 0.01);
  EXPECT_GE(times.stall_s, times.written_s);
  EXPECT_LE(times.stall_s, std::stod(scratch.summary("wall_s")));
}

#ifdef TENON_FAILING_DISK
// Two syncs of half a second in every save: far more than a copy takes, on a busy machine as well.
TEST(Stall, OfASaveInTheBackgroundIsNotItsWriting) {
  const Environment slow = disk("slow", {{"FAILING_DISK_SECONDS", "0.5"}});
  const Scratch synchronous, background;
  const Times waits = train_and_save(synchronous, "false", slow);
  EXPECT_GE(waits.written_s, 3.0);
  EXPECT_GE(waits.stall_s, waits.written_s);
  const Times goes_on = train_and_save(background, "true", slow);
  EXPECT_GE(goes_on.written_s, 1.0);
  EXPECT_LT(goes_on.stall_s, goes_on.written_s);
  EXPECT_EQ(synchronous.summary("weights_hash"), background.summary("weights_hash"));
}
#endif

}  // namespace
}  // namespace tenon::integration::disk_faults_test
