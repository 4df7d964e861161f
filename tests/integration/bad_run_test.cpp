// Runs that meet errors: folders that exist, damaged checkpoints, another model, a full disk, a loss that is
// not a number.
#include "run_program.hpp"

#include <cmath>
#include <regex>
#include <sstream>
#include <tuple>

namespace tenon::integration::bad_run_test {
namespace {

/// Weights of the configuration of Scratch after its last slot.
std::string undisturbed_weights() {
  const Scratch scratch;
  EXPECT_EQ(scratch.train().status, 0);
  return scratch.summary("weights_hash");
}

void truncate_file(const fs::path& path) {
  fs::resize_file(path, fs::file_size(path) / 2);
}

void flip_bit(const fs::path& path) {
  std::string bytes = read_file(path);
  ASSERT_FALSE(bytes.empty());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  write_file(path, bytes);
}

/// Log notes about checkpoints that were not used, one per line; checksums and sizes as {crc} and {n}.
std::string notes(const Scratch& scratch) {
  std::istringstream log(scratch.log());
  std::string out;
  for (std::string line; std::getline(log, line);) {
    const auto at = line.find("] ");
    const bool about_damage =
        line.find("damaged") != std::string::npos || line.find("no usable") != std::string::npos;
    if (about_damage && at != std::string::npos) out += line.substr(at + 2) + "\n";
  }
  out = std::regex_replace(out, std::regex("\\b[0-9a-f]{8}\\b"), "{crc}");
  return std::regex_replace(out, std::regex("\\b[0-9]{4,7}\\b"), "{n}");
}

TEST(Threads, MoreThanCoresAreToldOfWithBothNumbers) {
  const Scratch scratch;
  const Ended crowded = scratch.train({"--set", "device.threads=512", "--set", "run.steps=1"});
  ASSERT_EQ(crowded.status, 0) << crowded.err;
  EXPECT_THAT(scratch.log(),
              ::testing::ContainsRegex("device.threads = 512 for each of 1 rank\\(s\\) on this machine, "
                                       "where this process may use [0-9]+ core\\(s\\)"));
  EXPECT_EQ(crowded.err.find("device.threads"), std::string::npos) << "with --quiet";
  const Scratch fits;
  ASSERT_EQ(fits.train({"--set", "device.threads=1", "--set", "run.steps=1"}).status, 0);
  EXPECT_THAT(fits.log(), ::testing::Not(::testing::HasSubstr("device.threads = ")));
}

/// Servers once found out by themselves, sometimes after the run had a folder, and it then ended as failed.
TEST(Servers, WithoutWorkAreRefusedBeforeTheRunHasAFolder) {
  for (int time = 0; time < 12; ++time) {
    const Scratch scratch;
    const Ended ended = scratch.train({"--set", "parallel={ranks=2, servers=1}", "--set",
                                       "sync.type=local_sgd", "--set", "transport.type=thread"});
    EXPECT_EQ(ended.status, 2);
    EXPECT_THAT(ended.err, ::testing::AllOf(
                               ::testing::HasSubstr("parallel.servers = 1: sync strategy 'local_sgd' places "
                                                    "nothing on servers; set it to 0"),
                               ::testing::Not(::testing::HasSubstr("rank 2"))));
    EXPECT_FALSE(fs::exists(scratch / "runs"));
  }
}

/// Operators keep blocks of a product on the stack; too small a one is refused.
TEST(Stacks, ThatAreTooSmallAreRefusedInWords) {
  for (const auto& [limit, wanted, environment] :
       {std::tuple{"ulimit -s 64", 1, ""}, std::tuple{"ulimit -s 192", 1, ""},
        std::tuple{"ulimit -s 256", 0, ""}, std::tuple{"true", 1, "64"}}) {
    const Scratch scratch;
    Command command{.arguments = {"train", "run.toml", "--quiet", "--set", "device.threads=2"},
                    .folder = scratch.folder(),
                    .through = {"sh", "-c", std::string(limit) + "; exec \"$0\" \"$@\""}};
    if (*environment != 0) command.environment["OMP_STACKSIZE"] = environment;
    const Ended ended = Child(command).wait();
    EXPECT_EQ(ended.signal, 0) << limit;
    EXPECT_EQ(ended.status, wanted) << limit << "\n" << ended.err;
    if (wanted == 0) continue;
    EXPECT_THAT(ended.err, ::testing::ContainsRegex("device cpu: a thread has [0-9]+ KiB of stack, and the "
                                                    "operators need 256 KiB; raise the limit"));
  }
}

/// A run of six slots that ends before a part of it has acted.
TEST(Warnings, NameThePartsThatNeverAct) {
  struct Case {
    std::vector<std::string> sets;
    const char* warning;  // "" = none
  };
  const Case cases[] = {
      {{"sync.type=ddp"}, ""},
      {{"sync.type=diloco", "sync.interval=3"}, ""},
      {{"sync.type=diloco", "sync.interval=6"}, ""},
      {{"sync.type=diloco", "sync.interval=7"}, "sync.diloco acts for the first time after 7 slots"},
      {{"sync.type=post_local_sgd", "sync.interval=4", "sync.warmup=5"},
       "sync.post_local_sgd acts for the first time after 8"},
      {{"sync.type=palsgd", "sync.interval=3"}, "sync.palsgd acts for the first time after 102 slots"},
      {{"sync.type=streaming_diloco", "sync.interval=4", "sync.fragments=2", "sync.delay=1"}, ""},
      {{"sync.type=streaming_diloco", "sync.interval=100"},
       "sync.streaming_diloco acts for the first time after"},
      {{"sync.type=powersgd", "sync.inner={type=\"ddp\"}", "sync.start_after=6"},
       "sync.powersgd acts for the first time after 7 slots, and the run ends after 6"},
      {{"sync.type=shadow_ma", "sync.mode=\"foreground\"", "sync.interval=10"},
       "sync.shadow_ma acts for the first time after 10"},
      {{"sync.type=ddp", "schedule.type=cosine", "schedule.warmup=5"}, ""},
      {{"sync.type=ddp", "schedule.type=cosine", "schedule.warmup=12"},
       "schedule.cosine is still in its warm-up when the run ends after 6 slots: the rate reaches 0.0005 of "
       "0.001"},
  };
  const Scratch scratch;
  for (const Case& one : cases) {
    std::vector<std::string> words{
        "check", "run.toml",          "--set", "parallel.ranks=2", "--set", "transport.type=thread",
        "--set", "optimizer.lr=0.001"};
    for (const std::string& set : one.sets) words.insert(words.end(), {"--set", set});
    const Ended ended = scratch.run(words);
    ASSERT_EQ(ended.status, 0) << ended.err;
    if (*one.warning == 0)
      EXPECT_EQ(ended.out.find("warning"), std::string::npos) << one.sets[0] << "\n" << ended.out;
    else
      EXPECT_THAT(ended.out, ::testing::HasSubstr("warning: " + std::string(one.warning)));
  }
  ASSERT_EQ(scratch.train({"--set", "schedule.type=cosine", "--set", "schedule.warmup=12"}).status, 0);
  EXPECT_THAT(scratch.log(), ::testing::HasSubstr("schedule.cosine is still in its warm-up"));
}

TEST(RunFolders, ASecondRunGetsItsOwnAttempt) {
  const Scratch scratch;
  EXPECT_EQ(scratch.train().status, 0);
  const auto before = tree(scratch / "runs/tiny/1");
  const Ended second = scratch.train();
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(changes(scratch / "runs/tiny/1", before), std::vector<std::string>());
  EXPECT_EQ(fs::read_symlink(scratch / "runs/tiny/latest"), "2");
  EXPECT_EQ(scratch.summary("weights_hash", "1"), scratch.summary("weights_hash", "2"));
}

struct Damage {
  const char* name;
  void (*harm)(const fs::path& file);
  const char* file;
  const char* reason;
};

void PrintTo(const Damage& damage, std::ostream* out) {
  *out << damage.name;
}

class DamagedCheckpoint : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedCheckpoint, P15_F6_IsPassedOverForAnOlderOneAndTheLogSaysSo) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  GetParam().harm(scratch / "runs/tiny/1/checkpoints/step-6" / GetParam().file);
  const Ended resumed = scratch.train({"--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(notes(scratch), std::string("checkpoint of slot 6 is damaged and was put aside as "
                                        "runs/tiny/1/checkpoints/step-6.bad: ") +
                                GetParam().reason + "\n");
  EXPECT_TRUE(fs::exists(scratch / "runs/tiny/1/checkpoints/step-6.bad"));
  EXPECT_EQ(scratch.summary("weights_hash"), undisturbed_weights());
  EXPECT_EQ(scratch.summary("steps"), "6");
}

