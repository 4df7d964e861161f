// Linear sites of the core: operands as rows, with channels first, and as images.
#include "graph/plain_site.hpp"

#include "base/at.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/site_products.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

// Operands and their statistics. Several sums at a time, because one chain of additions would wait for
// itself.

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

namespace tenon::graph {

// Channels first, in one dtype, so that no operand is turned round: y[n, rows] = w[n, k] x[k, rows] for one
// sample, and its adjoints.

namespace {

class ChannelSite final : public LinearSite {
 public:
  ChannelSite(const SiteInfo& info, SiteHost& host)
      : sides_(info, host.device()),
        rows_(info.chunk),
        n_(info.n),
        dtype_(info.activation),
        blas_(host.device().family<Blas>()),
        elementwise_(host.device().family<Elementwise>()) {
    GemmSpec fprop{.m = n_, .n = rows_, .k = info.k};
    fprop.accumulate = info.bias, fprop.epilogue = info.epilogue;
    fprop_ = gemm(fprop);
    if (info.bias) bias_ = gemm({.m = n_, .n = rows_, .k = 1});
    for (const bool accumulate : {false, true}) {
      GemmSpec dgrad{.m = info.k, .n = rows_, .k = n_, .transpose_a = true};
      GemmSpec wgrad{.m = n_, .n = info.k, .k = rows_, .transpose_b = true};
      dgrad.accumulate = wgrad.accumulate = accumulate;
      dgrad_[accumulate ? 1 : 0] = gemm(dgrad), wgrad_[accumulate ? 1 : 0] = gemm(wgrad);
    }
  }

  SiteMemory memory() const override {
    SiteMemory memory;
    if (bias_ != nullptr) memory.persistent = static_cast<std::size_t>(dtype_bytes(dtype_, rows_));
    memory.scratch = line_up(scratch_);
    return memory;
  }

  bool reads_input() const override { return true; }

  /// The bias is there first, one number per line, and the product is added to it.
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    take(call, "fprop", "x", x, "w", w);
    if (bias_ != nullptr) bias_->run(bias.reshaped({n_, 1}), ones(call), y, {}, 1.0f, call.scratch);
    fprop_->run(w, x, y, {}, 1.0f, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    take(call, "dgrad", "dy", dy, "w", w);
    dgrad_[accumulate ? 1 : 0]->run(w, dy, dx, {}, 1.0f, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    take(call, "wgrad", "dy", dy, "x", x);
    wgrad_[accumulate ? 1 : 0]->run(dy, x, dw, {}, 1.0f, call.scratch);
  }

 private:
  std::unique_ptr<Gemm> gemm(GemmSpec spec) {
    spec.a = spec.b = spec.c = dtype_;
    auto prepared = blas_.gemm(spec);
    scratch_ = std::max(scratch_, prepared->scratch_bytes());
    return prepared;
  }

  /// [1, rows]
  TensorView ones(const SiteCall& call) {
    TensorView view = call.persistent;
    view.dtype = dtype_, view.shape = Shape{1, rows_};
    if (ones_ != view.data) elementwise_.fill(view.reshaped({rows_}), 1);
    ones_ = view.data;
    return view;
  }

  void take(const SiteCall& call, std::string_view product, std::string_view a_name, const TensorView& a,
            std::string_view b_name, const TensorView& b) const {
    sides_.check(a, b);
    sides_.report(call, product, {a_name, a, a}, {b_name, b, b});
  }

  PlainOperands sides_;
  std::int64_t rows_, n_;
  DType dtype_;
  Blas& blas_;
  Elementwise& elementwise_;
  std::size_t scratch_ = 0;
  std::unique_ptr<Gemm> fprop_, bias_, dgrad_[2], wgrad_[2];
  const void* ones_ = nullptr;  ///< their memory
};

/// info.activation and info.parameter are equal.
std::unique_ptr<LinearSite> make_channel_site(const SiteInfo& info, SiteHost& host) {
  return std::make_unique<ChannelSite>(info, host);
}

}  // namespace

// Channels first around a site that reads rows: planes to rows, the product, rows to planes.

namespace {

/// A window of one point over so many of them. Devices share lines among their threads, hence several.
WindowSpec one_point(std::int64_t points) {
  constexpr std::int64_t kMostInLine = 256;
  std::int64_t line = std::min(points, kMostInLine);
  while (line > 1 && points % line != 0) --line;
  WindowSpec spec;
  spec.spatial = 2, spec.extent[0] = points / line, spec.extent[1] = line;
  return spec;
}

class TransposedSite final : public LinearSite {
 public:
  TransposedSite(const SiteInfo& info, SiteHost& host, std::unique_ptr<LinearSite> rows)
      : rows_(info.chunk),
        n_(info.n),
        k_(info.k),
        dtype_(info.activation),
        windows_(host.device().family<WindowOps>()),
        point_(one_point(info.chunk)),
        site_(std::move(rows)) {}

