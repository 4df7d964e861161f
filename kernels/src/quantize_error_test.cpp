// Errors of formats against the values that they round, on matrices of 2048 x 2048 bfloat16 values of three
// distributions. The expected numbers were measured with an independent emulation; data come from a
// counter-based generator.
#include <tenon/kernels/philox.hpp>

#include "quantizing.hpp"

namespace tenon::kernels::testing::quantize_error_test {
namespace {

constexpr std::int64_t kSide = 2048;

enum class Law { kGaussian, kStudent3, kScaleMixture };

/// Two normal variables from words 2i and 2i + 1 (Box and Muller).
std::pair<double, double> normals(std::uint64_t key, std::uint64_t i) {
  const double u = (philox_word(key, 2 * i) + 0.5) * 0x1p-32, v = philox_word(key, 2 * i + 1) * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::acos(-1.0) * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

std::vector<Bf16> matrix(Law law) {
  std::vector<Bf16> x(kSide * kSide);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto [a, b] = normals(12, i);
    double value = a;
    if (law == Law::kScaleMixture) value = a * std::exp(1.5 * b);
    if (law == Law::kStudent3) {
      const auto [c, d] = normals(13, i);
      value = a / std::sqrt((b * b + c * c + d * d) / 3);
    }
    x[i] = to_bf16(static_cast<float>(value));
  }
  return x;
}

struct Measured {
  double sqnr = 0, underflow = 0;  ///< dB; fraction of non-zero elements that became zero
};

Measured measure(const std::vector<Bf16>& x, const Format& format) {
  const auto q = quantize_matrix(x, kSide, kSide, format, *select_kernels("auto", detect_cpu_features()));
  double signal = 0, noise = 0;
  std::int64_t lost = 0, present = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<double>(to_float(x[i]));
    const auto decoded = static_cast<double>(to_float(q.values[i]) * q.tensor.decode);
    signal += value * value;
    noise += (value - decoded) * (value - decoded);
    present += value != 0 ? 1 : 0;
    lost += value != 0 && decoded == 0 ? 1 : 0;
  }
  return {10 * std::log10(signal / noise), static_cast<double>(lost) / static_cast<double>(present)};
}

Format power(Element element, PowerRule rule) {
  return {.element = element, .scaling = Scaling::kPower, .block_columns = 32, .power = rule};
}

struct Expected {
  const char* name;
  Format format;
  double gaussian, student, mixture;
  double underflow;  ///< Gaussian; 0 = not known
};

TEST(ErrorFloor, P12_SignalToNoise) {
  const Expected table[] = {
      {"NVFP4 1x16", kNvfp4, 20.4, 20.9, 24.4, 0.068},
      {"NVFP4 16x16", kNvfp4Square, 19.1, 14.9, 16.5, 0.101},
      {"MXFP4 floor", power(Element::kE2M1, PowerRule::kFloor), 18.8, 17.0, 16.7, 0},
      {"MXFP4 up", power(Element::kE2M1, PowerRule::kRoundUp), 18.8, 16.5, 17.3, 0},
      {"MXFP8 floor", power(Element::kE4M3, PowerRule::kFloor), 30.7, 29.5, 28.4, 0},
      {"MXFP8 up", power(Element::kE4M3, PowerRule::kRoundUp), 31.5, 31.4, 31.2, 0},
  };
  for (const Law law : {Law::kGaussian, Law::kStudent3, Law::kScaleMixture}) {
    const std::vector<Bf16> x = matrix(law);
    for (const Expected& row : table) {
      const double expected = law == Law::kGaussian   ? row.gaussian
                              : law == Law::kStudent3 ? row.student
                                                      : row.mixture;
      const Measured measured = measure(x, row.format);
      EXPECT_NEAR(measured.sqnr, expected, law == Law::kGaussian ? 0.1 : 1.0)
          << row.name << " " << static_cast<int>(law);
      if (law != Law::kGaussian) continue;
      if (row.underflow > 0) {
        EXPECT_NEAR(measured.underflow, row.underflow, 0.002) << row.name;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::testing::quantize_error_test
