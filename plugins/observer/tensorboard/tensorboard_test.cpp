// Bytes of records against independently computed vectors (TensorBoard's record and message formats),
// histograms, and the observer's output. tests/peers reads such files with TensorBoard itself.
#include "tensorboard.hpp"

#include "base/testing/allocation_count.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace tenon::tensorboard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

class TextFile final : public WritableFile {
 public:
  explicit TextFile(std::string& out) : out_(out) {}
  void append(std::span<const std::byte> bytes) override {
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void sync() override {}
  void close() override {}

 private:
  std::string& out_;
};

constexpr const char* kVersionRecord =
    "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a";

TEST(EventFile, BeginsWithItsVersion) {
  std::string bytes;
  EventFile file(std::make_unique<TextFile>(bytes), 1.0);
  EXPECT_EQ(hex(bytes), kVersionRecord);
}

TEST(EventFile, ScalarRecord) {
  std::string bytes;
  EventFile file(std::make_unique<TextFile>(bytes), 1.0);
  bytes.clear();
  file.scalar(2.0, 1, "loss", 0.5);
  EXPECT_EQ(bytes, "") << "waits for flush";
  file.flush();
  EXPECT_EQ(hex(bytes),
            "1a00000000000000129bd82d09000000000000004010012a0d0a0b0a046c6f7373150000003fe20576ce");
}

TEST(EventFile, ChecksumMatchesThePublishedVector) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32c_masked(crc32c(std::as_bytes(std::span(digits.data(), digits.size())))), 0xC78AB0E5u);
}

TEST(EventFile, NameHasTenDigitsOfSeconds) {
  EXPECT_EQ(event_file_name(1700000000, "box", 42, 3), "events.out.tfevents.1700000000.box.42.3");
  EXPECT_EQ(event_file_name(7, "box", 1, 0), "events.out.tfevents.0000000007.box.1.0");
}

TEST(Proto, VarintsOfAllLengths) {
  ProtoMessage message;
  message.varint(2, 0);
  message.varint(2, 127);
  message.varint(2, 128);
  message.varint(2, static_cast<std::uint64_t>(-1));
  EXPECT_EQ(hex(message.bytes()),
            "1000"
            "107f"
            "108001"
            "10ffffffffffffffffff01");
}

TEST(Histogram, CountsUpToEachLimit) {
  Histogram histogram;
  for (const double value : {-2.0, -1e-30, 0.0, 1e-30, 0.5, 0.5, 1e300}) histogram.add(value);
  histogram.add(std::numeric_limits<double>::infinity());
  histogram.add(std::nan(""));
  EXPECT_EQ(histogram.count(), 7);
  EXPECT_EQ(histogram.not_finite(), 2);
  EXPECT_EQ(histogram.min(), -2.0);
  EXPECT_EQ(histogram.max(), 1e300);
  double total = 0;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    total += histogram.counts()[i];
    // Limits increase, and each value is above the limit before its own.
    if (i > 0) {
      EXPECT_LT(histogram.limits()[i - 1], histogram.limits()[i]);
    }
  }
  EXPECT_EQ(total, 7);
  const auto limits = histogram.limits();
  EXPECT_EQ(histogram.counts().front(), 0) << "an empty bucket in front";
  EXPECT_GE(limits[1], -2.0);
  EXPECT_LT(limits[0], -2.0);
  histogram.clear();
  EXPECT_TRUE(histogram.limits().empty());
}

TEST(Histogram, BucketOfAValueReachesTenPercentAtMost) {
  for (const double value : {1e-11, 3.7e-5, 0.02, 1.0, 123.0, 9e18}) {
    for (const double sign : {1.0, -1.0}) {
      Histogram histogram;
      histogram.add(sign * value);
      std::size_t bucket = 0;
      while (histogram.counts()[bucket] == 0) ++bucket;
      const double above = histogram.limits()[bucket], below = histogram.limits()[bucket - 1];
      EXPECT_LE(sign * value, above);
      EXPECT_GT(sign * value, below);
      EXPECT_LE(above - below, 0.1000001 * std::max(std::abs(above), std::abs(below)));
    }
  }
}