  SiteMemory memory() const override {
    SiteMemory memory = site_->memory();
    memory.scratch = line_up(memory.scratch) + bytes(k_) + bytes(n_);
    return memory;
  }

  bool reads_input() const override { return site_->reads_input(); }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    turn(x, x_rows(call));
    site_->fprop(inner(call), x_rows(call), w, bias, y_rows(call));
    windows_.fold(point_, y_rows(call), 0, planes(y, n_), false);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    turn(dy, y_rows(call));
    site_->dgrad(inner(call), y_rows(call), w, x_rows(call), false);
    windows_.fold(point_, x_rows(call), 0, planes(dx, k_), accumulate);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    if (!x.empty()) turn(x, x_rows(call));
    turn(dy, y_rows(call));
    site_->wgrad(inner(call), x.empty() ? x : x_rows(call), y_rows(call), dw, accumulate);
  }

 private:
  std::size_t bytes(std::int64_t columns) const {
    return line_up(static_cast<std::size_t>(dtype_bytes(dtype_, rows_ * columns)));
  }

  /// The call as the site of rows expects it: scratch of the size that it asked for.
  SiteCall inner(const SiteCall& call) const {
    SiteCall result = call;
    result.scratch.shape = Shape{static_cast<std::int64_t>(site_->memory().scratch)};
    return result;
  }

  /// Rows of x or dx follow the scratch of the site, and those of y or dy follow them.
  TensorView x_rows(const SiteCall& call) const { return rows(call, 0, k_); }
  TensorView y_rows(const SiteCall& call) const { return rows(call, bytes(k_), n_); }
  TensorView rows(const SiteCall& call, std::size_t offset, std::int64_t columns) const {
    std::byte* begin = static_cast<std::byte*>(call.scratch.data) + line_up(site_->memory().scratch);
    return {begin + offset, Shape{rows_, columns}, dtype_, call.scratch.space};
  }

  TensorView planes(const TensorView& view, std::int64_t channels) const {
    return view.reshaped({1, channels, point_.extent[0], point_.extent[1]});
  }

  void turn(const TensorView& view, const TensorView& rows) const {
    windows_.unfold(point_, planes(view, rows.shape[1]), 0, rows);
  }

  std::int64_t rows_, n_, k_;
  DType dtype_;
  WindowOps& windows_;
  WindowSpec point_;
  std::unique_ptr<LinearSite> site_;
};

}  // namespace

std::unique_ptr<LinearSite> make_transposed_site(const SiteInfo& info, SiteHost& host,
                                                 std::unique_ptr<LinearSite> rows) {
  return std::make_unique<TransposedSite>(info, host, std::move(rows));
}

// Rows: products in the activations' own dtype (f32, f64, bf16), accumulated in f32 (f64).

namespace {

class PlainSite final : public LinearSite {
 public:
  PlainSite(const SiteInfo& info, SiteHost& host)
      : sides_(info, host.device()),
        n_(info.n),
        k_(info.k),
        activation_(info.activation),
        parameter_(info.parameter),
        elementwise_(host.device().family<Elementwise>()),
        operands_(host.operands()),
        products_(info, host.device().family<Blas>(), info.activation) {}

  SiteMemory memory() const override {
    SiteMemory memory;
    if (converts()) memory.persistent = static_cast<std::size_t>(dtype_bytes(activation_, n_ * k_));
    memory.scratch = products_.scratch_bytes();
    return memory;
  }

