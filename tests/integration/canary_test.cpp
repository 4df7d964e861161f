// Checkpoints are verified before they are believed: content that was wrong before its digest was taken is
// found by the canary, every flipped bit of every file of a generation by digests, an older generation takes
// the place, a bounded number of times, and the run ends with the weights of an undisturbed one.
#include "run_program.hpp"

#include "store/canary.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/config.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/runtime.hpp>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>

namespace tenon::integration::canary_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Sets = std::vector<std::string>;

bool all() {
  const char* wanted = std::getenv("TENON_MATRIX");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

/// A generation in memory, to be written again with digests that fit.
class Forgery {
 public:
  Forgery(FileSystem& files, const fs::path& checkpoints, std::int64_t step)
      : files_(files), checkpoints_(checkpoints), step_(step) {
    CheckpointReader reader = CheckpointStore(files, checkpoints.string(), {}).open(step);
    world_ = reader.world_size();
    timeline_ = reader.timeline();
    specs_.assign(reader.tensors().begin(), reader.tensors().end());
    meta_.assign(reader.meta().begin(), reader.meta().end());
    for (const TensorSpec& spec : specs_) {
      bytes_.emplace_back(dtype_bytes(spec.dtype, spec.shape.elements()));
      reader.read(spec.name, {bytes_.back().data(), spec.shape, spec.dtype});
    }
  }

  /// Names of dense weights that every sample reads.
  std::vector<std::string> weights() const {
    std::vector<std::string> names;
    for (const TensorSpec& spec : specs_) {
      const bool model = spec.name.find("model/") != std::string::npos;
      const bool lookup =
          spec.name.find(".wte") != std::string::npos || spec.name.find(".wpe") != std::string::npos;
      if (model && !lookup) names.push_back(spec.name);
    }
    return names;
  }
  /// Turns over the highest bit of the exponent of an f32 element.
  void flip(const std::string& name) {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].name == name) bytes_[i][bytes_[i].size() / 2 / 4 * 4 + 3] ^= std::byte{0x40};
    }
  }
  /// In the place of the generation; its canaries stay.
  void write() {
    std::vector<SaveItem> items;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      SaveItem item;
      item.name = specs_[i].name;
      item.data = {bytes_[i].data(), specs_[i].shape, specs_[i].dtype};
      item.global_shape = specs_[i].shape;
      item.offset = Shape(std::vector<std::int64_t>(specs_[i].shape.rank(), 0));
      items.push_back(std::move(item));
    }
    const fs::path aside = checkpoints_ / "forged";
    CheckpointStore store(files_, aside.string(), {});
    std::vector<std::string> reports;
    for (int rank = 0; rank < world_; ++rank) {
      SaveRequest request;
      request.step = step_;
      request.timeline = timeline_;
      if (rank == 0) {
        request.items = items;
        request.meta = meta_;
      }
      reports.push_back(store.write_part(request, rank, world_));
    }
    const SaveResult saved = store.commit(step_, reports);
    ASSERT_EQ(saved.status, SaveStatus::kCommitted) << saved.error;
    const std::string name = "step-" + std::to_string(step_);
    for (const auto& entry : fs::directory_iterator(checkpoints_ / name)) {
      if (entry.path().extension() == ".canary")
        fs::copy(entry.path(), aside / name / entry.path().filename());
    }
    fs::remove_all(checkpoints_ / name);
    fs::rename(aside / name, checkpoints_ / name);
    fs::remove_all(aside);
  }

 private:
  FileSystem& files_;
  fs::path checkpoints_;
  std::int64_t step_, timeline_ = 0;
  int world_ = 1;
  std::vector<TensorSpec> specs_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<MetaBlock> meta_;
};

void flip_bit_of(const fs::path& file, std::uint64_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(bit / 8));
  const char byte = static_cast<char>(stream.get() ^ (1 << bit % 8));
  stream.seekp(static_cast<std::streamoff>(bit / 8));
  stream.put(byte);
}

