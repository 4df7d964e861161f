// [init]: a run begins with the weights of another one, to the bit, whatever its strategy, device and layout
// are; it reads them once; and what does not fit is listed whole.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

namespace tenon::integration::init_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kRanks = {"--set", "parallel.ranks=2", "--set", "transport.type=\"thread\""};

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A run of the scratch folder's configuration in `folder`, whose last words are its own.
class Init : public ::testing::Test {
 protected:
  Ended train(const std::string& folder, const std::vector<std::string>& more) const {
    return scratch_.train(joined({"--run-dir", folder}, more));
  }
  /// Trains what others begin with.
  void source(const std::vector<std::string>& more = {}) const {
    const Ended ended = train("source", more);
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  /// One slot that changes nothing: the weights at the start are those of the end.
  static std::vector<std::string> still(const std::vector<std::string>& more = {}) {
    return joined({"--set", "init.from=source", "--set", "run.steps=1", "--set", "optimizer.lr=0", "--set",
                   "run.seed=77"},
                  more);
  }
  json summary(const std::string& folder) const {
    return json::parse(read_file(scratch_ / (folder + "/1/summary.json")));
  }
  std::string hash(const std::string& folder) const { return summary(folder).at("weights_hash"); }

  Scratch scratch_;
};

TEST_F(Init, GivesTheWeightsOfTheOtherRunToTheBit) {
  source();
  const struct {
    const char* name;
    std::vector<std::string> sets;
  } cases[] = {{"alone", {}},
               {"ddp", joined(kRanks, {"--set", "sync={type=\"ddp\"}"})},
               {"anchored", joined(kRanks, {"--set", "sync={type=\"diloco\", interval=4}"})},
               {"emulated", {"--set", "device.type=\"cuda_emulated\""}}};
  for (const auto& c : cases) {
    const Ended ended = train(c.name, still(c.sets));
    ASSERT_EQ(ended.status, 0) << c.name << ended.err;
    EXPECT_EQ(hash(c.name), hash("source")) << c.name;
  }
  ASSERT_EQ(train("drawn", {"--set", "run.steps=1", "--set", "optimizer.lr=0"}).status, 0);
  EXPECT_NE(hash("drawn"), hash("source")) << "the test would see nothing";
}

TEST_F(Init, OfReplicasThatUpdateAloneIsWhatTheyEvaluate) {
  source(joined(kRanks, {"--set", "sync={type=\"diloco\", interval=4}"}));
  const Ended ended = train("after", still());
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(hash("after"), hash("source"));
  EXPECT_EQ(summary("after")["metrics"]["val/loss"], summary("source")["metrics"]["val/loss"]);
}

TEST_F(Init, ReadsRowsOfTablesWhoeverOwnsThemNow) {
  const std::string config = TENON_SOURCE_DIR "/configs/base/dlrm_adult.toml";
  const std::vector<std::string> quiet = {
      "--quiet", "--set", "run.steps=4", "--set", "run.eval_batches=2", "--set", "device.threads=1"};
  const auto run = [&](const std::string& folder, const std::vector<std::string>& more) {
    const Ended ended = scratch_.run(joined(joined({"train", config, "--run-dir", folder}, quiet), more));
    ASSERT_EQ(ended.status, 0) << ended.err;
  };
  run("source",
      {"--set", "recovery={type=\"checknrun\", every=2}"});  // its rows are in an encoding of its own
  run("alone", still());
  run("sharded",
      still(joined(kRanks, {"--set", "sync={type=\"ddp\"}", "--set", "model.placement=\"rows\""})));
  EXPECT_EQ(hash("alone"), hash("sharded"));
}

TEST_F(Init, IsTakenFromTheNamedCheckpointAndIsInTheManifest) {
  source();
  ASSERT_EQ(train("newest", still()).status, 0);
  ASSERT_EQ(train("named", still({"--set", "init.step=4"})).status, 0);
  EXPECT_NE(hash("newest"), hash("named"));
  const json manifest = json::parse(read_file(scratch_ / "named/1/manifest.json"));
  EXPECT_THAT(manifest["parent_run"].get<std::string>(), HasSubstr("/source/1"));
  EXPECT_EQ(manifest["init"]["step"], 4);
  EXPECT_EQ(manifest["init"]["digest"].get<std::string>().size(), 64U);
  EXPECT_GT(manifest["init"]["loaded"], 10);
  const Ended compared = scratch_.run({"compare", "newest", "named"});
  EXPECT_THAT(compared.out, HasSubstr("digest"));
  const Ended check = scratch_.run({"check", "run.toml", "--set", "init.from=source"});
  EXPECT_EQ(check.status, 0) << check.err;
}

TEST_F(Init, IsNotReadAgainByAResume) {
  source();
  const std::vector<std::string> words = {"--set", "init.from=source"};
  ASSERT_EQ(train("whole", words).status, 0);
  ASSERT_EQ(train("cut", joined(words, {"--set", "run.max_samples=8"})).status, 0);
  ASSERT_EQ(summary("cut")["steps"], 4);
  // What is left of the source has no weights any more.
  fs::remove_all(scratch_ / "source/1/checkpoints");
  const Ended resumed = train("cut", joined(words, {"--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(hash("cut"), hash("whole"));
  const json manifest = json::parse(read_file(scratch_ / "cut/1/manifest.json"));
  EXPECT_EQ(manifest["init"]["step"], 6) << "the resumed run still says what it began with";
  // Nor may a run whose checkpoints are all damaged go on from drawn weights.
  for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "cut/1/checkpoints")) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 100);
  }
  const Ended lost = train("cut", joined(words, {"--resume"}));
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.err, HasSubstr("the weights of [init] were not read again"));
}

