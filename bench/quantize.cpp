// Quantizing and decoding against copying the same matrix, and NVFP4 against the same algorithm in PyTorch.
// Bytes are those of the bf16 matrix that is read; a pass for the largest magnitude, where a format needs
// one, is within the time.
#include "step_bench.hpp"

#include <tenon/operators_quant.hpp>
#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <chrono>
#include <cstring>

namespace tenon::bench {
namespace {

constexpr std::int64_t kRows = 4096, kColumns = 2048;
constexpr double kGigabytes = 2e-9 * kRows * kColumns;

struct Case {
  const char* name;
  QuantizeSpec spec;
  bool codes = false;   ///< codes are written beside values
  bool decode = false;  ///< stored codes to values
};

std::vector<Case> cases() {
  using E = ElementFormat;
  using B = BlockScale;
  constexpr auto kStochastic = RoundingMode::kStochastic;
  return {
      {"nvfp4 1x16", {}},
      {"nvfp4 1x16, codes too", {}, true},
      {"nvfp4 1x16 stochastic", {.rounding = kStochastic}},
      {"nvfp4 1x16 stochastic, 24 bits", {.rounding = kStochastic, .random_bits = 24}},
      {"nvfp4 16x16", {.block_rows = 16}},
      {"nvfp4 16x1 rotated, codes too", {.block_rows = 16, .block_columns = 1, .rotate = true}, true},
      {"nvfp4 16x1 rotated stochastic",
       {.block_rows = 16, .block_columns = 1, .rounding = kStochastic, .rotate = true}},
      {"nvfp4 1x16 decode", {}, true, true},
      {"mxfp4 1x32", {.scale = B::kPower, .block_columns = 32}},
      {"mxfp8 1x32", {.element = E::kE4M3, .scale = B::kPower, .block_columns = 32}},
      {"mxfp8 32x1", {.element = E::kE4M3, .scale = B::kPower, .block_rows = 32, .block_columns = 1}},
      {"fp8 per tensor", {.element = E::kE4M3, .scale = B::kTensor}},
      {"fp8 1x128", {.element = E::kE4M3, .scale = B::kFloat, .block_columns = 128}},
      {"fp8 128x1", {.element = E::kE4M3, .scale = B::kFloat, .block_rows = 128, .block_columns = 1}},
      {"fp8 128x128", {.element = E::kE4M3, .scale = B::kFloat, .block_rows = 128, .block_columns = 128}},
  };
}

/// Zero-filled memory of the device, for the program's life.
TensorView memory(Device& device, const Shape& shape, DType dtype) {
  TensorView view{nullptr, shape, dtype, device.space()};
  view.data = device.allocate(static_cast<std::size_t>(view.bytes()));
  return view;
}

/// GB/s of input over `steps` calls, after one that warms up.
template <typename Call>
double rate(int steps, Call call) {
  call();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) call();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return kGigabytes * steps / seconds.count();
}

class Measurement {
 public:
  Measurement(Device& device, const Case& c, TensorView x)
      : c_(c), x_(x), kernel_(device.family<QuantOps>().quantizer(spec(c))) {
    const bool floats = c.spec.scale == BlockScale::kFloat;
    out_.values = memory(device, {kRows, kColumns}, DType::kBF16);
    codes_ = memory(device, {static_cast<std::int64_t>(kernel_->code_bytes())}, DType::kU8);
    scales_ = memory(device, {static_cast<std::int64_t>(kernel_->scale_bytes()) / (floats ? 4 : 1)},
                     floats ? DType::kF32 : DType::kU8);
    if (c.codes) out_.codes = codes_;
    if (kernel_->scale_bytes() > 0) out_.scales = scales_;
    quantize();
  }

  double rate(int steps) {
    return bench::rate(steps, [&] {
      if (c_.decode)
        kernel_->decode(codes_, scales_, out_.values);
      else
        quantize();
    });
  }

 private:
  static QuantizeSpec spec(const Case& c) {
    QuantizeSpec result = c.spec;
    result.rows = kRows;
    result.columns = kColumns;
    return result;
  }
  void quantize() {
    const float amax = kernel_->needs_amax() ? kernel_->amax(x_, {}) : 0;
    kernel_->run(x_, amax, {.key = {{1, 2}}, .step = 3}, out_, {}, nullptr);
  }

  const Case& c_;
  TensorView x_;
  std::unique_ptr<QuantizeKernel> kernel_;
  QuantizeOutput out_;
  TensorView codes_, scales_;
};

int measure(const Settings& settings) {
  const std::vector<Case> all = settings.json ? std::vector<Case>{cases().front()} : cases();
  testing::Bench bench("cpu", "auto", settings.threads);
  Device& device = *bench.device;
  if (!settings.json)
    fmt::print("bf16 {} x {}, kernels {}, {} thread(s); ratios to copying it\n", kRows, kColumns,
               device.kernel_choice(), settings.threads);
  const TensorView x = memory(device, {kRows, kColumns}, DType::kBF16);
  testing::write(device, x, testing::normals(kRows * kColumns, "bench"));
  const TensorView copy = memory(device, {kRows, kColumns}, DType::kBF16);
  std::vector<std::vector<double>> ratios(all.size()), rates(all.size());
  std::vector<std::unique_ptr<Measurement>> measurements;
  for (const Case& c : all) measurements.push_back(std::make_unique<Measurement>(device, c, x));
  std::vector<double> copies, eager, compiled;
  for (int round = 0; round < settings.rounds; ++round) {
    copies.push_back(rate(settings.steps, [&] { device.copy(x, copy); }));
    for (std::size_t i = 0; i < all.size(); ++i) {
      rates[i].push_back(measurements[i]->rate(settings.steps));
      ratios[i].push_back(rates[i].back() / copies.back());
    }
    if (settings.json) continue;
    for (const auto& [list, mode] : {std::pair{&eager, "eager"}, {&compiled, "compiled"}}) {
      const double peer = peer_rate(settings, "quantize_torch.py",
                                    fmt::format("--mode {} --rows {} --columns {} --threads {} --steps {}",
                                                mode, kRows, kColumns, settings.threads, settings.steps));
      if (peer > 0) list->push_back(rates[0].back() / peer);
    }
  }
  if (settings.json) {
    print_json({{"gb_per_s", median(rates[0])}, {"copy_gb_per_s", median(copies)}});
    return 0;
  }
  fmt::print("{:<34} {} GB/s\n", "copy", spread(copies));
  for (std::size_t i = 0; i < all.size(); ++i)
    fmt::print("{:<34} {} GB/s, {} of copying\n", all[i].name, spread(rates[i]), spread(ratios[i]));
  for (const auto& [list, mode] : {std::pair{&eager, "eager"}, {&compiled, "compiled"}}) {
    if (list->empty())
      fmt::print("PyTorch {}: skipped, '{}' cannot run it\n", mode, settings.python);
    else
      fmt::print("nvfp4 1x16: {} x PyTorch {}\n", spread(*list), mode);
  }
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  return tenon::bench::run_program("quantize", argc, argv, {.rounds = 3, .steps = 10}, tenon::bench::measure);
}