class Canary : public ::testing::Test {
 protected:
  Canary() { runtime_.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"}); }

  fs::path attempt(const std::string& run) const { return scratch_ / run / "1"; }
  fs::path checkpoints(const std::string& run) const { return attempt(run) / "checkpoints"; }
  fs::path generation(const std::string& run, std::int64_t step) const {
    return checkpoints(run) / ("step-" + std::to_string(step));
  }
  RunResult run(const std::string& name, const Sets& sets, bool resume) {
    TrainRequest request;
    request.run_dir = (scratch_ / name).string();
    request.resume = resume;
    request.quiet = true;
    return runtime_.train(Config::parse(text_, "run.toml", sets), request);
  }
  /// Ends as an undisturbed run does.
  void resume_to(const RunResult& whole, const std::string& name, const Sets& sets) {
    const RunResult resumed = run(name, sets, true);
    EXPECT_EQ(resumed.error, "");
    EXPECT_EQ(resumed.steps, whole.steps);
    EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
    EXPECT_EQ(resumed.state_hash, whole.state_hash);
  }
  /// What a refused resume says.
  std::string refusal(const std::string& name, const Sets& sets) {
    try {
      return "it went on: " + run(name, sets, true).status;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRun);
      return error.what();
    }
  }
  /// As if the run had died: newer generations than `newest` go.
  void cut_back(const std::string& name, std::int64_t newest) {
    const CheckpointStore store(*files_, checkpoints(name).string(), {});
    for (const std::int64_t step : store.generations())
      if (step > newest) fs::remove_all(generation(name, step));
    fs::remove(attempt(name) / "summary.json");
  }
  void copy(const std::string& from, const std::string& to) {
    fs::remove_all(scratch_ / to);
    fs::create_directories(scratch_ / to);
    fs::copy(attempt(from), attempt(to), fs::copy_options::recursive);
  }
  std::vector<nlohmann::json> events(const std::string& name, const std::string& kind) const {
    std::vector<nlohmann::json> found;
    std::istringstream lines(read_file(attempt(name) / "recovery.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      found.push_back(nlohmann::json::parse(line));
      if (found.back().at("event") != kind) found.pop_back();
    }
    return found;
  }
  std::string log(const std::string& name, int rank = 0) const {
    return read_file(attempt(name) / ("log.rank" + std::to_string(rank) + ".txt"));
  }
  std::vector<std::string> names(const std::string& run) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(checkpoints(run)))
      found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }

  Scratch scratch_;
  std::string text_ = replaced(Scratch::kRun, "text.txt", (scratch_ / "text.txt").string());
  Runtime runtime_;
  std::unique_ptr<FileSystem> files_ = make_posix_files();
};

const Sets kTwo = {"parallel.ranks=2", "transport.type=thread", "sync.type=ddp"};
const Sets kFour = {"run.steps=8", "recovery.keep=6"};

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(Canary, AStateThatWasWrongBeforeItsDigestWasTakenIsNotBelieved) {
  const std::pair<std::string, Sets> worlds[] = {
      {"one", kFour},
      {"two", kFour + kTwo},
      {"alone",
       kFour + Sets{"parallel.ranks=2", "transport.type=thread", "sync.type=local_sgd", "sync.interval=3"}}};
  for (const auto& [name, sets] : worlds) {
    SCOPED_TRACE(name);
    const RunResult whole = run(name, sets, false);
    ASSERT_EQ(whole.error, "");
    cut_back(name, 6);
    const std::vector<std::string> weights = Forgery(*files_, checkpoints(name), 6).weights();
    ASSERT_GE(weights.size(), 6u);
    std::size_t tried = 0;
    for (const std::string& weight : weights) {
      if (!all() && tried++ % 3 != 0) continue;
      SCOPED_TRACE(weight);
      copy(name, "forged");
      Forgery forgery(*files_, checkpoints("forged"), 6);
      forgery.flip(weight);
      forgery.write();
      ASSERT_NO_THROW(CheckpointStore(*files_, checkpoints("forged").string(), {}).verify(6));
      resume_to(whole, "forged", sets);
      EXPECT_TRUE(fs::exists(checkpoints("forged") / "step-6.distrusted"));
      const auto fallbacks = events("forged", "fallback");
      ASSERT_EQ(fallbacks.size(), 1u);
      EXPECT_EQ(fallbacks[0].at("slot"), 6);
      EXPECT_EQ(fallbacks[0].at("to_slot"), 4);
      EXPECT_THAT(fallbacks[0].at("reason").get<std::string>(),
                  AllOf(HasSubstr("its canary differs on rank"),
                        HasSubstr("the loss of the first micro-batch after slot 6 is ")));
      ASSERT_EQ(events("forged", "resume").size(), 1u);
      EXPECT_EQ(events("forged", "resume")[0].at("slot"), 4);
      EXPECT_THAT(
          log("forged"),
          HasSubstr(
              "checkpoint of slot 4: the loss of the next micro-batch is the recorded one, to the bit"));
    }
  }
}

