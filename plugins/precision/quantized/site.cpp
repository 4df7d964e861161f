// The three products of site.hpp.
#include "site.hpp"

#include <tenon/error.hpp>
#include <tenon/numerics.hpp>
#include <tenon/ops/elementwise.hpp>

#include <algorithm>

namespace tenon::quantized {
namespace {

std::int64_t width(TensorView matrix) {
  return matrix.elements() / std::max<std::int64_t>(matrix.shape[0], 1);
}

/// Zeroes the rows of a matrix from `rows` on.
void zero_tail(Elementwise& elementwise, TensorView values, std::int64_t rows) {
  if (values.shape[0] > rows) elementwise.fill(values.rows(rows, values.shape[0]), 0.0);
}

}  // namespace

bool QuantizedSite::plain(Use which, const SiteCall& call) const {
  return !use(which).quantized() || plan_.switched(which, call.step) ||
         (plan_.may_keep && watch_ != nullptr && watch_->kept(handle_));
}

void QuantizedSite::fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) {
  const Scratch scratch = cut(call.scratch, Use::kFpropX, Use::kFpropW, x.shape[0], nullptr);
  const Kept kept = keeps_codes_ ? cut_kept(call.kept, nullptr) : Kept{};
  const bool shares = shared_input_ && call.training && !plain(Use::kFpropX, call);
  Side a = plain(Use::kFpropX, call) ? plain_side(x, x)
                                     : rounded(call, Use::kFpropX, x, scratch, shares ? &kept : nullptr);
  if (shares) kept_scale_ = a.scale;
  const Side b = weight(call, Use::kFpropW, w, scratch);
  multiply(call, Product::kFprop, Use::kFpropX, a, Use::kFpropW, b, y, bias, false, scratch.products);
  if (keeps_codes_ && call.training && !shares) keep_input(call, x, scratch);
}

void QuantizedSite::dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) {
  const Scratch scratch = cut(call.scratch, Use::kDgradDy, Use::kDgradW, dy.shape[0], nullptr);
  const Side a =
      plain(Use::kDgradDy, call) ? plain_side(dy, dy) : rounded(call, Use::kDgradDy, dy, scratch, nullptr);
  const Side b = weight(call, Use::kDgradW, w, scratch);
  multiply(call, Product::kDgrad, Use::kDgradDy, a, Use::kDgradW, b, dx, {}, accumulate, scratch.products);
}

void QuantizedSite::wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) {
  const std::int64_t rows = dy.shape[0];
  const bool plain_dy = plain(Use::kWgradDy, call), plain_x = plain(Use::kWgradX, call);
  Scratch scratch = cut(call.scratch, Use::kWgradDy, Use::kWgradX, rows, nullptr);
  if (plain_dy && plain_x) {  // no side is rotated
    scratch.a = dy, scratch.b = x;
  }
  const Side a = plain_dy ? plain_side(dy, scratch.a.data == nullptr ? dy : scratch.a)
                          : rounded(call, Use::kWgradDy, dy, scratch, nullptr);
  Side b;
  if (plain_x) {
    b = plain_side(x, scratch.b.data == nullptr ? x : scratch.b);
  } else if (!keeps_codes_) {
    b = rounded(call, Use::kWgradX, x, scratch, nullptr);
  } else {
    const Kept kept = cut_kept(call.kept, nullptr);
    const OperandUse& of_x = use(Use::kWgradX);
    b.values = scratch.b;
    b.scale = kept_scale_;
    b.across = of_x.plan().format->square ? of_x.plan().format->block : 1;
    if (takes_codes(Use::kWgradX)) {
      b.stored = {kept.codes, kept.scales};
    } else {
      if (of_x.plan().by_block()) b.block_scales = kept.scales;
      TensorView own = scratch.b;
      own.shape[0] = of_x.padded(rows);
      use(Use::kWgradX).decode(rows, kept.codes, kept.scales, own);
      zero_tail(elementwise_, scratch.b, own.shape[0]);
    }
  }
  multiply(call, Product::kWgrad, Use::kWgradDy, a, Use::kWgradX, b, dw, {}, accumulate, scratch.products);
}

Side QuantizedSite::plain_side(TensorView x, TensorView values) {
  if (x.dtype != DType::kBF16)
    fail_plugin("layer '" + name_.layer + "' passed " + std::string(dtype_name(x.dtype)) +
                " to a site whose activations are bf16; convert before the call");
  Side side;
  side.values = values;
  if (values.data == x.data) return side;
  TensorView own = values;
  own.shape = Shape{x.shape[0], width(x)};
  device_.copy({x.data, own.shape, x.dtype, x.space}, own);
  zero_tail(elementwise_, values, x.shape[0]);
  return side;
}

