// A precision component with number formats that can be worked out by hand, for the tests of `tenon
// quantize`: "sevenths" has 15 levels per block of 1 x 4 and refuses transforms; "misshapen" answers a wrong
// shape.
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/quantizer.hpp>
#include <tenon/state.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace tenon;

class Sevenths final : public Precision, public Quantizer {
 public:
  static constexpr ComponentInfo kInfo{.id = "sevenths", .summary = "formats for a test"};
  explicit Sevenths(const Options&) {}

  DType activations() const override { return DType::kF32; }
  DType parameters() const override { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo&, SiteHost&) override { return nullptr; }
  double loss_scale() const override { return 1; }
  bool after_backward(const BackwardStats&) override { return true; }
  void state(StateVisitor&) override {}
  void* query(std::string_view id) override {
    return id == Quantizer::kId ? static_cast<Quantizer*>(this) : nullptr;
  }

  std::span<const std::string_view> formats() const override { return kFormats; }
  QuantizeShape shape(const QuantizeRequest& request) const override {
    if (request.transform == "rht16") fail_config("sevenths have no transform; use --transform none");
    if (request.format == "misshapen") return {1, 1, 0, 0, DType::kU8};
    const std::int64_t block = request.block_columns == 0 ? 4 : request.block_columns;
    return {request.rows, request.columns, request.rows, (request.columns + block - 1) / block, DType::kF32};
  }
  /// code = 8 + round(x / s), s = largest magnitude of the block / 7; scales are stored halved.
  QuantizeReport run(const QuantizeRequest& request, Device&, TensorView x, TensorView codes,
                     TensorView scales, TensorView dequantized) override {
    const std::int64_t block = request.block_columns == 0 ? 4 : request.block_columns;
    QuantizeReport report;
    report.tensor_scale = 2;
    report.decision = "sevenths";
    report.sqnr_db = HUGE_VAL;
    for (std::int64_t r = 0; r < request.rows; ++r) {
      for (std::int64_t first = 0; first < request.columns; first += block) {
        const std::int64_t end = std::min(request.columns, first + block);
        float amax = 0;
        for (std::int64_t c = first; c < end; ++c)
          amax = std::max(amax, std::abs(x.as<float>()[r * request.columns + c]));
        const float scale = amax / 14;
        scales.as<float>()[r * scales.shape[1] + first / block] = scale;
        for (std::int64_t c = first; c < end; ++c) {
          const std::int64_t i = r * request.columns + c;
          const float level = amax > 0 ? std::nearbyint(x.as<float>()[i] / (2 * scale)) : 0;
          codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(8 + level);
          dequantized.as<float>()[i] = level * scale * 2;
        }
        report.amax = std::max<double>(report.amax, amax);
      }
    }
    return report;
  }

 private:
  static constexpr std::string_view kFormats[] = {"sevenths", "misshapen"};
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "test.sevenths", .version = "0.1.0", .summary = "formats for a test"},
             Sevenths)