TEST_F(Canary, ACopyOfTheStateIsBelieved) {
  for (const Sets& sets : {kFour, kFour + kTwo}) {
    const RunResult whole = run("whole", sets, false);
    cut_back("whole", 6);
    Forgery(*files_, checkpoints("whole"), 6).write();
    resume_to(whole, "whole", sets);
    EXPECT_THAT(events("whole", "fallback"), IsEmpty());
    EXPECT_THAT(log("whole"),
                HasSubstr("checkpoint of slot 6: the loss of the next micro-batch is the recorded one"));
    fs::remove_all(scratch_ / "whole");
  }
}

TEST_F(Canary, P15_EveryFlippedBitIsCaughtBeforeTheFirstUpdateAndTheOlderGenerationTaken) {
  // Two ranks that train alone: both have tensors and a canary.
  const Sets sets = {"run.steps=5",           "recovery.every=1",    "recovery.keep=4",
                     "data.context=8",        "model.width=8",       "parallel.ranks=2",
                     "transport.type=thread", "sync.type=local_sgd", "sync.interval=2"};
  const RunResult whole = run("whole", sets, false);
  ASSERT_EQ(whole.error, "");
  cut_back("whole", 4);
  std::vector<std::pair<std::string, std::uint64_t>> files;
  std::uint64_t bits = 0;
  for (const auto& entry : fs::directory_iterator(generation("whole", 4))) {
    files.emplace_back(entry.path().filename(), 8 * fs::file_size(entry.path()));
    bits += files.back().second;
  }
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 5u) << "a manifest, and tensors and a canary of each rank";
  const Sets unsaved = sets + Sets{"recovery.every=1000", "recovery.save_at_end=false"};
  const int flips = all() ? 10000 : 500;
  std::mt19937_64 random(15);
  for (int i = 0; i < flips; ++i) {
    // Half of them by size, and half with every file as often.
    std::size_t file = random() % files.size();
    std::uint64_t bit = random() % files[file].second;
    if (i % 2 == 0) {
      bit = random() % bits;
      for (file = 0; bit >= files[file].second; ++file) bit -= files[file].second;
    }
    SCOPED_TRACE(files[file].first + " bit " + std::to_string(bit));
    copy("whole", "flipped");
    flip_bit_of(generation("flipped", 4) / files[file].first, bit);
    const RunResult resumed = run("flipped", unsaved, true);
    ASSERT_EQ(resumed.error, "");
    ASSERT_EQ(resumed.weights_hash, whole.weights_hash);
    ASSERT_EQ(events("flipped", "fallback").size(), 1u);
    ASSERT_EQ(events("flipped", "resume").size(), 1u);
    ASSERT_EQ(events("flipped", "resume")[0].at("slot"), 3);
  }
}

TEST_F(Canary, FallbacksAreCountedOverAllStartsOfAnAttempt) {
  const Sets sets = {"run.steps=12", "recovery.keep=7"};
  const RunResult whole = run("whole", sets, false);
  cut_back("whole", 10);
  // Both kinds, mixed.
  for (const std::int64_t step : {10, 6}) {
    Forgery forgery(*files_, checkpoints("whole"), step);
    forgery.flip(forgery.weights().front());
    forgery.write();
  }
  for (const std::int64_t step : {8, 4}) flip_bit_of(generation("whole", step) / "rank0.safetensors", 4001);
  const auto metrics = read_file(attempt("whole") / "metrics.jsonl");
  const auto says =
      AllOf(HasSubstr("4 checkpoint(s) of this attempt could not be believed"),
            HasSubstr("fallbacks = 3 allows 3 older one(s)"), HasSubstr("slot 10 (now "),
            HasSubstr("slot 8 (now "), HasSubstr("slot 6 (now "), HasSubstr("slot 4 (now "),
            HasSubstr("The newest that is left is that of slot 2"), HasSubstr("--set recovery.fallbacks=4"));
  const RunResult failed = run("whole", sets, true);
  EXPECT_EQ(failed.status, "failed");
  EXPECT_EQ(failed.exit_status, 1);
  EXPECT_THAT(failed.error, says);
  EXPECT_THAT(names("whole"), ::testing::ElementsAre("step-10.distrusted", "step-2", "step-4.bad",
                                                     "step-6.distrusted", "step-8.bad"));
  // However often it is started again, nothing is taken that was not believed, and nothing is trained.
  for (int start = 0; start < 3; ++start) {
    EXPECT_THAT(refusal("whole", sets), says);
    EXPECT_EQ(events("whole", "fallback").size(), 4u);
    EXPECT_THAT(events("whole", "resume"), IsEmpty());
  }
  resume_to(whole, "whole", sets + Sets{"recovery.fallbacks=4"});
  EXPECT_EQ(events("whole", "resume").at(0).at("slot"), 2);
}