TEST_F(Init, WithTheOptimizerGoesOnWithItsStateAndItsCountOfUpdates) {
  source();
  // At the rate of the source, on the same samples: only what the optimizer knows differs.
  const auto after = [&](const char* folder, const char* what) {
    const Ended ended = train(folder, {"--set", "init.from=source", "--set", "run.steps=1", "--set",
                                       std::string("init.what=\"") + what + "\""});
    EXPECT_EQ(ended.status, 0) << ended.err;
    return hash(folder);
  };
  EXPECT_NE(after("weights", "weights"), after("both", "weights+optimizer"));
  ASSERT_EQ(train("still", still({"--set", "init.what=\"weights+optimizer\""})).status, 0);
  EXPECT_EQ(hash("still"), hash("source"));
  // Seven updates in one run, and one after six, where every slot has the same sample.
  write_file(scratch_ / "one.txt", "seventeen letters");
  const std::vector<std::string> one = {"--set", "data={path=\"one.txt\", batch=1, val_fraction=0}"};
  const auto slots = [&](const char* folder, int steps, const std::vector<std::string>& more) {
    const Ended ended =
        train(folder, joined(joined(one, {"--set", "run.steps=" + std::to_string(steps)}), more));
    EXPECT_EQ(ended.status, 0) << ended.err;
    return hash(folder);
  };
  slots("six", 6, {});
  EXPECT_EQ(slots("one_more", 1, {"--set", "init={from=\"six\", what=\"weights+optimizer\"}"}),
            slots("seven", 7, {}));
  const json manifest = json::parse(read_file(scratch_ / "both/1/manifest.json"));
  EXPECT_EQ(manifest["init"]["what"], "weights+optimizer");
  // Replicas that share their weights, and a table of rows, have it in other places.
  const Ended ranks = train(
      "ranks", joined(kRanks, {"--set", "init.from=source", "--set", "run.steps=1", "--set", "optimizer.lr=0",
                               "--set", "sync={type=\"ddp\"}", "--set", "init.what=\"weights+optimizer\""}));
  ASSERT_EQ(ranks.status, 0) << ranks.err;
  EXPECT_EQ(hash("ranks"), hash("source"));
  const Ended other = train("other", {"--set", "init.from=source", "--set", "init.what=\"weights+optimizer\"",
                                      "--set", "optimizer={type=\"lamb\"}"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("was trained by optimizer 'adamw', and this run by 'lamb'"));
}

TEST_F(Init, FrozenParametersStayAsTheyWereLoaded) {
  source();
  const auto exported = [&](const std::string& run, const std::string& file) {
    const Ended ended = scratch_.run({"export", run, "--out", file});
    EXPECT_EQ(ended.status, 0) << ended.err;
    return read_file(scratch_ / file);
  };
  const std::vector<std::string> all = {"--set", "init={from=\"source\", frozen=[\"*\"]}"};
  EXPECT_THAT(train("all", all).err, HasSubstr("nothing"));
  const Ended some = train("some", {"--set",
                                    "init={from=\"source\", frozen=[\"transformer.h.0.attn.*\", "
                                    "\"*.ln_f.*\"]}",
                                    "--set", "optimizer.weight_decay=0.5"});
  ASSERT_EQ(some.status, 0) << some.err;
  const std::string before = exported("source", "before/weights.safetensors"),
                    after = exported("some", "after/weights.safetensors");
  ASSERT_EQ(before.size(), after.size());
  const std::size_t header =
      8 + static_cast<unsigned char>(before[0]) + 256 * static_cast<unsigned char>(before[1]);
  const json names = json::parse(before.substr(8, header - 8));
  for (const auto& [name, entry] : names.items()) {
    if (name == "__metadata__") continue;
    const std::size_t from = header + entry["data_offsets"][0].get<std::size_t>(),
                      length = entry["data_offsets"][1].get<std::size_t>() -
                               entry["data_offsets"][0].get<std::size_t>();
    const bool frozen = name.starts_with("transformer.h.0.attn.") || name.find("ln_f") != std::string::npos;
    EXPECT_EQ(before.substr(from, length) == after.substr(from, length), frozen) << name;
  }
  const Ended none = train("none", {"--set", "init={from=\"source\", frozen=[\"*.lm_head.*\"]}"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("frozen: no parameter matches '*.lm_head.*'"));
}

TEST_F(Init, AForkEqualsTheRunThatWasNotStopped) {
  const struct {
    const char* name;
    std::vector<std::string> sets;
  } cases[] = {{"alone", {}},
               {"ddp", joined(kRanks, {"--set", "sync={type=\"ddp\"}"})},
               {"anchored", joined(kRanks, {"--set", "sync={type=\"diloco\", interval=4}"})},
               {"nvfp4", {"--set", "precision.type=\"nvfp4\""}}};
  for (const auto& c : cases) {
    const std::string name = c.name;
    const Ended whole = train(name, c.sets);
    ASSERT_EQ(whole.status, 0) << name << whole.err;
    const Ended fork =
        train(name + "_fork",
              joined(c.sets, {"--set", "init={from=\"" + name + "\", step=4, what=\"everything\"}"}));
    ASSERT_EQ(fork.status, 0) << name << fork.err;
    EXPECT_EQ(hash(name + "_fork"), hash(name)) << name;
    EXPECT_EQ(summary(name + "_fork")["metrics"]["val/loss"], summary(name)["metrics"]["val/loss"]) << name;
    EXPECT_EQ(summary(name + "_fork")["steps"], 6) << name;
    EXPECT_EQ(summary(name + "_fork")["samples"], summary(name)["samples"]) << name;
  }
  // With another rate from there on it is another run; a resume of it goes on from its own checkpoints.
  const std::vector<std::string> words = {"--set", "init={from=\"alone\", step=4, what=\"everything\"}",
                                          "--set", "optimizer.lr=1e-5"};
  ASSERT_EQ(train("slower", words).status, 0);
  EXPECT_NE(hash("slower"), hash("alone"));
  ASSERT_EQ(train("cut", joined(words, {"--set", "run.max_samples=10"})).status, 0);
  ASSERT_EQ(summary("cut")["steps"], 5);
  const Ended resumed = train("cut", joined(words, {"--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(hash("cut"), hash("slower"));
  // What is no copy of that run is no fork of it.
  const struct {
    std::vector<std::string> sets;
    const char* says;
  } refused[] = {
      {{"--set", "model.width=32"}, "17 parameters do not fit this model"},
      {{"--set", "optimizer={type=\"lamb\"}"}, "was trained by optimizer 'adamw', and this run by 'lamb'"},
      {{"--set", "sync={type=\"diloco\", interval=4}", "--set", "parallel.ranks=2", "--set",
        "transport.type=\"thread\""},
       "a fork needs the parallel.ranks and the sync strategy"},
      {{"--set", "run.steps=3"}, "the checkpoint is of slot 4, and run.steps is 3"},
      {{"--set", "init.missing=\"draw\""}, "a fork is the run that it comes from"}};
  for (const auto& c : refused) {
    const Ended ended = train("refused", joined({words[0], words[1]}, c.sets));
    EXPECT_EQ(ended.status, 2) << c.says;
    EXPECT_THAT(ended.err, HasSubstr(c.says));
  }
}

TEST_F(Init, RenamesDrawsAndDropsWhereThatIsSaid) {
  source({"--set", "model.layers=2"});
  const Ended refused = train("refused", still());
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("13 parameters do not fit this model"),
                                 HasSubstr("not in this model: transformer.h.1.ln_1.weight"),
                                 HasSubstr("extra = \"drop\""), Not(HasSubstr("h.0"))));
  ASSERT_EQ(train("dropped", still({"--set", "init.extra=\"drop\""})).status, 0);
  const json dropped = json::parse(read_file(scratch_ / "dropped/1/manifest.json"));
  EXPECT_EQ(dropped["init"]["dropped"], 13);

  // The second block in the place of the first: another model than the one with the first.
  const std::string rename =
      "init.rename=[\"transformer.h.1.*.weight=transformer.h.0.*.weight\", "
      "\"transformer.h.1.*.bias=transformer.h.0.*.bias\", \"transformer.h.0.*=unused.*\"]";
  ASSERT_EQ(train("second", still({"--set", rename, "--set", "init.extra=\"drop\""})).status, 0);
  EXPECT_NE(hash("second"), hash("dropped"));

  const Ended missing = train("missing", still({"--set", "model.layers=3"}));
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("not there: transformer.h.2.ln_1.weight"));
  ASSERT_EQ(train("grown", still({"--set", "model.layers=3", "--set", "init.missing=\"draw\""})).status, 0);
  EXPECT_EQ(json::parse(read_file(scratch_ / "grown/1/manifest.json"))["init"]["drawn"], 13);
}

TEST_F(Init, MistakesAreRefusedBeforeAnythingIsWritten) {
  source();
  const struct {
    std::vector<std::string> sets;
    int status;
    const char* says;
  } cases[] = {
      {{"--set", "init.from=nowhere"}, 2, "cannot find 'nowhere'"},
      {{"--set", "init.step=3"}, 2, "'from'"},
      {{"--set", "init.from=source"}, 0, ""},
      {{"--set", "init.from=source", "--set", "init.step=3"}, 2, "has no checkpoint of step 3; it has 4, 6"},
      {{"--set", "init.from=source", "--set", "model.width=32"}, 2, "is f32 [16] there and f32 [32] here"},
      {{"--set", "init.from=source", "--set", "init.rename=[\"a\"]"}, 2, "expected \"THERE=HERE\""},
      {{"--set", "init.from=source", "--set", "init.rename=[\"*=*\", \"a*=b\"]"},
       2,
       "expected \"THERE=HERE\""},
      {{"--set", "init.from=source", "--set", "init.rename=[\"*=same\"]"}, 2, "expected \"THERE=HERE\""},
      {{"--set", "init.from=source", "--set",
        "init.rename=[\"transformer.wte.weight=x\", \"transformer.wpe.weight=x\"]"},
       2,
       "two parameters the name 'x'"},
      {{"--set", "init.from=source", "--set", "init.mising=\"draw\""}, 2, "did you mean 'missing'?"},
  };
  int number = 0;
  for (const auto& c : cases) {
    const std::string folder = "mistake" + std::to_string(number++);
    const Ended ended = train(folder, c.sets);
    if (c.status == 0) {
      EXPECT_EQ(ended.status, 0) << ended.err;
      continue;
    }
    EXPECT_EQ(ended.status, c.status) << c.sets.back() << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(c.says));
    EXPECT_FALSE(fs::exists(scratch_ / folder)) << c.sets.back();
  }
  // A damaged checkpoint is named with file and block.
  for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "source/1/checkpoints/step-6")) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(entry.path()) / 2));
    file.write("\x55\xaa\x55\xaa", 4);
  }
  const Ended damaged = train("damaged", {"--set", "init.from=source"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("step-6"));
}

}  // namespace
}  // namespace tenon::integration::init_test