const Damage kDamages[] = {
    {"truncated", truncate_file, "rank0.safetensors",
     "runs/tiny/1/checkpoints/step-6/rank0.safetensors: {n} bytes, the manifest says {n}"},
    {"bit_flipped", flip_bit, "rank0.safetensors",
     "runs/tiny/1/checkpoints/step-6/rank0.safetensors: block 0 (bytes 0 to {n}) has CRC-32C {crc}, the "
     "manifest says {crc}"},
    {"manifest_truncated", truncate_file, "MANIFEST.json",
     "runs/tiny/1/checkpoints/step-6/MANIFEST.json: its CRC-32C is {crc}, its last line says otherwise; the "
     "file is damaged or cut"},
    {"manifest_bit_flipped", flip_bit, "MANIFEST.json",
     "runs/tiny/1/checkpoints/step-6/MANIFEST.json: its CRC-32C is {crc}, its last line says otherwise; the "
     "file is damaged or cut"},
    {"part_missing", [](const fs::path& file) { fs::remove(file); }, "rank0.safetensors",
     "cannot open runs/tiny/1/checkpoints/step-6/rank0.safetensors: No such file or directory"},
};
INSTANTIATE_TEST_SUITE_P(All, DamagedCheckpoint, ::testing::ValuesIn(kDamages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DamagedCheckpoints, F6_AllOfThemMakeTheRunStartAgain) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  for (const char* step : {"step-4", "step-6"})
    truncate_file(scratch / "runs/tiny/1/checkpoints" / step / "rank0.safetensors");
  const Ended resumed = scratch.train({"--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(notes(scratch),
              ::testing::EndsWith("no usable checkpoint: the attempt starts again from slot 0\n"));
  EXPECT_EQ(scratch.summary("weights_hash"), undisturbed_weights());
}

TEST(OtherModel, IsRefusedByNameAndTheAttemptStaysAsItWas) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  const auto before = tree(scratch / "runs/tiny/1");
  const Ended ended = scratch.train({"--resume", "--set", "model.width=32"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(
      ended.err,
      "tenon: runs/tiny/1/checkpoints/step-6 is of another model: tensor "
      "'replica0/model/transformer.h.0.attn.attention.k_proj.weight' is f32 [16, 16] there and f32 [32, 32] "
      "in "
      "the model; --resume needs the model, optimizer and sync strategy that saved it. Nothing was changed: "
      "continue with the old configuration, or start a new attempt without --resume\n");
  EXPECT_EQ(changes(scratch / "runs/tiny/1", before), std::vector<std::string>());
}

TEST(OtherModel, IsNotWhatAnotherNumberOfRanksIsCalled) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  const struct {
    const char *sync, *now;
  } cases[] = {{"ddp", "share one set of weights and state"},
               {"local_sgd", "keep weights and state of each replica"}};
  for (const auto& [sync, now] : cases) {
    const Ended ended = scratch.train({"--resume", "--set", "parallel.ranks=2", "--set",
                                       "transport.type=thread", "--set", std::string("sync.type=") + sync});
    EXPECT_EQ(ended.status, 2);
    EXPECT_THAT(ended.err,
                ::testing::StartsWith("tenon: --set parallel.ranks=2: the checkpoint was saved by 1 "
                                      "rank(s), which keep weights and state of "
                                      "each replica, and this run has 2 replica(s), which " +
                                      std::string(now) + " ("));
  }
}

TEST(OtherModel, ThatAGraphWrittenOutReplacesIsNotAsked) {
  const Scratch scratch;
  const std::string graph =
      "[[model.layer]]\nname = \"emb\"\ntype = \"embedding\"\ninputs = [\"tokens\"]\nrows = 256\nwidth = 8\n"
      "[[model.layer]]\nname = \"loss\"\ntype = \"head_cross_entropy\"\ninputs = [\"emb\", \"targets\"]\n"
      "vocabulary = 256\n[optimizer]";
  // 3 heads do not divide a width of 16, and images are no tokens: neither depends on this graph.
  write_file(scratch / "run.toml",
             replaced(replaced(Scratch::kRun, "[optimizer]", graph),
                      "type = \"gpt_neo\"\nlayers = 1\nwidth = 16\nheads = 2", "type = \"lenet5\""));
  const Ended ended = scratch.train();
  EXPECT_EQ(ended.status, 0) << ended.err;
}

TEST(OtherModel, WithFewerLayersIsNoPartOfTheOldOne) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train({"--set", "model.layers=2"}).status, 0);
  const Ended ended = scratch.train({"--resume"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, ::testing::StartsWith(
                             "tenon: runs/tiny/1/checkpoints/step-6 is of another model: it has tensor "
                             "'replica0/model/transformer.h.1."));
}