TEST_F(Canary, WithoutFallbacksTheFirstDoubtEndsTheRun) {
  const Sets sets = kFour + Sets{"recovery.fallbacks=0"};
  const RunResult whole = run("whole", sets, false);
  cut_back("whole", 6);
  copy("whole", "damaged");
  flip_bit_of(generation("damaged", 6) / "MANIFEST.json", 77);
  EXPECT_THAT(refusal("damaged", sets), HasSubstr("1 checkpoint(s) of this attempt could not be believed"));
  Forgery forgery(*files_, checkpoints("whole"), 6);
  forgery.flip(forgery.weights().back());
  forgery.write();
  EXPECT_THAT(run("whole", sets, true).error, HasSubstr("its canary differs on rank 0"));
  EXPECT_THAT(refusal("whole", sets), HasSubstr("its canary differs on rank 0"));
  resume_to(whole, "whole", sets + Sets{"recovery.fallbacks=1"});
}

TEST_F(Canary, WhereNoneIsLeftTheRunStartsAgain) {
  const Sets sets = {"run.steps=6", "recovery.keep=6"};
  const RunResult whole = run("whole", sets, false);
  cut_back("whole", 4);
  for (const std::int64_t step : {2, 4}) {
    Forgery forgery(*files_, checkpoints("whole"), step);
    forgery.flip(forgery.weights().front());
    forgery.write();
  }
  resume_to(whole, "whole", sets);
  EXPECT_EQ(events("whole", "fallback").size(), 2u);
  EXPECT_EQ(events("whole", "fallback").at(1).at("to_slot"), 0);
  EXPECT_EQ(events("whole", "resume").at(0).at("slot"), 0);
}

TEST_F(Canary, WhatCannotBeComparedIsSaidAndIsNoFailure) {
  const struct {
    const char* name;
    Sets sets, saved;
    const char* reason;
  } cases[] = {
      {"ranks", {"parallel.ranks=1"}, kTwo, "it was saved by 2 rank(s), and 1 continue"},
      {"seed", {"run.seed_rounding=77"}, {}, "with other settings of the model, its data or its precision"},
      {"kernels", {"device.kernels=reference"}, {}, "its loss was recorded with ranks 1"},
      {"threads", {"device.threads=2"}, {}, "its loss was recorded with ranks 1"},
      {"off", {"recovery.canary=false"}, {}, "recovery.canary = false"},
      {"never", {"recovery.canary=true"}, {"recovery.canary=false"}, "rank 0 recorded no loss after it"},
      {"model", {"model.dropout=0.5"}, {}, "with other settings of the model"}};
  for (const auto& tried : cases) {
    SCOPED_TRACE(tried.name);
    const RunResult whole = run(tried.name, kFour + tried.saved, false);
    ASSERT_EQ(whole.error, "");
    cut_back(tried.name, 6);
    const RunResult resumed = run(tried.name, kFour + tried.saved + tried.sets, true);
    EXPECT_EQ(resumed.error, "");
    EXPECT_EQ(resumed.steps, 8);
    EXPECT_THAT(events(tried.name, "fallback"), IsEmpty());
    EXPECT_THAT(log(tried.name), AllOf(HasSubstr("checkpoint of slot 6: its canary was not compared: "),
                                       HasSubstr(tried.reason)));
  }
  // No slot has begun after the last checkpoint.
  run("ended", kFour, false);
  EXPECT_FALSE(fs::exists(generation("ended", 8) / "rank0.canary"));
  const RunResult longer = run("ended", {"run.steps=10", "recovery.keep=6"}, true);
  EXPECT_EQ(longer.error, "");
  EXPECT_THAT(log("ended"), HasSubstr("its canary was not compared: rank 0 recorded no loss after it"));
}

