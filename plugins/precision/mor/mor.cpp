// Precision `mor`: mixture of representations (arXiv 2512.22804). Every operand of a product is tried in
// E4M3, and kept in BF16 if the error is too large: decided per tensor by its mean relative error, or per
// block. Activations are bf16, master weights f32; products are the device's BF16 products.
// This file has the options, the selection of sites and the quantizer; site.hpp has the work.
#include "ledger.hpp"
#include "settings.hpp"
#include "site.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/kernels/reference/mor.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/quantizer.hpp>
#include <tenon/sdk/site_selection.hpp>
#include <tenon/state.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace tenon::mor {

/// Interface `tenon.quantizer/1`, format `mor`: one matrix on the host, element by element, with codes and
/// scales of the E4M3 attempt.
class MorQuantizer final : public Quantizer {
 public:
  explicit MorQuantizer(const Settings& settings) : settings_(settings) {}

  std::span<const std::string_view> formats() const override;
  QuantizeShape shape(const QuantizeRequest& request) const override;
  QuantizeReport run(const QuantizeRequest& request, Device& device, TensorView x, TensorView codes,
                     TensorView block_scales, TensorView dequantized) override;

 private:
  const Settings& settings_;
};

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
  const std::size_t n = x.elements();
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

class Mor final : public Precision, public PrecisionMetrics, private IdentitiesOf<Mor> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("level", "'tensor'")
          .one_of(kLevels)
          .doc_text("granularity of the choice: an operand as a whole, E4M3 or BF16 ('tensor'); each block, "
                    "E4M3 or BF16 by error ('sub2'), or E4M3, E5M2 or BF16 by dynamic range ('sub3')"),
      option::real("threshold", "0.045")
          .between(0, 1)
          .doc_text("level 'tensor': largest mean relative error of E4M3 over elements that are not zero"),
      option::text("partition", "'128x128'")
          .doc_text("blocks that share a scale: RxC (across x along the dimension that a product sums over), "
                    "'row' (1 x all), 'column' (all x 1) or 'tensor'"),
      option::text("strategy", "'gam'")
          .one_of(kStrategies)
          .doc_text("scales: 'gam' = one mantissa per tensor and an exponent per block, 'block' = from the "
                    "block's amax, 'e8' = that as a power of two, 'current' = one from the tensor's amax"),
      option::boolean("e2m3", "false")
          .doc_text("levels 'sub2' and 'sub3': E2M3 where a block's magnitudes span a factor of at most 7.5"),
      option::boolean("fp4", "false")
          .doc_text("experimental, level 'tensor': NVFP4 where its own mean relative error is at most "
                    "fp4_threshold"),
      option::real("fp4_threshold", "0.15").between(0, 1).doc_text("largest mean relative error of fp4"),
      option::keep_first_blocks(),
      option::keep_last_blocks(),
      option::keep_first_gemms(),
      option::keep_last_gemms(),
      option::keep_layers(),
      option::boolean("head", "false").doc_text("include sites of the module 'head'"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "mor",
      .summary = "mixture of representations: operands of products in E4M3 or BF16, by their rounding error",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "operands of which none may lose anything stay in bfloat16",
       .options = "threshold = 0.0",
       .other = "type = 'bf16'"},
      {.why = "operands that may not lose anything in NVFP4 are decided without it",
       .options = "fp4 = true\nfp4_threshold = 0.0",
       .other = "type = 'mor'"},
  };

  explicit Mor(const Options& options)
      : settings_(settings_of(options)), selection_("mor", options), quantizer_(settings_) {}

  DType activations() const override { return DType::kBF16; }
  DType parameters() const override { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override;
  double loss_scale() const override { return 1.0; }
  bool after_backward(const BackwardStats& stats) override { return !stats.found_non_finite; }
  void state(StateVisitor&) override {}  // the sites hold all state
  void* query(std::string_view interface_id) override;

  void metrics(const std::function<void(std::string_view, double)>& sink) override { ledger_.metrics(sink); }

 private:
  Settings settings_;
  SiteSelection selection_;
  Ledger ledger_;
  MorQuantizer quantizer_;
};

std::unique_ptr<LinearSite> Mor::bind(const SiteInfo& site, SiteHost& host) {
  const bool kept = selection_.keeps(site);
  selection_.bound(site, !kept);
  if (kept) return nullptr;
  return std::make_unique<MorSite>(site, host, settings_, ledger_);
}

void* Mor::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  if (interface_id == PrecisionMetrics::kId) return static_cast<PrecisionMetrics*>(this);
  if (interface_id == Quantizer::kId) return static_cast<Quantizer*>(&quantizer_);
  return nullptr;
}

}  // namespace tenon::mor

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_mor",
                               .version = "0.1.0",
                               .summary = "a number format per operand or block, by measured error"},
             tenon::mor::Mor)