// A schedule that ends with the run changes when the run is made longer.
TEST(OtherLength, ThatChangesRatesIsRefusedWithBothOfThemUnlessItIsWanted) {
  const Scratch scratch;
  const std::vector<std::string> cosine{"--set", "schedule={type=\"cosine\", warmup=2}"};
  const auto train = [&](std::vector<std::string> words) {
    words.insert(words.end(), cosine.begin(), cosine.end());
    return scratch.train(words);
  };
  ASSERT_EQ(train({}).status, 0);
  const auto before = tree(scratch / "runs/tiny/1");
  const Ended refused = train({"--resume", "--set", "run.steps=12"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.err,
            "tenon: --set run.steps=12: runs/tiny/1/checkpoints/step-6 was saved by a run of run.steps = 6, "
            "and this one has 12. Its schedule depends on that: the learning rate was 0.00146447 in slot 5, "
            "planned for 6 slots, and is 0.00654508 in slot 6, planned for 12. Nothing was changed: add "
            "--extend to continue with the new plan, set run.steps = 6 to keep the old one, or start a new "
            "attempt without --resume\n");
  EXPECT_EQ(changes(scratch / "runs/tiny/1", before), std::vector<std::string>());
  EXPECT_EQ(train({"--extend"}).err,
            "tenon: tenon train: --extend changes the length of a run that is continued; add --resume\n");

  const Ended extended = train({"--resume", "--extend", "--set", "run.steps=12"});
  EXPECT_EQ(extended.status, 0) << extended.err;
  EXPECT_THAT(scratch.log(),
              ::testing::HasSubstr("run.steps is 12 in place of 6 (--extend): the learning rate was "
                                   "0.00146447 in slot 5, planned for 6 slots, and is 0.00654508 in "
                                   "slot 6, planned for 12"));
  EXPECT_EQ(train({"--resume", "--set", "run.steps=12"}).status, 0) << "the new plan is the run's now";
}

// Straight down from 1 over 6 slots and over 9: slot 2 of the first plan has the rate of slot 3 of the
// second.
TEST(OtherLength, RatesThatMeetWhereItGoesOnAreShownWhereTheyDiffer) {
  const Scratch scratch;
  const std::vector<std::string> line{"--set", "schedule={type=\"wsd\", decay=1}",
                                      "--set", "recovery={type=\"full\", every=3}",
                                      "--set", "optimizer.lr=1"};
  ASSERT_EQ(scratch.train(line).status, 0);
  fs::remove_all(scratch / "runs/tiny/1/checkpoints/step-6");
  std::vector<std::string> longer = line;
  longer.insert(longer.end(), {"--resume", "--set", "run.steps=9"});
  EXPECT_THAT(scratch.train(longer).err,
              ::testing::HasSubstr(
                  "runs/tiny/1/checkpoints/step-3 was saved by a run of run.steps = 6, and this one has 9. "
                  "Its schedule depends on that: the learning rate of slot 3 is 0.5 planned for 6 "
                  "slots, and 0.666667 planned for 9. "));
}

TEST(OtherLength, ThatChangesNoRateUntilThenIsNobodysBusiness) {
  // Warm-up, the stable part of a schedule with a decay at the end, and an end of its own.
  for (const char* schedule : {"{type=\"cosine\", warmup=4}", "{type=\"wsd\", decay=0.2}",
                               "{type=\"cosine\", steps=5}", "{type=\"constant\", warmup=2}"}) {
    const Scratch scratch;
    const std::string set = std::string("schedule=") + schedule;
    ASSERT_EQ(scratch.train({"--set", set, "--set", "run.max_samples=6", "--set", "run.steps=8"}).status, 0);
    const Ended longer = scratch.train({"--resume", "--set", set, "--set", "run.steps=16"});
    EXPECT_EQ(longer.status, 0) << schedule << ": " << longer.err;
  }
}

TEST(CompletedRun, KeepsItsMetricsWhenItIsContinued) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  const std::string loss = scratch.summary("val/loss");
  EXPECT_EQ(scratch.train({"--resume"}).status, 0);
  EXPECT_EQ(scratch.summary("val/loss"), loss);
  EXPECT_EQ(scratch.summary("steps"), "6");
}