class TensorBoardTest : public ::testing::Test {
 protected:
  TensorBoardTest()
      : folder_(std::filesystem::temp_directory_path() / ("tenon-tb-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    info_.folder = folder_.string();
    info_.steps = 10;
  }
  ~TensorBoardTest() override { std::filesystem::remove_all(folder_); }
  TensorBoard make(std::int64_t histograms_every = 0) {
    return {histograms_every, 5, make_posix_files(), [this] { return now_; }};
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static Metric metric(std::int64_t step, double value) {
    Metric metric;
    metric.step = step;
    metric.name = "loss";
    metric.value = value;
    return metric;
  }

  std::filesystem::path folder_;
  RunInfo info_;
  double now_ = 1.0;
};

TEST_F(TensorBoardTest, WritesScalarsAndFlushesInTime) {
  TensorBoard board = make();
  board.on_start(info_);
  ASSERT_THAT(files(), SizeIs(1));
  EXPECT_THAT(files()[0], ::testing::StartsWith("events.out.tfevents.0000000001."));
  EXPECT_EQ(hex(content(files()[0])), kVersionRecord);
  now_ = 2.0;
  board.on_metric(metric(1, 0.5));
  board.on_slot({});
  EXPECT_EQ(hex(content(files()[0])), kVersionRecord) << "within flush_s";
  now_ = 6.0;
  board.on_slot({});
  EXPECT_THAT(content(files()[0]), HasSubstr("train/loss"));
  board.on_metric(metric(2, 0.25));
  board.on_finish("completed", "");
  const std::string first = "train/loss";
  const std::string text = content(files()[0]);
  EXPECT_NE(text.find(first), text.rfind(first));
}

TEST_F(TensorBoardTest, AResumedRunBeginsAFileThatForgetsLaterSteps) {
  {
    TensorBoard board = make();
    board.on_start(info_);
    board.on_finish("failed", "");
  }
  info_.first_slot = 4;
  TensorBoard board = make();
  board.on_start(info_);
  ASSERT_THAT(files(), SizeIs(2)) << "the first file is kept";
  // Event {wall_time, step = 5, session_log {status = START}}
  EXPECT_THAT(hex(content(files()[1])), HasSubstr("09000000000000f03f10053a020801"));
  EXPECT_THAT(hex(content(files()[0])), Not(HasSubstr("3a020801")));
}

TEST_F(TensorBoardTest, HistogramsOnlyWhereAsked) {
  TensorBoard without = make();
  EXPECT_EQ(without.query(TensorObserver::kId), nullptr);
  TensorBoard board = make(5);
  EXPECT_EQ(board.query(TensorObserver::kId), static_cast<TensorObserver*>(&board));
  EXPECT_FALSE(board.tensors(3).parameters);
  board.on_start(info_);
  EXPECT_TRUE(board.tensors(4).parameters);
  EXPECT_FALSE(board.tensors(4).outputs);
  float weights[3] = {1, 2, 3}, gradients[3] = {1024, 1024, 1024};
  ParameterInfo info;
  info.spec.name = "h.0.w";
  ObservedParameter parameter;
  parameter.info = &info;
  parameter.before = parameter.after = {weights, Shape{3}};
  parameter.gradient = {gradients, Shape{3}};
  parameter.gradient_scale = 1.0 / 1024;
  board.on_parameters({&parameter, 1});
  board.on_finish("completed", "");
  const std::string text = content(files()[0]);
  EXPECT_THAT(text, AllOf(HasSubstr("weights/h.0.w"), HasSubstr("gradients/h.0.w")));
  // min = max = 1.0 of the gradients, in units of the mean loss.
  EXPECT_THAT(hex(text), HasSubstr("09000000000000f03f11000000000000f03f190000000000000840"));
}

TEST_F(TensorBoardTest, ASteadySlotAllocatesNothing) {
  TensorBoard board = make();
  board.on_start(info_);
  board.on_metric(metric(1, 0.5));
  board.on_slot({});
  const auto before = testing::allocation_count();
  for (int step = 2; step < 100; ++step) {
    board.on_metric(metric(step, 0.5));
    now_ += 1;
    board.on_slot({});
  }
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::tensorboard
