// Figures of roundings that can be worked out by hand.
#include "graph/plain_site.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace tenon::graph {
namespace {

TensorView view(std::vector<float>& values) {
  return {values.data(), {static_cast<std::int64_t>(values.size())}, DType::kF32, MemorySpace::kHost};
}

/// Host memory that is said to lie elsewhere, and is reached by copies alone.
class Elsewhere final : public Device {
 public:
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kCuda; }
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
  void copy(TensorView from, TensorView to) override {
    ++copies;
    std::memcpy(to.data, from.data, from.bytes());
  }
  void synchronize() override {}
  std::string_view kernel_choice() const override { return ""; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view) override { return nullptr; }
  int copies = 0;
};

TEST(RoundingStats, OfAnOperandThatIsNotRounded) {
  std::vector<float> x{3, -4, 0};
  const QuantizeStats stats = rounding_stats(view(x), view(x));
  EXPECT_EQ(stats.amax, 4);
  EXPECT_EQ(stats.signal, 25);
  EXPECT_EQ(stats.noise, 0);
  EXPECT_EQ(stats.relative_error, 0);
}

TEST(RoundingStats, OfARoundingByHand) {
  std::vector<float> x{4, 2, 0, 1, -8}, y{5, 2, 0, 0, -8};
  const QuantizeStats stats = rounding_stats(view(x), view(y));
  EXPECT_EQ(stats.noise, 2);
  EXPECT_EQ(stats.relative_error, (0.25 + 1) / 4) << "over elements that are not zero";
  EXPECT_EQ(stats.underflow, 0.25);
}

TEST(RoundingStats, CoversPiecesOfEveryLength) {
  for (const std::size_t n : {1u, 1023u, 1024u, 1025u, 5000u}) {
    std::vector<float> x(n, 1), y(n, 2);
    const QuantizeStats stats = rounding_stats(view(x), view(y));
    EXPECT_EQ(stats.signal, static_cast<double>(n));
    EXPECT_EQ(rounding_stats(view(x), view(x)).signal, static_cast<double>(n));
    EXPECT_EQ(stats.noise, static_cast<double>(n));
    EXPECT_EQ(stats.relative_error, 1);
  }
}

TEST(RoundingStats, ANaNIsTheLargestMagnitude) {
  std::vector<float> x{1, std::numeric_limits<float>::quiet_NaN(), 2};
  EXPECT_TRUE(std::isnan(rounding_stats(view(x), view(x)).amax));
  std::vector<std::uint16_t> half{0xBF80, 0xC040, 0x3F00, 0xFF80};  // -1, -3, 0.5, -infinity
  const TensorView all{half.data(), {4}, DType::kBF16, MemorySpace::kHost};
  EXPECT_EQ(rounding_stats(all, all).amax, std::numeric_limits<double>::infinity());
  const TensorView finite = all.rows(0, 3);
  EXPECT_EQ(rounding_stats(finite, finite).amax, 3);
  EXPECT_EQ(rounding_stats(finite, finite).signal, 10.25);
}

struct Kept final : NumericsSink {
  void add(const OperandNumerics& operand) override {
    ++count;
    format = operand.format;
    relative_error = operand.stats.relative_error;
  }
  int count = 0;
  std::string format;
  double relative_error = 0;
};

TEST(ReportPlainOperand, NamesTheTypeThatTheProductSees) {
  std::vector<float> w{1.00390625F};  // a tie of bfloat16: 1 + 2^-8 becomes 1
  std::uint16_t rounded = 0x3F80;
  Elsewhere device;
  Kept kept;
  SiteCall call;
  call.numerics = &kept;
  report_plain_operand(device, call, {"fc", 0, "fprop", "w"}, view(w),
                       {&rounded, {1}, DType::kBF16, MemorySpace::kHost});
  EXPECT_EQ(kept.count, 1);
  EXPECT_EQ(kept.format, "bf16");
  EXPECT_DOUBLE_EQ(kept.relative_error, 0.00390625 / 1.00390625);
  EXPECT_EQ(device.copies, 0) << "of what the host has";
  TensorView there = view(w);
  there.space = MemorySpace::kCuda;
  report_plain_operand(device, call, {"fc", 0, "fprop", "w"}, there, there);
  EXPECT_EQ(kept.count, 2);
  EXPECT_EQ(kept.relative_error, 0) << "nothing was rounded";
  EXPECT_EQ(device.copies, 1);
}

}  // namespace
}  // namespace tenon::graph
