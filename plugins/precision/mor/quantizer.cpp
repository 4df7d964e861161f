// Quantizes one matrix with the plain reference of the kernels.
#include "quantizer.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/reference/mor.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace tenon::mor {
namespace {

using kernels::Bf16;

struct Plan {
  std::int64_t block_rows, block_columns;
  MorStrategy strategy;
};

Plan plan_of(const QuantizeRequest& request, const Settings& settings) {
  if (!request.rounding.empty() && request.rounding != "rne")
    fail_config(
        fmt::format("format mor rounds to nearest; rounding '{}' is not defined for it", request.rounding));
  if (!request.transform.empty() && request.transform != "none")
    fail_config(fmt::format("format mor has no transform '{}'", request.transform));
  Plan plan{request.block_rows, request.block_columns, settings.strategy};
  if (plan.block_rows <= 0) plan.block_rows = settings.partition.across;
  if (plan.block_columns <= 0) plan.block_columns = settings.partition.along;
  if (plan.block_rows <= 0) plan.block_rows = std::max<std::int64_t>(1, request.rows);
  if (plan.block_columns <= 0) plan.block_columns = std::max<std::int64_t>(1, request.columns);
  if (request.scale.empty()) return plan;
  constexpr std::pair<std::string_view, MorStrategy> kStrategies[] = {{"gam", MorStrategy::kGam},
                                                                      {"block", MorStrategy::kBlock},
                                                                      {"e8", MorStrategy::kE8},
                                                                      {"current", MorStrategy::kCurrent}};
  for (const auto& [name, strategy] : kStrategies) {
    if (request.scale != name) continue;
    plan.strategy = strategy;
    return plan;
  }
  fail_config(fmt::format("format mor has no scale '{}'; it has gam, block, e8 and current", request.scale));
}

std::string decision_of(const Settings& settings, const kernels::MorResult& result, bool kept) {
  if (kept) return "bf16";
  if (settings.mode == MorMode::kTensor) return "e4m3";
  constexpr const char* kNames[] = {"bf16", "e4m3", "e5m2", "e2m3"};
  std::vector<std::string> shares;
  for (int choice = 0; choice < 4; ++choice) {
    if (result.blocks[choice] == 0) continue;
    shares.push_back(fmt::format("{}: {}", kNames[choice], result.blocks[choice]));
  }
  return fmt::format("{}", fmt::join(shares, ", "));
}

}  // namespace

std::span<const std::string_view> MorQuantizer::formats() const {
  static constexpr std::string_view kFormats[] = {"mor"};
  return kFormats;
}

QuantizeShape MorQuantizer::shape(const QuantizeRequest& request) const {
  const Plan plan = plan_of(request, settings_);
  return {.rows = request.rows,
          .columns = request.columns,
          .scale_rows = (request.rows + plan.block_rows - 1) / plan.block_rows,
          .scale_columns = (request.columns + plan.block_columns - 1) / plan.block_columns,
          .scale = DType::kF32};
}

QuantizeReport MorQuantizer::run(const QuantizeRequest& request, Device& device, TensorView x,
                                 TensorView codes, TensorView block_scales, TensorView dequantized) {
  const Plan plan = plan_of(request, settings_);
  HostStage x_here, codes_here, scales_here, dequantized_here;
  const auto n = static_cast<std::size_t>(x.elements());
  const auto* const from_x = x_here.read(device, x).as<float>();
  std::vector<Bf16> input(n), values(n);
  for (std::size_t i = 0; i < n; ++i) input[i] = kernels::to_bf16(from_x[i]);
  kernels::MorArgs args;
  args.x = input.data();
  args.rows = request.rows, args.columns = request.columns;
  args.block_rows = plan.block_rows, args.block_columns = plan.block_columns;
  args.strategy = static_cast<kernels::MorStrategy>(plan.strategy);
  args.mode = static_cast<kernels::MorMode>(settings_.mode);
  args.threshold = std::numeric_limits<double>::infinity();  // always accepts the attempt
  args.e2m3 = settings_.e2m3;
  auto* decoded = dequantized_here.room(dequantized).as<float>();
  const kernels::MorResult result =
      kernels::reference::mor(args, values.data(), nullptr,
                              {.codes = codes_here.room(codes).as<std::uint8_t>(),
                               .scales = scales_here.room(block_scales).as<float>(),
                               .decoded = decoded});
  codes_here.write(device, codes);
  scales_here.write(device, block_scales);

  QuantizeReport report;
  report.mean_relative_error = result.error;
  report.amax = static_cast<double>(result.amax);
  double signal = 0, noise = 0;
  std::int64_t lost = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double from = static_cast<double>(kernels::to_float(input[i])),
                 to = static_cast<double>(decoded[i]);
    signal += from * from;
    noise += (from - to) * (from - to);
    lost += from != 0 && to == 0 ? 1 : 0;
  }
  report.sqnr_db = 10 * std::log10(signal / noise);
  if (result.non_zero > 0)
    report.underflow_fraction = static_cast<double>(lost) / static_cast<double>(result.non_zero);
  const bool kept =
      !result.finite || (settings_.mode == MorMode::kTensor && result.error > settings_.threshold);
  report.decision = decision_of(settings_, result, kept);
  for (std::size_t i = 0; i < n && kept; ++i) decoded[i] = kernels::to_float(input[i]);
  dequantized_here.write(device, dequantized);
  return report;
}

}  // namespace tenon::mor
