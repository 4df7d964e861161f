// Agreement and history of amax, and the quantizers of an operand.
#include "operand.hpp"

#include <tenon/error.hpp>
#include <tenon/site_products.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::quantized {

float agreed(float amax, Communicator* group) {
  if (group == nullptr || group->size() == 1) return amax;
  // A maximum may lose a NaN, but not an infinity.
  float value = std::isfinite(amax) ? amax : std::numeric_limits<float>::infinity();
  group->all_reduce({&value, Shape{1}, DType::kF32}, ReduceOp::kMax);
  return std::isfinite(value) ? value : std::numeric_limits<float>::quiet_NaN();
}

AmaxHistory::AmaxHistory(SiteHost& host, std::string_view tensor, const SitePlan& plan)
    : device_(host.device()),
      length_(plan.history + 1),
      margin_(std::ldexp(1.0f, plan.margin)),
      latest_(plan.latest),
      amax_(host.state(std::string(tensor) + ".amax", DType::kF32, Shape{length_})),
      position_(host.state(std::string(tensor) + ".position", DType::kI64, Shape{2})) {}

float AmaxHistory::scale_amax(float amax, std::int64_t slot, bool training) {
  auto* const position = position_here_.read(device_, position_).as<std::int64_t>();
  float* const entries = amax_here_.read(device_, amax_).as<float>();
  if (training && position[0] != slot + 1) {
    position[0] = slot + 1;
    position[1] = (position[1] + 1) % length_;
    entries[position[1]] = 0;
    position_here_.write(device_, position_);
  }
  const std::int64_t current = position[1];
  float known = 0;
  if (latest_) {
    known = entries[(current + length_ - 1) % length_];
  } else {
    for (std::int64_t i = 0; i < length_; ++i) known = i == current ? known : std::max(known, entries[i]);
  }
  // Outside training the current entry is complete too, but a scale must not depend on the order of calls.
  const bool finite = std::isfinite(amax);
  if (training) {
    if (finite) entries[current] = std::max(entries[current], amax);
    amax_here_.write(device_, amax_);
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return (known > 0 ? known : amax) * margin_;
}

namespace {

constexpr std::int64_t kRotation = 16;

/// Returns a separate stream for each use: dy is rounded twice, and the two errors must be independent.
RandomKey stream(RandomKey site, Use use) {
  const std::uint64_t seed = site.words[0] | std::uint64_t{site.words[1]} << 32;
  return random_key(seed, std::string(gemm_of(use)) + "." + std::string(operand_of(use)));
}

std::int64_t pieces(std::int64_t extent, std::int64_t block) {
  return (extent + block - 1) / block;
}

}  // namespace

OperandUse::OperandUse(const SiteInfo& info, SiteHost& host, Use use, const OperandPlan& plan)
    : use_(use),
      plan_(plan),
      key_(stream(host.rounding_key(), use)),
      group_(info.amax_group),
      device_(&host.device()),
      layer_(info.layer) {
  const bool of_x = use == Use::kFpropX || use == Use::kWgradX;
  origin_row_ = is_weight(use) ? info.origin_n : 0;
  origin_column_ = is_weight(use) || of_x ? info.origin_k : info.origin_n;
}

void OperandUse::prepare(QuantOps& ops, std::int64_t rows, std::int64_t columns, DType input) {
  if (!quantized() ||
      std::any_of(prepared_.begin(), prepared_.end(), [&](const Prepared& p) { return p.rows == rows; }))
    return;
  spec_ = spec_of(plan_, use_, rows, columns, input);
  prepared_.push_back({rows, ops.quantizer(spec_)});
  scratch_ = std::max(scratch_, prepared_.back().kernel->scratch_bytes());
}

std::int64_t OperandUse::padded(std::int64_t rows) const {
  return plan_.rotate && along_rows(use_) ? pieces(rows, kRotation) * kRotation : rows;
}

QuantizeKernel& OperandUse::find(std::int64_t rows) const {
  for (const Prepared& prepared : prepared_) {
    if (prepared.rows == rows) return *prepared.kernel;
  }
  fail_plugin("layer '" + layer_ + "' called its site with " + std::to_string(rows) +
              " rows, which is neither its chunk nor what is left of its rows");
}

TensorView OperandUse::cut_scales(Cutter& cutter, std::int64_t rows) const {
  // A rank of a mesh may have no rows of a weight.
  if (!quantized() || plan_.format->block == 0 || rows == 0) return {};
  const auto bytes = static_cast<std::int64_t>(find(rows).scale_bytes());
  const std::int64_t down = pieces(padded(rows), spec_.block_rows);
  if (!plan_.by_block()) return cutter.take(DType::kU8, Shape{down, bytes / down});
  return cutter.take(DType::kF32, Shape{down, bytes / static_cast<std::int64_t>(sizeof(float)) / down});
}

QuantizeDraws OperandUse::draws(const SiteCall& call) const {
  QuantizeDraws draws;
  draws.key = key_;
  draws.step = static_cast<std::uint64_t>(call.step);
  draws.micro = static_cast<std::uint32_t>(call.micro);
  draws.origin_row = is_weight(use_) ? origin_row_ : call.origin_row;
  draws.origin_column = origin_column_;
  return draws;
}

float OperandUse::run(const SiteCall& call, const SiteName& name, TensorView x, const QuantizeOutput& out,
                      TensorView scratch, AmaxHistory* history, QuantizeStats* stats) {
  QuantizeKernel& kernel = find(x.shape[0]);
  float amax = 0;
  if (kernel.needs_amax()) {
    amax = agreed(kernel.amax(x, scratch), group_);
    if (history != nullptr) amax = history->scale_amax(amax, call.step, call.training);
  }
  if (call.numerics == nullptr) return kernel.run(x, amax, draws(call), out, scratch, stats);
  OperandNumerics numerics = operand_place(call, name.layer, name.site, gemm_of(use_), operand_of(use_));
  const float scale = kernel.run(x, amax, draws(call), out, scratch, &numerics.stats);
  numerics.format = plan_.format->name;
  numerics.reason = name.reason;
  numerics.input = input_here_.read(*device_, x);
  numerics.scales = scales_here_.read(*device_, out.scales);
  numerics.block_rows = plan_.format->block == 0 ? 0 : spec_.block_rows;
  numerics.block_columns = plan_.format->block == 0 ? 0 : spec_.block_columns;
  call.numerics->add(numerics);
  if (stats != nullptr) *stats = numerics.stats;
  return scale;
}

}  // namespace tenon::quantized
