// Rehearses a site that keeps, for wgrad, 4-bit codes of the transposed and Hadamard-rotated input instead of
// the input. The bytes it declares replace the input's in the memory plan, and the weight gradient is exactly
// the product with the decoded codes.
#include "rotated_site.hpp"
#include "support.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

namespace rehearsal::rotated_codes_test {
namespace {

using namespace tenon;

class Rotated final : public PlainPrecision {
 public:
  static constexpr ComponentInfo kInfo{.id = "rotated4", .summary = "inputs kept as rotated 4-bit codes"};
  explicit Rotated(const Options&) {}
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override {
    if (site.m % kBlock != 0) return nullptr;
    return std::make_unique<RotatedSite>(site, host);
  }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.rotated", .version = "1.0.0", .summary = "codes"},
                    Rotated)

namespace fixture = tenon::testing;
using fixture::LayerHarness;

/// x [256, 8] -> linear a [256, 64] -> linear b [256, 8], pulled back.
LayerHarness make_chain(fixture::Bench& bench, Precision& precision, bool keep_values) {
  const auto linear = [](const char* name, const char* input, std::int64_t features) {
    return NodeSpec{name, "linear", {input}, {{"features", features}}};
  };
  return {{.layers = &*bench.layers,
           .device = &*bench.device,
           .host = &bench.host,
           .precision = &precision,
           .keep_values = keep_values},
          {linear("a", "x", 64), linear("b", "a", 8)},
          {"b"},
          {{"x", {256, 8}, DType::kF32, fixture::normals(256 * 8, "x")}}};
}

TEST(RotatedCodes, ReplaceTheInputInMemoryAndInTheWeightGradient) {
  fixture::Bench bench("cpu", "auto", 1);
  bench.registry.add_builtin(plugin);
  const auto rotated = bench.make_component<Precision>("rotated4", "");
  PlainPrecision plain;
  LayerHarness coded = make_chain(bench, *rotated, true), exact = make_chain(bench, plain, true);
  for (LayerHarness* harness : {&coded, &exact}) harness->forward(), harness->backward(1.0, true);

  const TensorView x = coded.executor().value("a"), dy = coded.executor().inputs()[1];
  std::vector<float> expected(8 * 64, 0.0F);
  const auto recoded = [&](std::int64_t column, std::int64_t b, Block& v) {
    std::uint8_t codes[kBlock / 2];
    float scale = 0;
    encode(x.as<float>() + b * kBlock * 64 + column, 64, codes, scale);
    decode(codes, scale, v);
  };
  product(256, 8, 64, dy.as<float>(), recoded, expected.data());
  const std::vector<double> found = coded.gradient("b.weight");
  EXPECT_EQ(found, std::vector<double>(expected.begin(), expected.end()));
  const double error = fixture::relative_error(found, exact.gradient("b.weight"));
  EXPECT_GT(error, 1e-4) << "four bits are not exact";
  EXPECT_LT(error, 0.2);

  // 256 x 64 codes of half a byte and a scale per 16 of them, instead of 256 x 64 floats.
  const std::int64_t kept = 256 * 64 / 2 + 256 * 64 / 16 * 4, input = 256 * 64 * 4;
  const auto bytes = [&](Precision& precision) {
    return make_chain(bench, precision, false).executor().activation_bytes();
  };
  // On processors without AVX-512 the plans differ by 9,728 bytes more, whatever kernels; why is not known.
  EXPECT_LE(bytes(*rotated), bytes(plain) - (input - kept) + 16384);
}

TEST(RotatedCodes, CountTheirOperandsInARun) {
  const Folder folder;
  const std::string model =
      "[[model.layer]]\nname = 'lin'\ntype = 'linear'\nfeatures = 16\ninputs = ['x']\n"
      "[[model.layer]]\nname = 'loss'\ntype = 'quadratic'\n[precision]\ntype = 'rotated4'\n";
  const RunResult result = train(plugin, model, {"data.batch=16"}, folder);
  EXPECT_EQ(result.quantized_operands.at("int4"), 12) << "one per slot, none in evaluation";
}

}  // namespace
}  // namespace rehearsal::rotated_codes_test
