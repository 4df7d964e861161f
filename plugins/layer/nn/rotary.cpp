// Layer `rotary`: the table is made in the first pass and kept; it grows where positions say so. Nothing is
// kept for backward but the positions, because the adjoint of a rotation is its inverse.
#include "rotary.hpp"

#include <fmt/format.h>
#include <tenon/portable_math.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tenon::nn {
namespace {

constexpr std::int64_t kMostPositions = std::int64_t{1} << 24;

/// Turns per position of every pair.
std::vector<double> turns_of(double base, std::int64_t half) {
  constexpr double kTwoPi = 6.28318530717958647692;
  std::vector<double> turns(half);
  for (std::int64_t i = 0; i < half; ++i) {
    const double exponent = -static_cast<double>(i) / static_cast<double>(half);
    turns[i] = portable_exp(exponent * portable_log(base)) / kTwoPi;
  }
  return turns;
}

template <typename T>
void write_lines(double base, std::int64_t lines, std::int64_t half, T* to) {
  const std::vector<double> turns = turns_of(base, half);
  for (std::int64_t p = 0; p < lines; ++p, to += 2 * half) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * turns[i];
      const TurnPoint point = portable_turn(angle - std::floor(angle));
      to[i] = static_cast<T>(point.cosine);
      to[i + half] = static_cast<T>(point.sine);
    }
  }
}

}  // namespace

RotationTable::~RotationTable() {
  if (table_.data != nullptr) device_->release(table_.data, static_cast<std::size_t>(table_.bytes()));
}

void RotationTable::infer(Device& device, double base, std::int64_t half, DType type) {
  device_ = &device;
  base_ = base;
  table_ = {nullptr, {0, 2, half}, type, device.space()};
}

TensorView RotationTable::lines(std::int64_t wanted) {
  if (table_.shape[0] >= wanted) return table_;
  TensorView longer = table_;
  longer.shape[0] = wanted;
  longer.data = device_->allocate(static_cast<std::size_t>(longer.bytes()));
  HostStage stage;
  const TensorView here = stage.room(longer);
  if (here.dtype == DType::kF64) {
    write_lines(base_, wanted, here.shape[2], here.as<double>());
  } else {
    write_lines(base_, wanted, here.shape[2], here.as<float>());
  }
  stage.write(*device_, longer);
  if (table_.data != nullptr) {
    device_->synchronize();  // the last pass may still read it
    device_->release(table_.data, static_cast<std::size_t>(table_.bytes()));
  }
  return table_ = longer;
}

void Rotary::infer(InferContext& context) {
  const Layout layout = expect_parts(context, 0);
  const Shape whole = layout.shape;
  const std::int64_t heads = options_.integer("heads");
  if (whole[2] % heads != 0 || whole[2] / heads % 2 != 0) {
    refuse(context, fmt::format("expected a width of {} heads of an even width, found {}: a rotation turns "
                                "pairs of elements; choose another number of heads or another width",
                                heads, whole.text()));
  }
  const std::int64_t head_width = whole[2] / heads;
  expect_whole_heads(context, layout, head_width);
  named_ = context.inputs() > 1;
  if (named_) expect_positions(context, layout);
  const Shape x = context.input(0).shape;
  time_ = x[1];
  device_ = &context.device();
  multiply_ = &device_->family<MultiplyOps>();
  table_.infer(*device_, options_.real("base"), head_width / 2, statistics(context.activations()));
  context.output(placed(context, layout));
}

void Rotary::expect_whole_heads(InferContext& context, const Layout& x, std::int64_t head_width) {
  if (sharding_of(x, 1) != nullptr) {
    refuse(context, "x must have whole sequences on every rank, found " + layout_text(x) +
                        "; put a repartition before the layer that shards samples or heads instead");
  }
  const DimSharding* heads = sharding_of(x, 2);
  if (heads == nullptr) return;
  for (const std::int64_t offset : heads->offsets) {
    if (offset % head_width == 0) continue;
    refuse(context, fmt::format("a rank must have whole heads, which are {} columns wide, found x of {}; "
                                "share x over axes whose ranks divide the heads",
                                head_width, layout_text(x)));
  }
}

void Rotary::expect_positions(InferContext& context, const Layout& x) {
  const Layout positions = expect_parts(context, 1);
  Layout expected{{x.shape[0], x.shape[1]}};
  if (!(positions.shape == expected.shape)) {
    refuse(context, fmt::format("expected one position per row of x {}, found positions {}", x.shape.text(),
                                positions.shape.text()));
  }
  if (const DimSharding* samples = sharding_of(x, 0)) expected.sharding.push_back(*samples);
  if (!(positions == expected)) {
    refuse(context, fmt::format("the positions must be sharded as the samples of x are, found {}, and x of "
                                "{}; put a repartition before one",
                                layout_text(positions), layout_text(x)));
  }
  context.keep_input(1);
}

TensorView Rotary::positions(RunContext& context) const {
  return named_ ? flat(context.input(1)) : TensorView();
}

void Rotary::forward(ForwardContext& context) {
  if (context.input(0).empty()) return;
  std::int64_t lines = time_;
  if (named_) {
    std::int32_t least = 0, most = 0;
    for (const std::int32_t position : stage_.read(*device_, context.input(1)).span<std::int32_t>())
      least = std::min(least, position), most = std::max(most, position);
    if (least < 0 || most >= kMostPositions) {
      fail_run(fmt::format("positions of a rotation must lie in 0 ... {}, found {}", kMostPositions - 1,
                           least < 0 ? least : most));
    }
    if (most >= time_) lines = std::min(kMostPositions, std::max<std::int64_t>(2 * time_, most + 1));
  }
  multiply_->rotate(matrix(context.input(0)), table_.lines(lines), positions(context), false,
                    matrix(context.output(0)), false);
}

std::int64_t Rotary::infer_step(InferContext& context, std::int64_t positions) {
  time_ = std::max(time_, positions);
  return 0;
}

void Rotary::step(ForwardContext& context, const Steps& steps) {
  if (named_ || context.input(0).empty()) return forward(context);
  multiply_->rotate(matrix(context.input(0)), table_.lines(time_), flat(steps.positions), false,
                    matrix(context.output(0)), false);
}

void Rotary::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  multiply_->rotate(matrix(context.output_gradient(0)), table_.lines(time_), positions(context), true,
                    matrix(dx.view), dx.accumulate);
}

}  // namespace tenon::nn