// Settings of what comes after a forward may change.
TEST_F(Canary, IsComparedUnderAnotherRate) {
  run("whole", kFour, false);
  cut_back("whole", 6);
  const RunResult resumed = run("whole", kFour + Sets{"optimizer.lr=1e-4", "run.log_every=2"}, true);
  EXPECT_EQ(resumed.error, "");
  EXPECT_THAT(log("whole"), HasSubstr("is the recorded one, to the bit"));
}

struct Policy {
  const char* name;
  Sets sets;
  bool compared = true;
};

// Runs that die and are continued: no checkpoint is doubted, and the bits are those of the undisturbed run.
class CanaryOfPolicies : public Canary {
 protected:
  void expect_believed(const Policy& policy, const Sets& base) {
    SCOPED_TRACE(policy.name);
    const Sets sets = base + policy.sets;
    const RunResult whole = run(policy.name, sets, false);
    ASSERT_EQ(whole.error, "");
    const CheckpointStore store(*files_, checkpoints(policy.name).string(), {});
    const std::vector<std::int64_t> steps = store.generations();
    ASSERT_GE(steps.size(), 2u);
    cut_back(policy.name, steps[steps.size() - 2]);
    const RunResult resumed = run(policy.name, sets, true);
    EXPECT_EQ(resumed.error, "");
    EXPECT_THAT(events(policy.name, "fallback"), IsEmpty());
    EXPECT_THAT(log(policy.name), policy.compared ? HasSubstr("is the recorded one, to the bit")
                                                  : HasSubstr("its canary was not compared: "));
    if (policy.compared) {
      EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
    }
  }
};

TEST_F(CanaryOfPolicies, DoubtsNoCheckpointOfALanguageModel) {
  const Policy policies[] = {
      {"checkfreq", {"recovery={type='checkfreq', profile=1, max_overhead=0.9, keep=50}"}},
      {"background", {"recovery.async=true"}},
      {"replica", kTwo + Sets{"recovery={type='replica', every=2, keep=6}"}},
      {"peer_memory", kTwo + Sets{"recovery={type='peer_memory', every=2, keep=6}"}},
      {"spike_guard", {"recovery={type='spike_guard', inner={type='full', every=2, keep=6}}"}},
      {"bmuf", kTwo + Sets{"sync={type='bmuf', interval=3}"}},
      {"diloco", kTwo + Sets{"sync={type='diloco', interval=3}"}},
      {"easgd", kTwo + Sets{"sync={type='easgd', interval=3}"}},
      {"palsgd", kTwo + Sets{"sync={type='palsgd', interval=4, warmup=2, p=0.01, eta=0.5}"}},
      {"mixing_slot", kTwo + Sets{"sync={type='palsgd', interval=4, warmup=2, p=0.4, eta=0.5}"}, false},
      {"streaming",
       kTwo + Sets{"sync={type='streaming_diloco', interval=4, fragments=2, delay=1, alpha=0.5}"}},
      {"powersgd", kTwo + Sets{"sync={type='powersgd', start_after=2, rank=1, inner={type='ddp'}}"}},
      {"sign", kTwo + Sets{"sync={type='sign', start_after=2, inner={type='diloco', interval=3}}"}},
      {"accumulated", {"run.accumulate=3"}},
      {"dropout", {"model.dropout=0.2"}},
      {"mxfp8", {"precision={type='mxfp8'}"}},
      {"fp8_delayed", {"precision={type='fp8', recipe='delayed', history=3, head=true}"}},
      {"fp8_latest", {"precision={type='fp8', recipe='delayed', amax='latest', keep_first=0, keep_last=0}"}},
      {"shadow", kTwo + Sets{"sync={type='shadow_ma', mode='stepped', interval=3}"}, false},
      {"hogwild", Sets{"parallel.workers=2", "optimizer={type='sgd', lr=0.1}", "sync={type='none'}"}, false},
  };
  for (const Policy& policy : policies) expect_believed(policy, {"run.steps=14"});
}

