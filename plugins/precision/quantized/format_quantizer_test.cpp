// tenon.quantizer/1 of the components: shapes, codes one per byte, decoded values, errors.
#include "testing.hpp"

#include <tenon/kernels/formats.hpp>
#include <tenon/sdk/quantizer.hpp>

#include <gtest/gtest.h>

namespace tenon::quantized {
namespace {

using testing::Bench;
using testing::Values;

constexpr std::int64_t kRows = 20, kColumns = 80;

class FormatQuantizerTest : public ::testing::Test {
 protected:
  struct Result {
    QuantizeShape shape;
    QuantizeReport report;
    Values x, codes, scales, dequantized;
  };
  Result run(const char* component, QuantizeRequest request, const std::string& options = "") {
    const auto precision = bench.make_component<Precision>(component, options);
    auto* const quantizer = static_cast<Quantizer*>(precision->query(Quantizer::kId));
    request.rows = kRows, request.columns = kColumns;
    Result result;
    result.shape = quantizer->shape(request);
    testing::Buffers buffers(*bench.device);
    result.x = tenon::testing::normals(kRows * kColumns, "x");
    const TensorView x = buffers.of(DType::kF32, {kRows, kColumns}, result.x);
    const TensorView codes = buffers.make(DType::kU8, {result.shape.rows, result.shape.columns});
    const TensorView scales =
        result.shape.scale_rows == 0
            ? TensorView{}
            : buffers.make(result.shape.scale, {result.shape.scale_rows, result.shape.scale_columns});
    const TensorView values = buffers.make(DType::kF32, {result.shape.rows, result.shape.columns});
    result.report = quantizer->run(request, *bench.device, x, codes, scales, values);
    result.codes = tenon::testing::read(*bench.device, codes);
    result.scales = tenon::testing::read(*bench.device, scales);
    result.dequantized = tenon::testing::read(*bench.device, values);
    return result;
  }
  std::string refusal(const char* component, const QuantizeRequest& request) {
    try {
      run(component, request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Bench bench{"cpu", "reference", 2};
};

TEST_F(FormatQuantizerTest, DecodesWhatItEncodes) {
  using kernels::Element;
  const struct {
    const char *component, *format;
    std::int64_t block;  ///< along rows; 0 = none
    double sqnr;         ///< of normal numbers, in dB, within 1.5
    const char* options = "";
  } cases[] = {{"nvfp4", "nvfp4", 16, 20.4},
               {"mxfp4", "mxfp4", 32, 18.2},
               {"mxfp8", "mxfp8_e4m3", 32, 31.5},
               {"mxfp8", "mxfp8_e5m2", 32, 25.5},
               {"mxfp8", "mxfp6_e2m3", 32, 30},
               {"mxfp8", "mxfp6_e3m2", 32, 25.5},
               {"fp8", "fp8_e4m3", 0, 31.5},
               {"fp8", "fp8_e5m2", 0, 25.5},
               {"fp8", "fp8_block", 128, 31.5},
               {"fp8", "fp8_block", 128, 31.5, "recipe = \"block\"\nscales = \"fp32\""}};
  for (const auto& c : cases) {
    QuantizeRequest request;
    request.format = c.format;
    const Result result = run(c.component, request, c.options);
    EXPECT_EQ(result.shape.rows, kRows) << c.format;
    EXPECT_EQ(result.shape.scale_rows, c.block == 0 ? 0 : kRows) << c.format;
    EXPECT_EQ(result.shape.scale_columns, c.block == 0 ? 0 : (kColumns + c.block - 1) / c.block) << c.format;
    EXPECT_NEAR(result.report.sqnr_db, c.sqnr, 1.5) << c.format;
    EXPECT_EQ(result.report.decision, c.format);
    double noise = 0, signal = 0;
    for (std::size_t i = 0; i < result.x.size(); ++i) {
      noise += std::pow(result.x[i] - result.dequantized[i], 2);
      signal += std::pow(result.x[i], 2);
    }
    // x was rounded to f32 on input.
    EXPECT_NEAR(10 * std::log10(signal / noise), result.report.sqnr_db, 1e-3) << c.format;
  }
}

TEST_F(FormatQuantizerTest, NvFp4IsCodeTimesBlockScaleTimesTensorScale) {
  const Result result = run("nvfp4", {});
  for (std::size_t i = 0; i < result.codes.size(); ++i) {
    ASSERT_LT(result.codes[i], 16);
    const float element =
        kernels::decode(static_cast<std::uint8_t>(result.codes[i]), kernels::Element::kE2M1);
    const std::size_t block = i / kColumns * 5 + i % kColumns / 16;
    const float scale =
        kernels::decode(static_cast<std::uint8_t>(result.scales[block]), kernels::Element::kE4M3);
    ASSERT_EQ(result.dequantized[i], element * scale * result.report.tensor_scale);
  }
}

TEST_F(FormatQuantizerTest, TakesBlocksRoundingTransformAndSeed) {
  QuantizeRequest square;
  square.block_rows = square.block_columns = 16;
  EXPECT_EQ(run("nvfp4", square).shape.scale_rows, 2);
  QuantizeRequest stochastic;
  stochastic.rounding = "sr";
  const Values once = run("nvfp4", stochastic).codes;
  EXPECT_EQ(run("nvfp4", stochastic).codes, once);
  EXPECT_NE(run("nvfp4", {}).codes, once);
  stochastic.seed = 2;
  EXPECT_NE(run("nvfp4", stochastic).codes, once);
  QuantizeRequest down;
  down.transform = "rht16";
  down.block_rows = 16, down.block_columns = 1;
  EXPECT_EQ(run("nvfp4", down).shape.rows, 32) << "20 rows are filled up";
}

TEST_F(FormatQuantizerTest, RefusesWhatIsNotDefined) {
  const auto message = [&](const char* component, auto change) {
    QuantizeRequest request;
    change(request);
    return refusal(component, request);
  };
  EXPECT_NE(message("nvfp4", [](auto& r) { r.format = "fp8_e4m3"; })
                .find("this precision does not round to 'fp8_e4m3'; it offers nvfp4"),
            std::string::npos);
  EXPECT_NE(message("nvfp4", [](auto& r) { r.scale = "floor"; })
                .find("rules choose the power of two of MX formats"),
            std::string::npos);
  EXPECT_NE(message("mxfp4", [](auto& r) { r.scale = "up"; }).find("expected floor, ceil, even or rceil"),
            std::string::npos);
  EXPECT_NE(message("nvfp4", [](auto& r) { r.rounding = "nearest"; }).find("expected rne or sr"),
            std::string::npos);
  EXPECT_NE(message("nvfp4", [](auto& r) { r.transform = "fft"; }).find("expected none or rht16"),
            std::string::npos);
  EXPECT_NE(message("fp8", [](auto& r) { r.block_columns = 16; }).find("one scale per tensor"),
            std::string::npos);
  EXPECT_NE(message("mxfp4", [](auto& r) { r.transform = "rht16"; }).find("rotation"), std::string::npos);
}

}  // namespace
}  // namespace tenon::quantized