  bool reads_input() const override { return true; }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    const TensorView rounded = weight(call, w);
    sides_.report(call, "fprop", {"x", x, x}, {"w", w, rounded});
    run(SiteProduct::kFprop, x, rounded, y, bias, false, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    const TensorView rounded = weight(call, w);
    sides_.report(call, "dgrad", {"dy", dy, dy}, {"w", w, rounded});
    run(SiteProduct::kDgrad, dy, rounded, dx, {}, accumulate, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    sides_.report(call, "wgrad", {"dy", dy, dy}, {"x", x, x});
    run(SiteProduct::kWgrad, dy, x, dw, {}, accumulate, call.scratch);
  }

 private:
  bool converts() const { return activation_ != parameter_; }

  void run(SiteProduct product, TensorView a, TensorView b, TensorView c, TensorView bias, bool accumulate,
           TensorView scratch) {
    sides_.check(a, b);
    if (converts()) operands_.count(dtype_name(activation_), 2);
    products_.run(product, a, b, c, bias, accumulate, scratch);
  }

  /// The weight in the activations' dtype.
  TensorView weight(const SiteCall& call, TensorView w) {
    if (!converts()) return w;
    TensorView copy = call.persistent;
    copy.dtype = activation_;
    copy.shape = w.shape;
    if (version_ != call.weight_version || source_ != w.data) {
      elementwise_.convert(w, copy);
      version_ = call.weight_version;
      source_ = w.data;
    }
    return copy;
  }

  PlainOperands sides_;
  std::int64_t n_, k_;
  DType activation_, parameter_;
  Elementwise& elementwise_;
  OperandCounter& operands_;
  SiteProducts products_;
  std::uint64_t version_ = std::numeric_limits<std::uint64_t>::max();
  const void* source_ = nullptr;
};

}  // namespace

std::unique_ptr<LinearSite> make_plain_site(const SiteInfo& info, SiteHost& host, bool channels_first) {
  // A bias that is stored first, with the product added to it, is exact where no dtype is narrower than it.
  if (channels_first && info.activation == info.parameter) return make_channel_site(info, host);
  auto rows = std::make_unique<PlainSite>(info, host);
  if (channels_first) return make_transposed_site(info, host, std::move(rows));
  return rows;
}

// Images: y = map(w * x + bias), and its adjoints.

namespace {

class ImageSite final : public LinearSite {
 public:
  ImageSite(const SiteInfo& info, SiteHost& host, std::unique_ptr<Convolution> convolution)
      : sides_(info, host.device()), convolution_(std::move(convolution)) {}

  SiteMemory memory() const override {
    SiteMemory memory;
    memory.scratch = line_up(convolution_->scratch_bytes());
    return memory;
  }

  bool reads_input() const override { return true; }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    take(call, "fprop", "x", x, "w", w);
    convolution_->forward(x, w, bias, y, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    take(call, "dgrad", "dy", dy, "w", w);
    convolution_->backward_input(w, dy, dx, accumulate, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    take(call, "wgrad", "dy", dy, "x", x);
    convolution_->backward_weight(x, dy, dw, accumulate, call.scratch);
  }

 private:
  void take(const SiteCall& call, std::string_view product, std::string_view a_name, const TensorView& a,
            std::string_view b_name, const TensorView& b) const {
    sides_.check(a, b);
    sides_.report(call, product, {a_name, a, a}, {b_name, b, b});
  }

  PlainOperands sides_;
  std::unique_ptr<Convolution> convolution_;
};

}  // namespace

std::unique_ptr<LinearSite> make_image_site(const SiteInfo& info, SiteHost& host,
                                            const ConvolutionSpec& images) {
  auto* family = static_cast<Convolutions*>(host.device().query(Convolutions::kId));
  if (family == nullptr || info.activation != info.parameter) return nullptr;
  ConvolutionSpec spec = images;
  spec.bias = info.bias, spec.epilogue = info.epilogue, spec.dtype = info.activation;
  auto convolution = family->prepare(spec);
  if (convolution == nullptr) return nullptr;
  return std::make_unique<ImageSite>(info, host, std::move(convolution));
}

}  // namespace tenon::graph