// A limit on the size of files simulates a full disk: both end in a failed write(2), and this one needs no
// privileges.
TEST(FullDisk, F4_LetsTrainingGoOnAndFailsAtTheEnd) {
  const Scratch scratch;
  Command command{{"train", "run.toml", "--quiet"}, scratch.folder(), {}, 40 * 1024};
  const Ended ended = Child(command).wait();
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(std::regex_replace(ended.err, std::regex("write [0-9]+ bytes"), "write {n} bytes"),
            "tenon train: checkpoint of slot 6 could not be saved: rank 0: cannot write {n} bytes to "
            "runs/tiny/1/checkpoints/step-6.tmp/rank0.safetensors: File too large; training went on, but the "
            "newest "
            "checkpoint is older than the end. Make room, then continue with --resume\n");
  EXPECT_EQ(scratch.summary("steps"), "6");
  EXPECT_EQ(scratch.summary("status"), "\"completed\"");
  EXPECT_EQ(scratch.summary("weights_hash"), undisturbed_weights());
  EXPECT_EQ(scratch.summary("train/checkpoint_failed"), "1");
  const std::string metrics = read_file(scratch / "runs/tiny/1/metrics.jsonl");
  for (const char* step : {"2", "4", "6"}) {
    EXPECT_THAT(metrics, ::testing::HasSubstr(std::string("{\"step\": ") + step +
                                              ", \"split\": \"train\", \"name\": \"checkpoint_failed\""));
  }
  EXPECT_TRUE(tree(scratch / "runs/tiny/1/checkpoints").empty()) << "half a checkpoint was left";
}

