// Lines by hand, the lines that a resumed run keeps, the selection of slots and layers, and the
// identification of operands.
#include "numerics.hpp"

#include "base/testing/allocation_count.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <sstream>

namespace tenon::numerics {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Operand {
  std::vector<float> x{1, -2, 0.5F, 0, 8, 3};
  OperandNumerics numerics;
  Operand() {
    numerics.layer = "h.0.\"mlp\"";
    numerics.gemm = "fprop";
    numerics.operand = "x";
    numerics.format = "nvfp4";
    numerics.reason = "recipe";
    numerics.slot = 100;
    numerics.input = {x.data(), {2, 3}, DType::kF32, MemorySpace::kHost};
    numerics.stats = {.amax = 8,
                      .signal = 200,
                      .noise = 2,
                      .relative_error = 0.125,
                      .underflow = 0.25,
                      .saturated = 0,
                      .scale_min = 0.5,
                      .scale_max = 4};
    numerics.block_rows = 1;
    numerics.block_columns = 2;
  }
  json line(bool blocks = false) const {
    std::string out;
    append_line(out, numerics, blocks);
    EXPECT_EQ(out.find('\n'), out.size() - 1);
    return json::parse(out);
  }
};

TEST(NumericsLine, SaysWhatTheFormatDid) {
  const json line = Operand().line();
  EXPECT_EQ(line["step"], 101) << "slots done, as in metrics.jsonl";
  EXPECT_EQ(line["layer"], "h.0.\"mlp\"");
  EXPECT_EQ(line["rows"], 2);
  EXPECT_EQ(line["columns"], 3);
  EXPECT_EQ(line["format"], "nvfp4");
  EXPECT_EQ(line["reason"], "recipe");
  EXPECT_EQ(line["amax"], 8);
  EXPECT_EQ(line["underflow"], 0.25);
  EXPECT_EQ(line["mean_relative_error"], 0.125);
  EXPECT_DOUBLE_EQ(line["sqnr_db"], 20);
  EXPECT_EQ(line["scale_binades"], 3);
  EXPECT_FALSE(line.contains("block_amax"));
  EXPECT_FALSE(line.contains("choices"));
}

TEST(NumericsLine, BlocksHaveTheirLargestMagnitudesRowByRow) {
  const json line = Operand().line(true);
  EXPECT_EQ(line["blocks_down"], 2);
  EXPECT_EQ(line["blocks_across"], 2);
  EXPECT_EQ(line["block_amax"], json({2, 0.5, 8, 3})) << "ragged at the end of a row";
  Operand poisoned;
  poisoned.x[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(poisoned.line(true)["block_amax"], json({2, 0.5, nullptr, 3}));
}

TEST(NumericsLine, CountsTheChoicesOfBlocks) {
  Operand operand;
  std::vector<std::uint8_t> choices{1, 1, 0, 2, 1};
  operand.numerics.choices = {choices.data(), {5}, DType::kU8, MemorySpace::kHost};
  EXPECT_EQ(operand.line()["choices"], json({{"kept", 1}, {"e4m3", 3}, {"e5m2", 1}, {"e2m3", 0}}));
}

TEST(NumericsLine, FiguresThatJsonCannotWriteAreNull) {
  Operand operand;
  operand.numerics.stats.noise = 0;
  operand.numerics.stats.amax = std::numeric_limits<double>::quiet_NaN();
  const json line = operand.line();
  EXPECT_TRUE(line["sqnr_db"].is_null()) << "no noise: an infinite ratio";
  EXPECT_TRUE(line["amax"].is_null());
}

TEST(NumericsLine, TheHashTellsOneBitApart) {
  Operand a, b;
  EXPECT_EQ(a.line()["hash"], b.line()["hash"]);
  EXPECT_EQ(a.line()["hash"].get<std::string>().size(), 16u);
  b.x[3] = -0.0F;
  EXPECT_NE(a.line()["hash"], b.line()["hash"]) << "zero and minus zero are other bits";
}

TEST(KeepLines, UpToTheStepAndUpToATear) {
  struct Case {
    const char* text;
    std::int64_t last;
    const char* kept;
    bool whole;
  } const cases[] = {
      {"{\"step\": 1, }\n{\"step\": 5, }\n{\"step\": 9, }\n", 5, "{\"step\": 1, }\n{\"step\": 5, }\n", true},
      {"{\"step\": 1, }\n{\"step\": 2, \"la", 9, "{\"step\": 1, }\n", false},
      {"{\"step\": 1, }\n{\"step\": 2, \"la\n{\"step\": 3, }\n", 9, "{\"step\": 1, }\n", false},
      {"mine\n", 9, "", false},
      {"\n", 9, "", false},
      {"", 9, "", true},
  };
  for (const Case& c : cases) {
    bool whole = !c.whole;
    EXPECT_EQ(keep_lines(c.text, c.last, whole), c.kept);
    EXPECT_EQ(whole, c.whole) << c.text;
  }
}

class NumericsTest : public testing::FolderTest {
 protected:
  Numerics make(std::vector<std::string> layers = {"*"}) {
    return {10, std::move(layers), false, host_, make_posix_files()};
  }
  RunInfo info(std::int64_t first_slot) const {
    RunInfo info;
    info.folder = folder_;
    info.first_slot = first_slot;
    return info;
  }
  std::vector<std::int64_t> steps() const {
    std::ifstream file(folder_ + "/numerics.jsonl");
    std::vector<std::int64_t> found;
    for (std::string line; std::getline(file, line);) found.push_back(json::parse(line)["step"]);
    return found;
  }
  testing::QuietHost host_;
};

void slot(Numerics& observer, std::int64_t number) {
  Operand operand;
  operand.numerics.slot = number;
  if (observer.numerics(number)) observer.on_operand(operand.numerics);
  SlotRecord record;
  record.slot = number;
  observer.on_slot(record);
}

TEST_F(NumericsTest, LooksAtTheFirstSlotAndEveryTenth) {
  Numerics observer = make();
  observer.on_start(info(0));
  for (int i = 0; i < 25; ++i) slot(observer, i);
  EXPECT_THAT(steps(), ElementsAre(1, 11, 21)) << "lines are there at the end of their slot";
}

TEST_F(NumericsTest, AResumedRunDropsLinesBeyondItsCheckpoint) {
  {
    Numerics observer = make();
    observer.on_start(info(0));
    for (int i = 0; i < 25; ++i) slot(observer, i);
  }
  std::ofstream(folder_ + "/numerics.jsonl", std::ios::app) << "{\"step\": 31, \"lay";
  Numerics observer = make();
  observer.on_start(info(15));
  EXPECT_THAT(steps(), ElementsAre(1, 11));
  EXPECT_THAT(host_.messages, ElementsAre(HasSubstr("a torn line and what follows it are dropped")));
  for (int i = 15; i < 25; ++i) slot(observer, i);
  EXPECT_THAT(steps(), ElementsAre(1, 11, 21));
}

TEST_F(NumericsTest, LayersAreChosenByPattern) {
  Numerics none = make({"h.1.*"});
  none.on_start(info(0));
  slot(none, 0);
  EXPECT_THAT(steps(), ElementsAre());
  Numerics some = make({"h.1.*", "h.*.*mlp*"});
  some.on_start(info(0));
  slot(some, 0);
  EXPECT_THAT(steps(), ElementsAre(1));
}

TEST_F(NumericsTest, ASlotThatIsNotLookedAtAllocatesNothing) {
  Numerics observer = make();
  observer.on_start(info(0));
  slot(observer, 0);
  SlotRecord record;
  const auto before = testing::allocation_count();
  for (record.slot = 1; record.slot < 10; ++record.slot) {
    EXPECT_FALSE(observer.numerics(record.slot));
    observer.on_slot(record);
  }
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::numerics
