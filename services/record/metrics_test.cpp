// metrics.jsonl: exact text, round trips, torn ends, trimming, no allocation while training.
#include "record/metrics.hpp"

#include "base/testing/allocation_count.hpp"
#include "store/testing/memory_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

namespace tenon {
namespace {

using ::testing::HasSubstr;
constexpr double kNever = 1e9;
const std::string kPath = "/run/metrics.jsonl";

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() { files_.make_directories("/run"); }

  static Metric metric(std::int64_t step, std::string_view name, double value) {
    return {.step = step,
            .split = Split::kVal,
            .name = name,
            .value = value,
            .wall_s = 0.5,
            .samples = 16 * step,
            .tokens = 2048 * step,
            .bytes_sent = 7};
  }

  void write_steps(std::int64_t steps) {
    MetricsWriter writer(files_, kPath, kNever);
    for (std::int64_t step = 1; step <= steps; ++step)
      writer.append(metric(step, "loss", 1.0 / static_cast<double>(step)));
  }

  testing::MemoryFiles files_;
};

TEST_F(MetricsTest, WritesTheLineAsDocumented) {
  {
    MetricsWriter writer(files_, kPath, kNever);
    writer.append({.step = 50,
                   .split = Split::kTrain,
                   .name = "loss",
                   .value = 0.1,
                   .wall_s = 1.25,
                   .samples = 800,
                   .tokens = 102400,
                   .bytes_sent = 18446744073709551615u});
    writer.append({.step = 50,
                   .split = Split::kVal,
                   .name = "loss",
                   .value = std::nan(""),
                   .wall_s = 2,
                   .samples = 0,
                   .tokens = 0,
                   .bytes_sent = 0});
  }
  EXPECT_EQ(files_.content(kPath),
            "{\"step\": 50, \"split\": \"train\", \"name\": \"loss\", \"value\": 0.1, \"wall_s\": 1.25, "
            "\"samples\": 800, \"tokens\": 102400, \"bytes_sent\": 18446744073709551615}\n"
            "{\"step\": 50, \"split\": \"val\", \"name\": \"loss\", \"value\": null, \"wall_s\": 2, "
            "\"samples\": 0, \"tokens\": 0, \"bytes_sent\": 0}\n");
  const std::vector<MetricLine> lines = read_metrics(files_, kPath);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].bytes_sent, std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(std::isnan(lines[1].value));
}

TEST_F(MetricsTest, EveryDoubleReadsBackBitForBit) {
  std::mt19937_64 random(7);
  std::vector<double> values{
      0.0, -0.0, 5e-324, std::numeric_limits<double>::max(), 1.0 / 3, 1e22, 123456789012345680.0};
  while (values.size() < 2000) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
  }
  {
    MetricsWriter writer(files_, kPath, kNever);
    for (const double value : values) writer.append(metric(1, "loss", value));
  }
  const std::vector<MetricLine> lines = read_metrics(files_, kPath);
  ASSERT_EQ(lines.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(lines[i].value), std::bit_cast<std::uint64_t>(values[i]))
        << values[i];
  }
}

TEST_F(MetricsTest, NamesAreEscaped) {
  const std::string names[] = {
      "a\"b", "back\\slash", "line\nfeed", "tab\t", std::string("nul\0x", 5), "gr\xC3\xBC\xC3\x9F"};
  {
    MetricsWriter writer(files_, kPath, kNever);
    for (const std::string& name : names) writer.append(metric(1, name, 1));
    writer.append(metric(1, "bad\xFF\xC0\x80utf", 1));
  }
  const std::vector<MetricLine> lines = read_metrics(files_, kPath);
  ASSERT_EQ(lines.size(), std::size(names) + 1);
  for (std::size_t i = 0; i < std::size(names); ++i) EXPECT_EQ(lines[i].name, names[i]);
  EXPECT_EQ(lines.back().name, "bad\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDutf");
}

