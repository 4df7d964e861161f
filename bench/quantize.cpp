// Quantizing and decoding against copying the same matrix, and NVFP4 against the same algorithm in PyTorch.
// Bytes are those of the bf16 matrix that is read; a pass for the largest magnitude, where a format needs
// one, is within the time.
#include "quantize_cases.hpp"

#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <chrono>
#include <cstring>

namespace tenon::bench {
namespace {

constexpr std::int64_t kRows = 4096, kColumns = 2048;
constexpr double kGigabytes = 2e-9 * kRows * kColumns;

/// Zero-filled memory of the device, for the program's life.
TensorView memory(Device& device, const Shape& shape, DType dtype) {
  TensorView view{nullptr, shape, dtype, device.space()};
  view.data = device.allocate(view.bytes());
  return view;
}

/// GB/s of input over `steps` calls, after one that warms up.
template <typename Call>
double rate(int steps, Call&& call) {
  call();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) call();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return kGigabytes * steps / seconds.count();
}

int measure(const Settings& settings) {
  const std::vector<QuantizeCase> cases = quantize_cases();
  const std::vector<QuantizeCase> all(cases.begin(), settings.json ? cases.begin() + 1 : cases.end());
  testing::Bench bench("cpu", "auto", settings.threads);
  Device& device = *bench.device;
  if (!settings.json)
    fmt::print("bf16 {} x {}, kernels {}, {} thread(s); ratios to copying it\n", kRows, kColumns,
               device.kernel_choice(), settings.threads);
  const TensorView x = memory(device, {kRows, kColumns}, DType::kBF16);
  testing::write(device, x, testing::normals(kRows * kColumns, "bench"));
  const TensorView copy = memory(device, {kRows, kColumns}, DType::kBF16);
  std::vector<std::vector<double>> ratios(all.size()), rates(all.size());
  std::vector<std::unique_ptr<QuantizeCall>> calls;
  for (const QuantizeCase& c : all) calls.push_back(std::make_unique<QuantizeCall>(device, c, x));
  std::vector<double> copies, eager, compiled;
  for (int round = 0; round < settings.rounds; ++round) {
    copies.push_back(rate(settings.steps, [&] { device.copy(x, copy); }));
    for (std::size_t i = 0; i < all.size(); ++i) {
      rates[i].push_back(rate(settings.steps, *calls[i]));
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
