// Witnesses of runs ([run] witness_every) and what `tenon replay` makes of them: a witness changes no bit and
// survives interruptions, and a silent error of a single bit is named with its tensor, layer, phase and slot.
#include "run_program.hpp"

#include "witness/witness_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <random>
#include <set>

namespace tenon::integration::witness_test {
namespace {

using Sets = std::vector<std::string>;

Sets options(const Sets& sets) {
  Sets words;
  for (const std::string& set : sets) {
    words.emplace_back("--set");
    words.push_back(set);
  }
  return words;
}

Sets both(Sets first, const Sets& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

const Sets kTwoRanks{"parallel.ranks=2", "transport.type=thread", "sync.type=ddp"};
const Sets kEverySlot{"run.witness_every=1"};

/// The tiny run with checkpoints of slots 0, 2, 4 ... that all stay.
class Recorded : public Scratch {
 public:
  explicit Recorded(const Sets& sets, const std::string& toml = "") {
    std::string text =
        toml.empty() ? replaced(read_file(*this / "run.toml"), "every = 2", "every = 2\nkeep = 20") : toml;
    write_file(*this / "run.toml", text);
    const Ended ended = train(options(sets));
    EXPECT_EQ(ended.status, 0) << ended.err;
  }
  std::string witness(int rank = 0, const std::string& attempt = "latest") const {
    return read_file(folder() / "runs/tiny" / attempt / ("witness.rank" + std::to_string(rank) + ".txt"));
  }
  train::WitnessRecord record(int rank = 0) const { return train::parse_witness(witness(rank), "witness"); }
  Ended replay(Sets words) const {
    words.insert(words.begin(), {"replay", "runs/tiny"});
    return run(words);
  }
  nlohmann::json replayed(Sets words, int status) const {
    words.emplace_back("--json");
    const Ended ended = replay(words);
    EXPECT_EQ(ended.status, status) << ended.err << ended.out;
    return ended.out.empty() ? nlohmann::json() : nlohmann::json::parse(ended.out);
  }
};

std::vector<std::int64_t> slots_of(const train::WitnessRecord& record) {
  std::vector<std::int64_t> slots;
  for (const train::WitnessSlot& slot : record.slots) slots.push_back(slot.slot);
  return slots;
}

struct Cell {
  const char* name;
  Sets sets;
};

void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name;
}

const Cell kCells[] = {
    {"one_rank", {}},
    {"accumulate", {"run.accumulate=3"}},
    {"bf16", {"precision.type=bf16"}},
    {"device_memory", {"device.type=cuda_emulated"}},
    {"ddp", kTwoRanks},
    {"diloco", {"parallel.ranks=2", "transport.type=thread", "sync.type=diloco", "sync.interval=2"}},
    {"two_threads", {"device.threads=2", "device.kernels=portable"}},
};

class Witness : public ::testing::TestWithParam<Cell> {};

TEST_P(Witness, ChangesNoBitAndAReplayFindsNoDifference) {
  const Recorded without(GetParam().sets);
  const Recorded with(both(GetParam().sets, kEverySlot));
  EXPECT_EQ(without.summary("weights_hash"), with.summary("weights_hash"));
  EXPECT_EQ(without.summary("state_hash"), with.summary("state_hash"));
  EXPECT_FALSE(fs::exists(without / "runs/tiny/latest/witness.rank0.txt"));

  const auto before = tree(with / "runs");
  for (const char* step : {"0", "3", "5"}) {
    SCOPED_TRACE(step);
    const nlohmann::json answer = with.replayed({"--step", step, "--from", "0"}, 0);
    EXPECT_EQ(answer["equal"], true) << answer;
    EXPECT_EQ(answer["slots"], std::stoi(step) + 1);
    std::size_t recorded = 0;
    for (int rank = 0; rank < answer["ranks"].get<int>(); ++rank) {
      for (const train::WitnessSlot& slot : with.record(rank).slots)
        recorded += slot.slot <= std::stoi(step) ? slot.entries.size() : 0;
    }
    EXPECT_EQ(answer["tensors"], recorded);
  }
  EXPECT_EQ(changes(with / "runs", before), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Cells, Witness, ::testing::ValuesIn(kCells),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Witnesses, HoldEveryTensorOfTheSlotsThatWereAskedFor) {
  const Recorded run({"run.witness_every=2", "run.accumulate=2"});
  const train::WitnessRecord record = run.record();
  EXPECT_EQ(slots_of(record), (std::vector<std::int64_t>{0, 2, 4}));
  std::map<std::string, std::set<std::string>> names;
  for (const train::WitnessName& name : record.names) names[name.phase].insert(name.tensor);
  EXPECT_EQ(names["input"].size(), 2u);  // tokens and targets
  EXPECT_TRUE(names["output"].contains("transformer.wte")) << ::testing::PrintToString(names["output"]);
  EXPECT_GT(names["gradient"].size(), 8u);
  EXPECT_EQ(names["gradient"], names["weight"]);
  EXPECT_EQ(names["state"].size(), 2 * names["weight"].size());  // both moments
  EXPECT_EQ(names.count("round"), 0u);
  for (const train::WitnessSlot& slot : record.slots) {
    std::map<std::string, std::size_t> entries;
    for (const train::WitnessEntry& entry : slot.entries) ++entries[record.names[entry.name].phase];
    EXPECT_EQ(entries["input"], 2 * names["input"].size());  // of two micro-batches
    EXPECT_EQ(entries["output"], 2 * names["output"].size());
    EXPECT_EQ(entries["gradient"], names["gradient"].size());
    EXPECT_EQ(entries["state"], names["state"].size());
  }
}

TEST(Witnesses, HoldTheOutputsOfChosenLayersAlone) {
  const Recorded run(both(kEverySlot, {"run.witness_layers=['*.mlp.*', 'transformer.wte']"}));
  std::set<std::string> outputs, phases;
  for (const train::WitnessName& name : run.record().names) {
    phases.insert(name.phase);
    if (name.phase == "output") outputs.insert(name.tensor);
  }
  EXPECT_EQ(phases.size(), 5u);
  ASSERT_GE(outputs.size(), 3u);
  for (const std::string& output : outputs)
    EXPECT_TRUE(output == "transformer.wte" || output.find(".mlp.") != std::string::npos) << output;
  EXPECT_EQ(run.replayed({"--step", "5"}, 0)["equal"], true);
}

TEST(Witnesses, HoldWeightsAgainAfterRoundsWhereReplicasUpdateAlone) {
  const Sets alone{"parallel.ranks=2", "transport.type=thread", "sync.type=diloco", "sync.interval=2"};
  const train::WitnessRecord record = Recorded(both(alone, kEverySlot)).record();
  std::map<std::string, std::set<std::string>> names;
  for (const train::WitnessName& name : record.names) names[name.phase].insert(name.tensor);
  EXPECT_EQ(names["round"], names["weight"]);
}

TEST(Witnesses, AreThoseOfAnUndisturbedRunAfterAKillAndAResume) {
  const Recorded whole(both(kTwoRanks, kEverySlot));
  for (const int slot : {1, 3, 5}) {
    SCOPED_TRACE(slot);
    Scratch killed;
    write_file(killed / "run.toml", read_file(whole / "run.toml"));
    const Sets sets = options(both(kTwoRanks, kEverySlot));
    // Both ranks are threads of the process, and each enters every slot once.
    EXPECT_EQ(killed.train(sets, {{"TENON_KILL_AT", "compute:" + std::to_string(2 * slot + 1)}}).signal,
              SIGKILL);
    EXPECT_EQ(killed.train(both({"--resume"}, sets)).status, 0);
    for (const char* rank : {"0", "1"}) {
      const std::string file = std::string("runs/tiny/latest/witness.rank") + rank + ".txt";
      EXPECT_EQ(read_file(killed / file), read_file(whole / file)) << file;
    }
  }
}

TEST(Witnesses, HoldTheRowsOfTablesThatASlotTouched) {
  Sets sets = both(kEverySlot, {"run.steps=6"});
  const Recorded run(both(sets, kTwoRanks), clicks_run());
  std::map<std::string, std::set<std::string>> names;
  for (const train::WitnessName& name : run.record().names) names[name.phase].insert(name.tensor);
  const auto tables = [&](const char* phase) {
    return std::count_if(names[phase].begin(), names[phase].end(),
                         [](const std::string& name) { return name.find("emb") != std::string::npos; });
  };
  EXPECT_GT(tables("gradient"), 1);
  EXPECT_EQ(tables("gradient"), tables("weight"));
  EXPECT_EQ(tables("gradient"), tables("state"));
  EXPECT_EQ(run.replayed({"--step", "5", "--from", "0"}, 0)["equal"], true);
}

TEST(Witnesses, AreRefusedWhereWorkersWriteAtTheSameTime) {
  const Scratch scratch;
  const Ended ended = scratch.train(options(both(kEverySlot, {"parallel.workers=2", "optimizer.type=sgd"})));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(
      ended.err.find("run.witness_every = 1: the 2 workers of a replica update the same weights without "
                     "locks (parallel.workers), so no slot has weights of its own to record; set "
                     "parallel.workers = 1, or run.witness_every = 0"),
      std::string::npos)
      << ended.err;
}

TEST(Witnesses, OfTwoRunsAreComparedTensorByTensor) {
  const Recorded a(kEverySlot), same(kEverySlot), other(both(kEverySlot, {"optimizer.lr=1.1e-2"}));
  const auto compare = [&](const Recorded& b, const Sets& more) {
    return a.run(both({"compare", "runs/tiny", (b / "runs/tiny").string(), "--witness"}, more));
  };
  EXPECT_TRUE(compare(same, {}).out.starts_with("no tensor differs: ")) << compare(same, {}).out;
  const Ended ended = compare(other, {"--json"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  const nlohmann::json answer = nlohmann::json::parse(ended.out);
  EXPECT_EQ(answer["equal"], false);
  EXPECT_EQ(answer["first"]["slot"], 0);
  EXPECT_EQ(answer["first"]["phase"], "weight");
  const Recorded half({"run.witness_every=1", "parallel.ranks=2", "transport.type=thread", "sync.type=ddp"});
  EXPECT_NE(compare(half, {}).err.find("only runs of equally many ranks can be compared"), std::string::npos);
}

/// A bit that is turned over in a tensor of a rank, as [[fault]] takes it.
struct Planted {
  std::string phase, layer, tensor;
  std::int64_t slot = 0, bit = 0;
  int rank = 0;
};

/// One of the tensors of a phase that all slots have, at a drawn slot and bit. Bits are of the fractions of
/// the first floats: the error is silent.
Planted draw(const train::WitnessRecord& record, const std::string& phase, std::mt19937& random) {
  std::vector<train::WitnessName> names;
  std::copy_if(record.names.begin(), record.names.end(), std::back_inserter(names),
               [&](const train::WitnessName& name) { return name.phase == phase; });
  EXPECT_FALSE(names.empty());
  const train::WitnessName& name = names[random() % names.size()];
  return {phase,
          name.layer,
          name.tensor,
          static_cast<std::int64_t>(2 + random() % 8),
          static_cast<std::int64_t>(32 * (random() % 2) + random() % 20),
          static_cast<int>(random() % 2)};
}

TEST(Replay, NamesTheTensorOfTenOfTenSilentErrors) {
  const Sets sets = both(both(kTwoRanks, kEverySlot), {"run.steps=10"});
  const Recorded clean(sets);
  const train::WitnessRecord record = clean.record();
  std::mt19937 random(20261129);
  for (const char* phase : {"output", "gradient", "weight", "state", "output", "gradient", "weight", "state",
                            "output", "gradient"}) {
    const Planted planted = draw(record, phase, random);
    SCOPED_TRACE(planted.phase + " " + planted.tensor + ", slot " + std::to_string(planted.slot) + ", bit " +
                 std::to_string(planted.bit) + ", rank " + std::to_string(planted.rank));
    const Recorded run(
        sets, read_file(clean / "run.toml") + "\n[[fault]]\nrank = " + std::to_string(planted.rank) +
                  "\nstep = " + std::to_string(planted.slot) + "\nkind = \"flip\"\nwhat = \"" + phase +
                  "\"\ntensor = \"" + planted.tensor + "\"\nbit = " + std::to_string(planted.bit) + "\n");
    // The run itself saw nothing, and its hashes need not either: a small error is rounded away, and those of
    // replica 1 are not among them.
    EXPECT_EQ(run.summary("status"), "\"completed\"");
    const nlohmann::json answer = run.replayed({"--step", std::to_string(planted.slot)}, 1);
    EXPECT_EQ(answer["equal"], false);
    EXPECT_EQ(answer["first"]["phase"], planted.phase);
    EXPECT_EQ(answer["first"]["tensor"], planted.tensor);
    EXPECT_EQ(answer["first"]["layer"], planted.layer);
    EXPECT_EQ(answer["first"]["slot"], planted.slot);
    EXPECT_EQ(answer["first"]["rank"], planted.rank);
    EXPECT_EQ(answer["from"], planted.slot / 2 * 2);  // the newest checkpoint at or before the slot
    if (planted.slot % 2 == 1) {
      const nlohmann::json earlier = run.replayed({"--step", std::to_string(planted.slot - 1)}, 0);
      EXPECT_EQ(earlier["equal"], true);
    }
  }
}

TEST(Replay, SaysInWordsWhereARunWentAnotherWay) {
  const Recorded run({"run.witness_every=1"},
                     replaced(read_file(Scratch() / "run.toml"), "every = 2", "every = 2\nkeep = 20") +
                         "\n[[fault]]\nrank = 0\nstep = 3\nkind = \"flip\"\nwhat = "
                         "\"gradient\"\ntensor = \"transformer.wte.weight\"\nbit = 5\n");
  const Ended ended = run.replay({"--step", "4", "--from", "2"});
  EXPECT_EQ(ended.status, 1);
  const std::string text = run.plain(ended.out);
  EXPECT_NE(text.find("computed again from its checkpoint of slot 2 with kernels"), std::string::npos)
      << text;
  EXPECT_NE(
      text.find("the first difference is in slot 3 on rank 0: gradient 'transformer.wte.weight' of layer "
                "'transformer.wte', after the gradient exchange, before the update\nin this slot "),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("earlier slots are equal"), std::string::npos) << text;
  // Failures by schedule happened to the run, and do not happen to the replay.
  EXPECT_EQ(run.replay({"--step", "4", "--from", "0"}).status, 1);
  // A checkpoint after the error holds it: a replay from there agrees with the run.
  EXPECT_EQ(run.replay({"--step", "5", "--from", "4"}).status, 0);
}

TEST(Replay, OnOtherKernelsSaysThatBitsMayDiffer) {
  const Recorded run(kEverySlot);
  const Ended portable = run.replay({"--step", "5", "--from", "0", "--kernels", "portable"});
  EXPECT_EQ(portable.status, 0) << portable.err;
  EXPECT_NE(portable.out.find("bits may differ because of device.kernels = \"portable\""), std::string::npos)
      << portable.out;
  EXPECT_NE(portable.out.find("not by how much"), std::string::npos);
  const Ended emulated = run.replay({"--step", "5", "--on", "cuda_emulated"});
  EXPECT_EQ(emulated.status, 0) << emulated.err;
  EXPECT_NE(emulated.out.find("device.type = \"cuda_emulated\""), std::string::npos) << emulated.out;
}

TEST(Replay, PassesOverADamagedCheckpointAndLeavesItInPlace) {
  const Recorded run(kEverySlot);
  const fs::path file = run / "runs/tiny/latest/checkpoints/step-4/rank0.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(file, bytes);
  const auto before = tree(run / "runs");
  const Ended ended = run.replay({"--step", "5"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.err.find("checkpoint step-4 is passed over"), std::string::npos) << ended.err;
  EXPECT_NE(ended.out.find("its checkpoint of slot 2"), std::string::npos) << ended.out;
  EXPECT_EQ(changes(run / "runs", before), std::vector<std::string>());
}

TEST(Replay, RefusesInWholeWords) {
  const Recorded run({"run.witness_every=2"});
  const std::string attempt = "runs/tiny/1";
  const auto refused = [&](const Sets& words) {
    const Ended ended = run.replay(words);
    EXPECT_NE(ended.status, 0) << ended.out;
    EXPECT_EQ(ended.out, "");
    return run.plain(ended.err);
  };
  EXPECT_EQ(run.run({"replay", "runs/tiny"}).err,
            "tenon: tenon replay: which run, and which slot? usage: tenon replay RUN --step N [options]\n");
  EXPECT_EQ(refused({"--step", "6"}),
            "tenon: tenon replay: " + attempt + ": slot 6 is beyond the run, which has slots 0 ... 5\n");
  EXPECT_EQ(refused({"--step", "3"}),
            "tenon: tenon replay: " + attempt +
                ": slot 3 was not recorded; the nearest that was is slot 4 (recorded: 0, "
                "2, 4)\n");
  EXPECT_EQ(refused({"--step", "2", "--from", "4"}),
            "tenon: tenon replay: --from 4 is after slot 2, which it should lead to\n");
  EXPECT_EQ(refused({"--step", "4", "--from", "3"}),
            "tenon: tenon replay: " + attempt + " has no checkpoint of slot 3; it has 2, 4, 6\n");
  EXPECT_EQ(refused({"--step", "0"}),
            "tenon: tenon replay: " + attempt +
                " has no whole checkpoint at or before slot 0; the nearest is that of slot "
                "2; --from 0 begins with the initial weights\n");
  // Other data.
  const std::string text = read_file(run / "text.txt");
  write_file(run / "text.txt", "another text" + text.substr(12));
  EXPECT_TRUE(
      refused({"--step", "4"})
          .starts_with("tenon: tenon replay: " + attempt +
                       "/checkpoints/step-4 was trained on other data: '{dir}/text.txt' had SHA-256 "))
      << refused({"--step", "4"});
  write_file(run / "text.txt", text);
  // A damaged witness, and none.
  const fs::path file = run / "runs/tiny/1/witness.rank0.txt";
  const std::string whole = read_file(file);
  write_file(file, replaced(whole, "slot 2\n", "slot 3\n"));
  EXPECT_NE(refused({"--step", "4"}).find("damaged witness: "), std::string::npos);
  fs::remove(file);
  EXPECT_EQ(refused({"--step", "4"}), "tenon: tenon replay: " + attempt +
                                          ": it has no witness; train it with [run] witness_every above 0\n");
  write_file(file, whole);
  EXPECT_EQ(run.replay({"--step", "4"}).status, 0);
}

TEST(Flip, IsRefusedWhereThereIsNoSuchBit) {
  const struct {
    const char *keys, *message;
  } cases[] = {
      {"what = \"weight\"\ntensor = \"nothing\"",
       "rank 0 has no weight 'nothing'; expected a dense parameter"},
      {"what = \"output\"\ntensor = \"nothing\"", "rank 0 has no output 'nothing'; expected a node"},
      {"what = \"state\"\ntensor = \"optimizer.m/nothing\"", "rank 0 has no state 'optimizer.m/nothing'"},
      {"what = \"weight\"\ntensor = \"transformer.ln_f.bias\"\nbit = 512",
       "[[fault]] bit = 512: 'transformer.ln_f.bias' has 512 bits; expected 0 ... 511"},
      {"tensor = \"transformer.ln_f.bias\"", "[[fault]] kind = \"flip\" needs what = "},
      {"what = \"weight\"", "and tensor, a name"},
  };
  for (const auto& one : cases) {
    const Scratch scratch;
    write_file(scratch / "run.toml", read_file(scratch / "run.toml") +
                                         "\n[[fault]]\nrank = 0\nstep = 1\nkind = \"flip\"\n" + one.keys +
                                         "\n");
    const Ended ended = scratch.train();
    EXPECT_EQ(ended.status, 2) << one.keys;
    EXPECT_NE(ended.err.find(one.message), std::string::npos) << ended.err;
  }
  const Scratch scratch;
  write_file(scratch / "run.toml", read_file(scratch / "run.toml") +
                                       "\n[[fault]]\nrank = 0\nstep = 1\nkind = \"crash\"\nbit = 3\n");
  EXPECT_NE(
      scratch.train().err.find("[[fault]] bit is about kind = \"flip\"; leave it out, or change the kind"),
      std::string::npos);
}

}  // namespace
}  // namespace tenon::integration::witness_test
