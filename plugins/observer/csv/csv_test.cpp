// Quoting by RFC 4180, numbers that round-trip, and the rows that a resumed run keeps.
#include "csv.hpp"

#include "base/testing/allocation_count.hpp"

#include <tenon/error.hpp>
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace tenon::csv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string field(std::string_view text) {
  std::string out;
  append_field(out, text);
  return out;
}

std::string number(double value) {
  std::string out;
  append_number(out, value);
  return out;
}

TEST(Table, FieldsAreQuotedWhereTheyMust) {
  EXPECT_EQ(field("loss"), "loss");
  EXPECT_EQ(field("grad norm"), "grad norm");
  EXPECT_EQ(field("a,b"), "\"a,b\"");
  EXPECT_EQ(field("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(field("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(field(""), "");
}

TEST(Table, NumbersReadBackToTheSameBits) {
  for (const double value : {0.1, 1.0 / 3, 1e-310, -0.0, 123456789.125, 1e300}) {
    const double back = std::strtod(number(value).c_str(), nullptr);
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
  EXPECT_EQ(number(std::nan("")), "nan");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(Table, KeepsRowsUpToTheStep) {
  struct Case {
    const char* rows;
    std::int64_t last;
    const char* kept;
    bool whole;
  } const cases[] = {
      {"1,a\n2,b\n3,c\n", 2, "1,a\n2,b\n", true},
      {"1,a\n2,b\n3,c", 9, "1,a\n2,b\n", false},           // truncated
      {"1,\"x\n9,y\"\n2,b\n", 1, "1,\"x\n9,y\"\n", true},  // a line break within a field
      {"1,a\n2,\"open\n3,c\n", 9, "1,a\n", false},
      {"1,a\nnonsense\n2,b\n", 9, "1,a\n", false},
      {"", 5, "", true},
  };
  for (const Case& c : cases) {
    bool whole = !c.whole;
    EXPECT_EQ(keep_rows(std::string("h\n") + c.rows, "h\n", c.last, whole), std::string("h\n") + c.kept);
    EXPECT_EQ(whole, c.whole) << c.rows;
  }
  bool whole = false;
  EXPECT_EQ(keep_rows("other\n1,a\n", "h\n", 9, whole), "");
}

class CsvTest : public ::testing::Test {
 protected:
  CsvTest() : folder_(std::filesystem::temp_directory_path() / ("tenon-csv-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    info_.folder = folder_.string();
  }
  ~CsvTest() override { std::filesystem::remove_all(folder_); }
  Csv make() { return {"metrics.csv", 2, host_, make_posix_files()}; }
  std::string content() const {
    std::ifstream file(folder_ / "metrics.csv", std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static Metric metric(std::int64_t step, std::string_view name, double value) {
    Metric metric;
    metric.step = step;
    metric.name = name;
    metric.value = value;
    metric.wall_s = 0.5;
    metric.samples = 16 * step;
    metric.tokens = 32 * step;
    metric.bytes_sent = 7;
    return metric;
  }

  std::filesystem::path folder_;
  testing::QuietHost host_;
  RunInfo info_;
};

TEST_F(CsvTest, OneRowPerMetric) {
  Csv csv = make();
  csv.on_start(info_);
  csv.on_metric(metric(1, "loss", 0.1));
  Metric val = metric(1, "top 5, \"hard\"", std::nan(""));
  val.split = Split::kVal;
  csv.on_metric(val);
  EXPECT_EQ(content(), kHeader) << "rows wait";
  SlotRecord record;
  record.slot = 1;
  csv.on_slot(record);
  EXPECT_EQ(content(), std::string(kHeader) +
                           "1,train,loss,0.1,0.5,16,32,7\n"
                           "1,val,\"top 5, \"\"hard\"\"\",nan,0.5,16,32,7\n");
}

TEST_F(CsvTest, AResumedRunDropsRowsBeyondItsCheckpoint) {
  {
    Csv csv = make();
    csv.on_start(info_);
    for (int step = 1; step <= 5; ++step) csv.on_metric(metric(step, "loss", step));
    csv.on_finish("failed", "");
  }
  std::ofstream(folder_ / "metrics.csv", std::ios::app) << "6,train,lo";  // killed while writing
  info_.first_slot = 3;
  Csv csv = make();
  csv.on_start(info_);
  EXPECT_THAT(host_.messages, ElementsAre(HasSubstr("the last row was torn and is dropped")));
  csv.on_metric(metric(4, "loss", 40));
  csv.on_finish("completed", "");
  EXPECT_EQ(content(), std::string(kHeader) +
                           "1,train,loss,1,0.5,16,32,7\n2,train,loss,2,0.5,32,64,7\n"
                           "3,train,loss,3,0.5,48,96,7\n4,train,loss,40,0.5,64,128,7\n");
}

TEST_F(CsvTest, AForeignFileIsNotTouched) {
  std::ofstream(folder_ / "metrics.csv") << "mine\n";
  Csv csv = make();
  try {
    csv.on_start(info_);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("/metrics.csv: not a table of this observer (its first line differs); "
                          "move it away or set another `file`"));
  }
  EXPECT_EQ(content(), "mine\n");
  EXPECT_THROW(Csv("../x.csv", 1, host_, make_posix_files()), Error);
}

TEST_F(CsvTest, ASteadySlotAllocatesNothing) {
  Csv csv = make();
  csv.on_start(info_);
  const auto before = testing::allocation_count();
  for (int step = 1; step < 100; ++step) {
    csv.on_metric(metric(step, "loss", step));
    SlotRecord record;
    record.slot = step;
    csv.on_slot(record);
  }
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::csv
