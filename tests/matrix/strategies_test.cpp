// Every shipped model under every precision, synchronisation and recovery: each cell trains twice and must
// end below its first loss, send the bytes that its gradients have, count the operands that it converted,
// save what recovery promises, and end with the same bits both times.
#include "run_program.hpp"
#include "test_paths.hpp"

#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <cmath>
#include <fstream>

namespace tenon::integration {
namespace {

struct Model {
  const char* name;
  const char* toml;  ///< [model], [data], [optimizer]: what the model needs to learn something in a few slots
  std::uint64_t padding;    ///< numbers between tensors, each of which begins at a multiple of 64 bytes
  std::uint64_t width = 0;  ///< of the rows of tables
};

constexpr Model kModels[] = {
    {"gpt_neo", R"(
[data]
type = "text"
path = "data/text/tinyshakespeare.txt"
context = 16
batch = 4
[model]
type = "gpt_neo"
layers = 1
width = 16
heads = 2
[optimizer]
type = "adamw"
lr = 1e-2
)",
     0},
    {"mlp", R"(
[data]
type = "mnist"
batch = 16
scale = "standard"
[model]
type = "mlp"
hidden = [32]
[optimizer]
type = "sgd"
lr = 0.1
)",
     6},
    {"lenet5", R"(
[data]
type = "mnist"
batch = 8
scale = "standard"
[model]
type = "lenet5"
[optimizer]
type = "adamw"
lr = 2e-3
)",
     44},
    {"resnet", R"(
[data]
type = "mnist"
batch = 4
scale = "standard"
[model]
type = "resnet"
width = 4
[optimizer]
type = "sgd"
lr = 0.02
)",
     206},
    {"dlrm", R"(
[data]
type = "adult"
buckets = 8
batch = 64
[model]
type = "dlrm"
bottom = [16, 8]
top = [16, 1]
[optimizer]
type = "rowwise_adagrad"
lr = 0.05
)",
     23, 8},
    {"logistic_regression", R"(
[data]
type = "adult"
buckets = 8
batch = 64
[model]
type = "logistic_regression"
[optimizer]
type = "adagrad"
lr = 0.1
)",
     15, 1},
};

struct Cell {
  Model model;
  std::string precision, sync, recovery;

  std::string name() const { return std::string(model.name) + "_" + precision + "_" + sync + "_" + recovery; }
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name();
}

constexpr std::int64_t kSlots = 12, kSaveEvery = 5;

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const Model& model : kModels) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const char* sync : {"none", "ddp"}) {
        for (const char* recovery : {"none", "full"}) all.push_back({model, precision, sync, recovery});
      }
    }
  }
  return all;
}

std::string text(const Cell& cell) {
  const bool replicas = cell.sync == "ddp";
  std::string toml = std::string(cell.model.toml) +
                     "[run]\nname = \"cell\"\nlog_every = 1\nsteps = " + std::to_string(kSlots) +
                     "\n[device]\ntype = \"cpu\"\nthreads = 1\n[precision]\ntype = \"" + cell.precision +
                     "\"\n[sync]\ntype = \"" + cell.sync + "\"\n[recovery]\ntype = \"" + cell.recovery +
                     "\"\n";
  if (cell.recovery == "full") toml += "async = false\nevery = " + std::to_string(kSaveEvery) + "\n";
  if (replicas) toml += "[parallel]\nranks = 2\n[transport]\ntype = \"thread\"\n";
  return toml;
}