Side QuantizedSite::rounded(const SiteCall& call, Use which, TensorView x, const Scratch& scratch,
                            const Kept* kept) {
  const bool first = which != Use::kWgradX, codes = takes_codes(which);
  const TensorView values = first ? scratch.a : scratch.b;
  OperandUse& operand = use(which);
  Side side;
  side.values = values;
  side.across = operand.plan().format->square ? operand.plan().format->block : 1;
  QuantizeOutput out;
  // A product of codes needs values only for reports.
  const bool writes_values = !codes || call.numerics != nullptr;
  if (writes_values) {
    out.values = values;
    out.values.shape[0] = operand.padded(x.shape[0]);
  }
  if (kept != nullptr) {
    out.codes = kept->codes;
    out.scales = kept->scales;
  } else {
    if (codes) out.codes = first ? scratch.a_codes : scratch.b_codes;
    if (codes || operand.plan().by_block() || call.numerics != nullptr)
      out.scales = first ? scratch.a_scales : scratch.b_scales;
  }
  x.shape = Shape{x.shape[0], width(x)};
  side.scale = operand.run(call, name_, x, out, scratch.kernel, history(which), nullptr);
  if (codes) side.stored = {out.codes, out.scales};
  if (operand.plan().by_block()) side.block_scales = out.scales;
  if (writes_values) zero_tail(elementwise_, values, out.values.shape[0]);
  return side;
}

void QuantizedSite::keep_input(const SiteCall& call, TensorView x, const Scratch& scratch) {
  const Kept kept = cut_kept(call.kept, nullptr);
  QuantizeOutput out;
  if (call.numerics != nullptr) out.values = scratch.kept;
  out.codes = kept.codes;
  out.scales = kept.scales;
  x.shape = Shape{x.shape[0], width(x)};
  kept_scale_ = use(Use::kWgradX).run(call, name_, x, out, scratch.kernel, history(Use::kWgradX), nullptr);
}

/// Rebuilds the copy when the weight was written to, or when another one (an average, a teacher) is passed.
Side QuantizedSite::weight(const SiteCall& call, Use which, TensorView w, const Scratch& scratch) {
  const bool second = which == Use::kDgradW && !shared_weight_;
  const Weights memory = cut_weights(call.persistent, nullptr);
  WeightCopy& copy = second ? backward_ : forward_;
  OperandUse& operand = use(which);
  const bool is_plain = plain(which, call);
  const bool measures = !is_plain && plan_.may_keep && call.training && which == Use::kFpropW &&
                        watch_ != nullptr && watch_->measures(call.step);
  const bool reports = !is_plain && call.numerics != nullptr && call.first_row == 0;
  const bool known = copy.source == w.data && copy.version == call.weight_version && copy.plain == is_plain &&
                     (!operand.plan().delayed || (copy.slot == call.step && copy.training == call.training));
  const Weight& own = second ? memory.backward : memory.forward;
  Side side;
  side.values = own.values;
  if (!is_plain) side.stored = {own.codes, own.scales};
  if (!is_plain && operand.plan().by_block()) {
    side.block_scales = own.scales;
    side.across = operand.plan().format->square ? operand.plan().format->block : 1;
  }
  if (!known || measures || reports) {
    if (is_plain) {
      elementwise_.convert(w, side.values);
      copy.scale = 1;
    } else {
      SiteCall quiet = call;
      if (!reports) quiet.numerics = nullptr;
      QuantizeOutput out;
      out.codes = own.codes;
      out.scales = own.scales.empty() && reports ? scratch.b_scales : own.scales;
      const bool multiplied = (!second && !takes_codes(Use::kFpropW)) ||
                              ((second || shared_weight_) && !takes_codes(Use::kDgradW));
      if (multiplied || measures || reports) out.values = side.values;
      QuantizeStats stats;
      copy.scale =
          operand.run(quiet, name_, w, out, scratch.kernel, history(which), measures ? &stats : nullptr);
      if (measures) watch_->measured(handle_, stats.signal > 0 ? stats.noise / stats.signal : 0);
    }
    copy.source = w.data;
    copy.version = call.weight_version;
    copy.slot = call.step;
    copy.training = call.training;
    copy.plain = is_plain;
  }
  side.scale = copy.scale;
  return side;
}

void QuantizedSite::multiply(const SiteCall& call, Product product, Use a_use, const Side& a, Use b_use,
                             const Side& b, TensorView c, TensorView bias, bool accumulate,
                             TensorView scratch) {
  const bool plain_a = plain(a_use, call), plain_b = plain(b_use, call);
  counter_.count(plain_a ? bf16_format().name : use(a_use).plan().format->name, 1);
  counter_.count(plain_b ? bf16_format().name : use(b_use).plan().format->name, 1);
  if (!plain_a && !plain_b && takes_codes(a_use)) {
    codes_.run(product, a, b, c, bias, accumulate, scratch);
  } else if (a.block_scales.empty() && b.block_scales.empty()) {
    products_.run(product, a, b, c, bias, accumulate, !(plain_a && plain_b), scratch);
  } else {
    products_.run_blocks(product, a, b, c, bias, accumulate, scratch);
  }
}

}  // namespace tenon::quantized