TEST_F(MetricsTest, AnyTornEndIsIgnoredAndRepaired) {
  write_steps(3);
  const std::string whole = files_.content(kPath);
  const std::size_t second = whole.find('\n', whole.find('\n') + 1) + 1;
  for (std::size_t cut = second; cut < whole.size(); ++cut) {
    files_.overwrite(kPath, whole.substr(0, cut));
    // Only without its newline is the last line whole.
    const std::size_t expected = cut == whole.size() - 1 ? 3 : 2;
    ASSERT_EQ(read_metrics(files_, kPath).size(), expected) << cut;
    MetricsWriter(files_, kPath, kNever).append(metric(9, "loss", 9));
    const std::vector<MetricLine> lines = read_metrics(files_, kPath);
    ASSERT_EQ(lines.size(), expected + 1) << cut;
    EXPECT_EQ(lines.back().step, 9);
  }
}

TEST_F(MetricsTest, DamageInTheMiddleIsAnError) {
  write_steps(3);
  std::string text = files_.content(kPath);
  text[text.find('\n') + 4] = '\0';
  files_.overwrite(kPath, text);
  try {
    read_metrics(files_, kPath);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(kPath + ":2: not a line of metrics"));
  }
}

TEST_F(MetricsTest, MutatedBytesNeverCrashTheReader) {
  write_steps(4);
  const std::string whole = files_.content(kPath);
  std::mt19937 random(11);
  int rejected = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole.substr(0, random() % (whole.size() + 1));
    for (int flips = static_cast<int>(random() % 4); flips > 0 && !text.empty(); --flips) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    files_.overwrite(kPath, text);
    try {
      for (const MetricLine& line : read_metrics(files_, kPath)) EXPECT_FALSE(line.name.size() > text.size());
    } catch (const Error&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 100);
}

TEST_F(MetricsTest, DropsLinesBeyondTheCheckpoint) {
  EXPECT_EQ(drop_metrics_after(files_, kPath, 5), 0);  // no file yet
  EXPECT_FALSE(files_.exists(kPath));
  write_steps(10);
  EXPECT_EQ(drop_metrics_after(files_, kPath, 10), 0);
  files_.overwrite(kPath, files_.content(kPath) + "{\"step\": 11, \"spl");
  EXPECT_EQ(drop_metrics_after(files_, kPath, 6), 4);
  std::vector<MetricLine> lines = read_metrics(files_, kPath);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines.back().step, 6);
  EXPECT_EQ(drop_metrics_after(files_, kPath, 0), 6);
  EXPECT_EQ(files_.content(kPath), "");
}

TEST_F(MetricsTest, LinesReachTheFileWhenPromised) {
  MetricsWriter writer(files_, kPath, 0.02);
  writer.append(metric(1, "loss", 1));
  writer.tick();
  EXPECT_EQ(files_.content(kPath), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  writer.tick();
  EXPECT_EQ(read_metrics(files_, kPath).size(), 1u);
  writer.append(metric(2, "loss", 1));
  writer.flush();
  EXPECT_EQ(read_metrics(files_, kPath).size(), 2u);
  writer.append(metric(3, "loss", 1));
  writer.sync();
  writer.append(metric(4, "loss", 1));
  writer.flush();
  files_.crash(testing::MemoryFiles::Survival::kEverything, 1);
  EXPECT_EQ(read_metrics(files_, kPath).size(), 4u);
}

TEST_F(MetricsTest, AppendAllocatesNothing) {
  files_.make_directories("/null");
  const std::unique_ptr<FileSystem> posix = make_posix_files();
  MetricsWriter writer(*posix, "/dev/null", 0);
  const std::int64_t before = testing::allocation_count();
  for (std::int64_t step = 0; step < 5000; ++step) {
    writer.append(metric(step, "grad_norm", 1.0 / 3 + static_cast<double>(step)));
    writer.tick();
  }
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_GT(testing::allocation_count(), 0);  // it does count
}

}  // namespace
}  // namespace tenon
