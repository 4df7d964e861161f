// Four sums at a time, because one chain of additions would wait for itself.
#include "graph/operand_report.hpp"

#include <tenon/tensor_values.hpp>

#include <array>
#include <cmath>

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
  std::array<double, 4> signal{}, noise{}, relative{};
  std::int64_t non_zero = 0, vanished = 0;
  double amax = 0;
  bool nan = false;
};

void add(Sums& sums, const double* x, const double* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto lane = static_cast<std::size_t>(i % 4);
    const double magnitude = std::abs(x[i]);
    sums.nan = sums.nan || std::isnan(magnitude);
    sums.amax = magnitude > sums.amax ? magnitude : sums.amax;
    sums.signal[lane] += x[i] * x[i];
    if (y == nullptr) continue;
    const double error = std::abs(x[i] - y[i]);
    sums.noise[lane] += error * error;
    if (x[i] == 0) continue;
    ++sums.non_zero;
    sums.vanished += y[i] == 0 ? 1 : 0;
    sums.relative[lane] += error / magnitude;
  }
}

double total(const std::array<double, 4>& lanes) {
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace

QuantizeStats rounding_stats(const TensorView& input, const TensorView& rounded) {
  const bool same = input.data == rounded.data;
  std::array<double, kPiece> x, y;
  Sums sums;
  const std::int64_t elements = input.elements();
  for (std::int64_t first = 0; first < elements; first += kPiece) {
    const std::int64_t count = elements - first < kPiece ? elements - first : kPiece;
    load(input, first, count, x.data());
    if (!same) load(rounded, first, count, y.data());
    add(sums, x.data(), same ? nullptr : y.data(), count);
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

void report_plain_operand(const SiteCall& call, const OperandNames& names, const TensorView& input,
                          const TensorView& rounded) {
  if (input.empty() || input.space != MemorySpace::kHost) return;
  OperandNumerics operand;
  operand.layer = names.layer;
  operand.site = names.site;
  operand.gemm = names.gemm;
  operand.operand = names.operand;
  operand.format = dtype_name(rounded.dtype);
  operand.reason = "kept";
  operand.slot = call.step;
  operand.micro = call.micro;
  operand.first_row = call.first_row;
  operand.stats = rounding_stats(input, rounded);
  operand.input = input;
  call.numerics->add(operand);
}

}  // namespace tenon::graph