class Matrix : public testing::TestWithParam<Cell> {
 protected:
  Matrix() { runtime_.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"}); }

  RunResult train(const std::string& folder) {
    TrainRequest request;
    request.run_dir = (scratch_ / folder).string();
    request.quiet = true;
    return runtime_.train(Config::parse(text(GetParam()), "cell.toml", {}), request);
  }
  /// train/loss after slot 1, 2, ...
  static std::vector<double> losses(const RunResult& result) {
    std::vector<double> found;
    std::ifstream lines(result.folder + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      std::smatch value;
      static const std::regex pattern(R"re("split": ?"train", ?"name": ?"loss", ?"value": ?([-+0-9.eE]+))re");
      if (std::regex_search(line, value, pattern)) found.push_back(std::stod(value[1]));
    }
    return found;
  }

  Scratch scratch_;
  Runtime runtime_;
};

TEST_P(Matrix, LearnsCountsSavesAndRepeats) {
  const Cell& cell = GetParam();
  const RunResult first = train("first");
  ASSERT_EQ(first.error, "");
  ASSERT_EQ(first.steps, kSlots);

  const std::vector<double> loss = losses(first);
  ASSERT_EQ(loss.size(), static_cast<std::size_t>(kSlots));
  for (const double value : loss) ASSERT_TRUE(std::isfinite(value));
  EXPECT_LT((loss[kSlots - 1] + loss[kSlots - 2]) / 2, loss[0]);

  // What two members of a ring send of S bytes is S (docs/reductions.md); parameters' gradients are f32.
  // Buckets are sent with the gaps between their tensors. Rows of tables go to the other replica with their
  // number and how often they were read, behind one count for each table.
  const auto gradient = first.bytes_by_purpose.find("gradient");
  const std::uint64_t sent = gradient == first.bytes_by_purpose.end() ? 0 : gradient->second;
  std::vector<std::string> facts;
  runtime_.check(Config::parse(text(cell), "cell.toml", {}), &facts);
  const auto fact = [&](const char* pattern) {
    std::smatch found;
    for (const std::string& line : facts)
      if (std::regex_search(line, found, std::regex(pattern))) return std::stoull(found[1]);
    return 0ull;
  };
  ASSERT_GT(fact("parameters: ([0-9]+) trained"), 0u) << facts.at(0);
  const std::uint64_t rows = fact("row tables: [0-9]+ with ([0-9]+) rows");
  const std::uint64_t dense = fact("parameters: ([0-9]+) trained") - rows * cell.model.width;
  const std::uint64_t expected =
      cell.sync == "ddp" ? (4 * (dense + cell.model.padding) + 8 * fact("row tables: ([0-9]+)")) * kSlots : 0;
  if (cell.sync == "ddp" && rows > 0) {
    const std::uint64_t row_bytes = 8 + 4 + 4 * cell.model.width;
    ASSERT_GT(sent, expected);
    EXPECT_EQ((sent - expected) % row_bytes, 0u);
    EXPECT_LE((sent - expected) / row_bytes, rows * kSlots);
  } else {
    EXPECT_EQ(sent, expected);
  }

  const auto converted = first.quantized_operands.find("bf16");
  EXPECT_EQ(converted != first.quantized_operands.end() && converted->second > 0, cell.precision == "bf16");

  std::vector<std::string> saved;
  if (fs::exists(first.folder + "/checkpoints")) {
    for (const auto& entry : fs::directory_iterator(first.folder + "/checkpoints"))
      saved.push_back(entry.path().filename().string());
  }
  if (cell.recovery == "full") {
    EXPECT_THAT(saved, testing::UnorderedElementsAre("step-10", "step-12"));
  } else {
    EXPECT_THAT(saved, testing::IsEmpty());
  }

  const RunResult second = train("second");
  EXPECT_EQ(second.weights_hash, first.weights_hash);
  EXPECT_EQ(second.state_hash, first.state_hash);
  EXPECT_EQ(second.bytes_by_purpose, first.bytes_by_purpose);
  EXPECT_EQ(second.quantized_operands, first.quantized_operands);
}

INSTANTIATE_TEST_SUITE_P(Cells, Matrix, testing::ValuesIn(cells()),
                         [](const testing::TestParamInfo<Cell>& info) { return info.param.name(); });

}  // namespace
}  // namespace tenon::integration