TEST_F(CanaryOfPolicies, DoubtsNoCheckpointOfTables) {
  text_ = clicks_run();
  const Policy policies[] = {
      {"full", {}},
      {"two", kTwo},
      {"sharded", kTwo + Sets{"model.placement=rows"}},
      {"checknrun", {"recovery={type='checknrun', every=6, keep=6}"}},
      {"consecutive", {"recovery={type='checknrun', every=6, keep=6, increments='consecutive'}"}},
      {"quantised", {"recovery={type='checknrun', every=6, keep=6, bits='4'}"}, false},
      {"mixed",
       {"recovery={type='cpr', tracker='scar', partial='always', target_pls=0.02, async=false, keep=50}",
        "emulate={hours=24, shards=8, law='none', mtbf_hours=3, save_minutes=2, load_minutes=1, "
        "restart_minutes=1}"},  // hours are slots, so saves come at the same ones every time
       false},
  };
  for (const Policy& policy : policies) expect_believed(policy, {"run.steps=24"});
}

/// Once, after slot `slot`: something outside of the run.
class Meddler final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("slot", "0")};
  static constexpr ComponentInfo kInfo{
      .id = "meddler", .summary = "changes files while a run trains", .options = kOptions};
  static inline std::function<void()> act = {};

  explicit Meddler(const Options& options) : slot_(options.integer("slot")) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    if (record.slot == slot_ && act) std::exchange(act, {})();
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t slot_;
};

TENON_STATIC_PLUGIN(meddling, PluginInfo{.id = "test.meddling", .version = "1.0.0", .summary = "meddles"},
                    Meddler)

TEST_F(Canary, ARollBackBelievesNoMoreThanAResume) {
  runtime_.add_plugin(meddling);
  const Sets sets = {"run.steps=8", "recovery.keep=6", "observe=[{type='meddler', slot=6}]",
                     "emulate={hours=8.0, shards=2, failure=[{hour=7.0, shards=[0]}]}"};
  const RunResult whole = run("whole", sets, false);
  ASSERT_EQ(whole.error, "");
  EXPECT_THAT(events("whole", "fallback"), IsEmpty());
  EXPECT_EQ(events("whole", "failure").size(), 1u);
  Meddler::act = [&] {
    Forgery forgery(*files_, checkpoints("forged"), 6);
    forgery.flip(forgery.weights().front());
    forgery.write();
  };
  const RunResult forged = run("forged", sets, false);
  EXPECT_EQ(forged.error, "");
  EXPECT_EQ(forged.weights_hash, whole.weights_hash);
  ASSERT_EQ(events("forged", "fallback").size(), 1u);
  EXPECT_EQ(events("forged", "fallback")[0].at("slot"), 6);
  EXPECT_EQ(events("forged", "fallback")[0].at("to_slot"), 4);
  EXPECT_EQ(events("forged", "failure").size(), 1u) << "an emulated failure happens once";
}

// The program, with processes: stderr says what was taken, and restarts end.
TEST(CanaryOfProcesses, RestartsNeverGoInACircle) {
  const Scratch scratch;
  const std::vector<std::string> sets = {"--set", "parallel.ranks=2", "--set", "transport.type=socket",
                                         "--set", "sync.type=ddp",    "--set", "run.steps=12",
                                         "--set", "recovery.keep=7"};
  const auto launched = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"launch", "-n", "2", "--restarts", "2", "--", "train", "run.toml"};
    words.insert(words.end(), sets.begin(), sets.end());
    words.insert(words.end(), more.begin(), more.end());
    return scratch.run(words);
  };
  ASSERT_EQ(launched({}).status, 0);
  const std::string weights = scratch.summary("weights_hash");
  const fs::path attempt = scratch / "runs/tiny/1";
  const auto files = make_posix_files();
  fs::remove_all(attempt / "checkpoints/step-12");
  for (const std::int64_t step : {10, 8}) {
    Forgery forgery(*files, attempt / "checkpoints", step);
    forgery.flip(forgery.weights().front());
    forgery.write();
  }
  const Ended refused = launched({"--resume", "--set", "recovery.fallbacks=1"});
  EXPECT_EQ(refused.status, 1) << refused.err;
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("tenon: warning: checkpoint of slot 10 is not believed and was put aside as"),
                    HasSubstr("2 checkpoint(s) of this attempt could not be believed")));
  const Ended resumed = launched({"--resume", "--set", "recovery.fallbacks=2"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(scratch.summary("weights_hash"), weights);
}

}  // namespace
}  // namespace tenon::integration::canary_test
