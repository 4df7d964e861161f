// Two replicas as threads of every configuration of configs/base, made small, twice: equal bits. Code that
// reads memory that it did not write, or writes memory of another owner, differs between repetitions long
// before it shows in a loss. With TENON_MATRIX=all six times, and in odd widths.
#include "cell.hpp"
#include "testing/criteo_text.hpp"

#include <map>

namespace tenon::integration::repetition_test {
namespace {

using Sets = std::vector<std::string>;

/// Settings that make a configuration small; those without an entry run unchanged.
const std::map<std::string, Sets> kSmall = {
    {"arithmetic_rl",
     {"data.batch=2", "data.answers=2", "data.conversations.batch=2", "data.context=16",
      "data.conversations.context=16", "data.answer_tokens=4", "model.width=12", "model.heads=3"}},
    {"arithmetic_sft", {"data.batch=2", "data.context=16", "model.width=12", "model.heads=3"}},
    {"gpt_tiny", {"data.context=16", "data.batch=2", "model.layers=1", "model.width=12", "model.heads=3"}},
    {"lenet5", {"data.batch=4"}},
    {"lenet5_2x2", {"data.batch=2"}},
    {"resnet18", {"data.batch=4", "model.width=4"}},
    {"llama_tiny",
     {"data.context=16", "data.batch=2", "model.repeat=1", "model.width=20", "model.heads=5",
      "model.kv_heads=1", "model.hidden=24"}},
    {"hybrid_tiny",
     {"data.context=16", "data.batch=2", "model.width=20", "model.heads=5", "model.kv_heads=1",
      "model.hidden=24", "model.mamba_heads=6", "model.mamba_head_width=5", "model.mamba_state=7",
      "model.mamba_chunk=6"}},
    {"phi3_tiny",
     {"data.context=16", "data.batch=2", "model.repeat=1", "model.width=12", "model.heads=3",
      "model.kv_heads=3", "model.hidden=20", "model.window=5"}},
    {"dlrm_adult", {"data.batch=16"}},
    {"dlrm_criteo", {"data.batch=16", "data.row_cap=50", "model.bottom=[7, 5]", "model.top=[6, 1]"}},
    {"dlrm_synthetic", {"data.batch=16", "data.rows=[20]", "data.tables=5"}},
    {"dlrm_zion",
     {"device.type=cuda_emulated", "data.batch=16", "data.rows=[20]", "data.tables=23", "data.pairs=0"}},
    {"fno_darcy", {"data.batch=2", "model.width=5", "model.modes=[3]"}},
    {"fno_darcy_2x2", {"data.batch=2", "model.width=4", "model.modes=[4]"}},
};
const std::map<std::string, std::vector<Sets>> kOdd = {
    {"resnet18", {{"model.width=3"}, {"model.width=5"}, {"model.width=6"}, {"model.width=12"}}},
    {"gpt_tiny", {{"model.width=7", "model.heads=1"}, {"model.width=20", "model.heads=5"}}},
    {"fno_darcy", {{"model.width=3"}, {"model.width=6"}, {"model.width=7"}}},
};

bool all() {
  const char* wanted = std::getenv("TENON_MATRIX");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

struct Case {
  std::string name, file;
  Sets sets;
};
void PrintTo(const Case& tested, std::ostream* out) {
  *out << tested.name;
}

std::vector<Case> cases() {
  std::vector<Case> found;
  for (const auto& entry : fs::directory_iterator(TENON_SOURCE_DIR "/configs/base")) {
    const std::string name = entry.path().stem().string();
    const auto small = kSmall.find(name);
    const Sets sets = small == kSmall.end() ? Sets{} : small->second;
    found.push_back({name, entry.path().string(), sets});
    const auto odd = kOdd.find(name);
    for (std::size_t i = 0; all() && odd != kOdd.end() && i < odd->second.size(); ++i) {
      Sets more = sets;
      more.insert(more.end(), odd->second[i].begin(), odd->second[i].end());
      found.push_back({name + "_" + std::to_string(i), entry.path().string(), more});
    }
  }
  std::sort(found.begin(), found.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return found;
}

class Repetition : public ::testing::TestWithParam<Case> {};

TEST_P(Repetition, EndsWithTheSameBits) {
  const Scratch scratch;
  std::string clicks;
  for (std::uint64_t i = 0; i < 300; ++i) clicks += ctr::criteo_line(1, i);
  write_file(scratch / "clicks.txt", clicks);
  Sets sets = {"parallel.ranks=2", "transport.type=thread", "sync.type=ddp",     "device.threads=1",
               "run.steps=4",      "run.eval_every=0",      "run.eval_batches=1"};
  if (GetParam().name.starts_with("dlrm_criteo"))
    sets.push_back("data.path=" + (scratch / "clicks.txt").string());
  if (GetParam().name.starts_with("arithmetic")) {
    std::string sums;
    for (int i = 0; i < 40; ++i) {
      const std::string sum = std::to_string(i + 7);
      sums += R"({"messages": [{"role": "user", "content": ")" + std::to_string(i) +
              R"(+7"}, {"role": "assistant", "content": ")" + sum + R"("}], "answer": ")" + sum + "\"}\n";
    }
    const fs::path file = scratch / "sums.jsonl";
    write_file(file, sums);
    sets.push_back("data.path=" + file.string());
    if (GetParam().name.starts_with("arithmetic_rl"))
      sets.push_back("data.conversations.path=" + file.string());
  }
  sets.insert(sets.end(), GetParam().sets.begin(), GetParam().sets.end());
  std::string weights, state;
  for (int repetition = 0; repetition < (all() ? 6 : 2); ++repetition) {
    Runtime runtime;
    runtime.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
    TrainRequest request;
    request.run_dir = (scratch / std::to_string(repetition)).string();
    request.quiet = true;
    const RunResult result = runtime.train(Config::load(GetParam().file, sets), request);
    ASSERT_EQ(result.error, "");
    ASSERT_EQ(result.steps, 4);
    ASSERT_TRUE(result.nondeterminism.empty() || result.nondeterminism.starts_with("not checked"));
    if (repetition == 0) weights = result.weights_hash, state = result.state_hash;
    EXPECT_EQ(result.weights_hash, weights) << "repetition " << repetition;
    EXPECT_EQ(result.state_hash, state) << "repetition " << repetition;
  }
}

INSTANTIATE_TEST_SUITE_P(Bases, Repetition, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tenon::integration::repetition_test
