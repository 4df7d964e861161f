// Every shipped model under every precision, synchronisation and recovery: each cell trains twice and must
// end below its first loss, send the bytes that its gradients have, count the operands that it converted,
// save what recovery promises, and end with the same bits both times.
#include "cell.hpp"

#include <cmath>
#include <regex>

namespace tenon::integration::strategies_test {
namespace {

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

Choices choices(const Cell& cell) {
  return {"type = \"" + cell.precision + "\"\n", cell.sync == "ddp", cell.recovery == "full" ? kSaveEvery : 0,
          kSlots};
}

class Matrix : public ::testing::TestWithParam<Cell> {
 protected:
  RunResult train(const std::string& folder) {
    return runs_.train(folder, GetParam().model, choices(GetParam()));
  }

  CellRuns runs_;
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

  // Each of two members of a ring sends S for S bytes (docs/reductions.md); parameters' gradients are f32.
  // Buckets are sent with the gaps between their tensors. Rows of tables go to the other replica with their
  // number and how often they were read, after one count for each table.
  const auto gradient = first.bytes_by_purpose.find("gradient");
  const std::uint64_t sent = gradient == first.bytes_by_purpose.end() ? 0 : gradient->second;
  std::vector<std::string> facts;
  runs_.runtime().check(cell_config(cell.model, choices(cell)), &facts);
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
    EXPECT_THAT(saved, ::testing::UnorderedElementsAre("step-10", "step-12"));
  } else {
    EXPECT_THAT(saved, ::testing::IsEmpty());
  }

  const RunResult second = train("second");
  EXPECT_EQ(second.weights_hash, first.weights_hash);
  EXPECT_EQ(second.state_hash, first.state_hash);
  EXPECT_EQ(second.bytes_by_purpose, first.bytes_by_purpose);
  EXPECT_EQ(second.quantized_operands, first.quantized_operands);
}

INSTANTIATE_TEST_SUITE_P(Cells, Matrix, ::testing::ValuesIn(cells()),
                         [](const ::testing::TestParamInfo<Cell>& info) { return info.param.name(); });

}  // namespace
}  // namespace tenon::integration::strategies_test