TEST(NotANumber, StopsTheRunAtStepLayerAndElement) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", "optimizer.lr=1e30"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.err,
            "tenon train: loss is NaN at step 1; first non-finite tensor: "
            "transformer.h.0.attn.attention.q_proj output 0, element 0. Lower optimizer.lr or set run.clip; "
            "to skip such updates and continue, set run.on_nan = \"continue\"\n");
  EXPECT_EQ(scratch.summary("status"), "\"failed\"");
  EXPECT_EQ(scratch.summary("steps"), "1");
}

std::string npy(const std::string& type, const std::string& shape, const void* data, std::size_t bytes) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + header + "\n" +
         std::string(static_cast<const char*>(data), bytes);
}

TEST(NotANumber, InTheDataNamesTheFieldTheSampleAndTheElement) {
  const Scratch scratch;
  const std::string text =
      "[run]\nsteps = 2\naccumulate = 2\n[device]\ntype = \"cpu\"\nthreads = 1\n[data]\ntype = \"npy\"\n"
      "inputs = [\"x=x.npy\"]\ntargets = [\"y=y.npy\"]\nclasses = 3\nbatch = 2\norder = \"sequential\"\n"
      "split = \"tail\"\nval_fraction = 0.2\n[model]\ntype = \"mlp\"\nhidden = []\n[optimizer]\ntype = "
      "\"sgd\"\n";
  write_file(scratch / "nan.toml", text);
  std::int32_t labels[10] = {};
  write_file(scratch / "y.npy", npy("<i4", "(10,)", labels, sizeof labels));
  struct {
    double value;
    const char *precision, *found;
    int sample;  ///< in the file's order: 1 = in the slot's first micro-batch, 3 = in its second
    std::vector<std::string> more = {};
  } const cases[] = {
      {std::nan(""), "fp32", "NaN", 1},
      {std::nan(""),
       "bf16",
       "NaN",
       3,
       {"--set", "parallel.ranks=2", "--set", "sync.type=ddp", "--set", "transport.type=thread", "--set",
        "run.accumulate=1"}},
      {-HUGE_VAL, "fp64", "an infinite value", 3},
      {1e300, "fp32", "a value that is infinite as f32", 3},
  };
  for (const auto& c : cases) {
    double x[30] = {};
    x[c.sample * 3 + 2] = c.value;
    write_file(scratch / "x.npy", npy("<f8", "(10, 3)", x, sizeof x));
    std::vector<std::string> words{"train", "nan.toml", "--quiet", "--set",
                                   std::string("precision.type=") + c.precision};
    words.insert(words.end(), c.more.begin(), c.more.end());
    const Ended ended = scratch.run(words);
    EXPECT_EQ(ended.status, 1);
    EXPECT_THAT(ended.err,
                ::testing::AllOf(::testing::HasSubstr(std::string(" at step 0 because the data is: field 'x' "
                                                                  "has ") +
                                                      c.found + " in sample 1 of the batch (number " +
                                                      std::to_string(c.sample) +
                                                      " in the order of samples), element 2. Fix the data"),
                                 ::testing::Not(::testing::HasSubstr("optimizer.lr"))));
  }
}

TEST(NotANumber, IsSkippedAndCountedWhenToldSo) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", "optimizer.lr=1e30", "--set", "run.on_nan=continue"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(scratch.summary("status"), "\"completed\"");
  EXPECT_EQ(scratch.summary("steps"), "6");
  EXPECT_EQ(scratch.summary("train/skipped_updates"), "5");
}

}  // namespace
}  // namespace tenon::integration::bad_run_test
