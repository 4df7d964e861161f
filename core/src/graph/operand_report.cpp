// Several sums at a time, because one chain of additions would wait for itself.
#include "graph/operand_report.hpp"

#include "base/at.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/site_products.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace tenon::graph {
namespace {

constexpr std::int64_t kPiece = 1024;

/// Elements [first, first + count) as f64.
void load(const TensorView& view, std::int64_t first, std::int64_t count, double* out) {
  TensorView piece = view;
  piece.shape = Shape{count};
  piece.data = static_cast<std::byte*>(view.data) + first * dtype_bytes(view.dtype, 1);
  for_each_real(piece, [&](double value) { *out++ = value; });
}

struct Sums {
  std::array<double, 8> signal{};
  std::array<double, 4> noise{}, relative{};
  std::int64_t non_zero = 0, vanished = 0;
  double amax = 0;
  bool nan = false;
};

/// Magnitudes and squares alone, of elements that f32 holds: the case of almost every operand.
void add_floats(Sums& sums, const TensorView& view, std::int64_t first, std::int64_t count) {
  std::array<std::int32_t, kPiece> bits{};
  if (view.dtype == DType::kF32) {
    std::memcpy(bits.data(), view.as<const float>() + first, count * sizeof(float));
  } else {
    const std::uint16_t* from = view.as<const std::uint16_t>() + first;
    for (std::int64_t i = 0; i < count; ++i)
      base::at(bits, i) = static_cast<std::int32_t>(static_cast<std::uint32_t>(from[i]) << 16);
  }
  std::int32_t most = 0;  // magnitudes are ordered as their bits are, and a NaN is above infinity
  for (const std::int32_t value : bits) most = std::max(most, value & 0x7FFFFFFF);
  for (std::size_t i = 0; i < bits.size(); i += sums.signal.size()) {
    for (std::size_t lane = 0; lane < sums.signal.size(); ++lane) {
      const auto value = static_cast<double>(std::bit_cast<float>(bits[i + lane]));
      sums.signal[lane] += value * value;
    }
  }
  const auto largest = static_cast<double>(std::bit_cast<float>(most));
  sums.nan = sums.nan || std::isnan(largest);
  sums.amax = largest > sums.amax ? largest : sums.amax;
}

void add(Sums& sums, const double* x, const double* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double magnitude = std::abs(x[i]), error = std::abs(x[i] - y[i]);
    sums.nan = sums.nan || std::isnan(magnitude);
    sums.amax = magnitude > sums.amax ? magnitude : sums.amax;
    base::at(sums.signal, i % 8) += x[i] * x[i];
    base::at(sums.noise, i % 4) += error * error;
    if (x[i] == 0) continue;
    ++sums.non_zero;
    sums.vanished += y[i] == 0 ? 1 : 0;
    base::at(sums.relative, i % 4) += error / magnitude;
  }
}

template <std::size_t N>
double total(const std::array<double, N>& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

QuantizeStats rounding_stats(const TensorView& input, const TensorView& rounded) {
  const bool same = input.data == rounded.data;
  const bool floats = same && (input.dtype == DType::kF32 || input.dtype == DType::kBF16);
  std::array<double, kPiece> x, y;
  Sums sums;
  const std::int64_t elements = input.elements();
  for (std::int64_t first = 0; first < elements; first += kPiece) {
    const std::int64_t count = elements - first < kPiece ? elements - first : kPiece;
    if (floats) {
      add_floats(sums, input, first, count);
      continue;
    }
    load(input, first, count, x.data());
    load(rounded, first, count, y.data());
    add(sums, x.data(), y.data(), count);
  }
  QuantizeStats stats;
  stats.amax = sums.nan ? std::nan("") : sums.amax;
  stats.signal = total(sums.signal);
  stats.noise = total(sums.noise);
  if (sums.non_zero > 0) {
    stats.relative_error = total(sums.relative) / static_cast<double>(sums.non_zero);
    stats.underflow = static_cast<double>(sums.vanished) / static_cast<double>(sums.non_zero);
  }
  stats.scale_min = stats.scale_max = 1;
  return stats;
}

void report_plain_operand(Device& device, const SiteCall& call, const OperandNames& names,
                          const TensorView& input, const TensorView& rounded) {
  if (input.empty()) return;
  HostStage input_here, rounded_here;
  const TensorView from = input_here.read(device, input);
  const TensorView to = input.data == rounded.data ? from : rounded_here.read(device, rounded);
  OperandNumerics operand = operand_place(call, names.layer, names.site, names.gemm, names.operand);
  operand.format = dtype_name(rounded.dtype);
  operand.reason = "kept";
  operand.stats = rounding_stats(from, to);
  operand.input = from;
  call.numerics->add(operand);
}

void PlainOperands::check(const TensorView& a, const TensorView& b) const {
  if (a.dtype == activation_ && b.dtype == activation_) return;
  fail_plugin(
      fmt::format("layer '{}' passed {} and {} to a site whose activations are {}; convert before the call",
                  layer_, dtype_name(a.dtype), dtype_name(b.dtype), dtype_name(activation_)));
}

void PlainOperands::report(const SiteCall& call, std::string_view product, const Operand& a,
                           const Operand& b) const {
  if (call.numerics == nullptr) return;
  report_plain_operand(device_, call, {layer_, site_, product, a.name}, a.input, a.rounded);
  report_plain_operand(device_, call, {layer_, site_, product, b.name}, b.input, b.rounded);
}

}  // namespace tenon::graph

TENON_ABI_BEGIN

// The comparison of numerics records, for policies outside the core (site_products.hpp).

QuantizeStats measure_rounding(TensorView input, TensorView rounded) {
  if (input.elements() != rounded.elements()) {
    fail_plugin("measure_rounding was given " + std::to_string(input.elements()) + " elements and " +
                std::to_string(rounded.elements()) + " rounded ones");
  }
  return graph::rounding_stats(input, rounded);
}

TENON_ABI_END
