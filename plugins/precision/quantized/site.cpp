// Preparation of a site when it is built, the division of its memory, and its three products.
#include "site.hpp"

#include <tenon/error.hpp>
#include <tenon/numerics.hpp>
#include <tenon/ops/elementwise.hpp>

#include <algorithm>

namespace tenon::quantized {

namespace {

constexpr Use kAllUses[kUses] = {Use::kFpropX, Use::kFpropW,  Use::kDgradDy,
                                 Use::kDgradW, Use::kWgradDy, Use::kWgradX};

struct Operands {
  Product product;
  Use a, b;
};
constexpr Operands kProducts[] = {{Product::kFprop, Use::kFpropX, Use::kFpropW},
                                  {Product::kDgrad, Use::kDgradDy, Use::kDgradW},
                                  {Product::kWgrad, Use::kWgradDy, Use::kWgradX}};

}  // namespace

QuantizedSite::QuantizedSite(const SiteInfo& info, SiteHost& host, const SitePlan& plan, SiteWatch* watch,
                             int handle)
    : name_{std::string(info.layer), plan.reason, info.site},
      n_(info.n),
      k_(info.k),
      chunk_(std::min(info.chunk, info.m)),
      rest_(info.m % std::max<std::int64_t>(chunk_, 1)),
      parameter_(info.parameter),
      plan_(plan),
      watch_(watch),
      handle_(handle),
      device_(host.device()),
      quant_(device_.family<QuantOps>()),
      elementwise_(device_.family<Elementwise>()),
      counter_(host.operands()),
      products_(info, device_),
      codes_(products_, device_) {
  for (const Use which : kAllUses) uses_.emplace_back(info, host, which, plan[which]);
  shared_weight_ = same_values(plan[Use::kFpropW], plan[Use::kDgradW]) && plan.late != Switch::kForward;
  // Layers that call in chunks, and convolutions, keep their input regardless of the site.
  keeps_codes_ = plan[Use::kWgradX].quantized() && plan.late != Switch::kAll && !plan.may_keep &&
                 info.chunk == info.m && info.module != "conv";
  shared_input_ = keeps_codes_ && same_values(plan[Use::kFpropX], plan[Use::kWgradX]);
  prepare_uses();
  prepare_codes(info.module == "head");
  prepare_products(info.module == "head");
  const auto delays = [&](Use a, Use b) { return plan[a].delayed || plan[b].delayed; };
  if (delays(Use::kFpropX, Use::kWgradX)) history_x_.emplace(host, "x", plan);
  if (delays(Use::kFpropW, Use::kDgradW)) history_w_.emplace(host, "w", plan);
  if (delays(Use::kDgradDy, Use::kWgradDy)) history_dy_.emplace(host, "dy", plan);
}

std::int64_t QuantizedSite::columns(Use which) const {
  return is_gradient(which) ? n_ : k_;
}

void QuantizedSite::prepare_uses() {
  for (const Use which : kAllUses) {
    if (is_weight(which)) {
      use(which).prepare(quant_, n_, columns(which), parameter_);
      continue;
    }
    for (const std::int64_t rows : {chunk_, rest_}) {
      if (rows > 0) use(which).prepare(quant_, rows, columns(which), DType::kBF16);
    }
  }
}

/// Returns the rows that wgrad sums over: both operands have as many as a rotated one.
std::int64_t QuantizedSite::padded(std::int64_t rows) const {
  return std::max(use(Use::kWgradDy).padded(rows), use(Use::kWgradX).padded(rows));
}

/// Calls `call` for every product in all the forms that calls may request, by rows of x and dy.
template <typename Call>
void QuantizedSite::for_each_form(bool head, Call call) const {
  for (const Operands& o : kProducts) {
    for (const std::int64_t rows : {chunk_, rest_}) {
      if (rows == 0) continue;
      const DType result = o.product == Product::kWgrad ? parameter_ : DType::kBF16;
      for (const bool accumulate : {false, true}) {
        if (o.product != Product::kFprop || !accumulate) call(o, rows, result, accumulate);
      }
      if (head && o.product == Product::kFprop) call(o, rows, DType::kF32, false);  // logits
    }
  }
}

void QuantizedSite::prepare_codes(bool head) {
  if (plan_.products == Multiplied::kValues || n_ == 0 || k_ == 0) return;
  for (const Operands& o : kProducts) {
    const OperandUse &a = use(o.a), &b = use(o.b);
    if (!a.quantized() && !b.quantized()) continue;
    std::string reason;
    std::vector<NativeGemms::Form> forms;
    for_each_form(head, [&](const Operands& of, std::int64_t rows, DType result, bool accumulate) {
      if (of.product != o.product) return;
      const bool inner = o.product == Product::kWgrad;
      if (inner && a.padded(rows) != b.padded(rows))
        reason = "one operand is rotated alone, and padded to " + std::to_string(padded(rows)) + " rows of " +
                 std::to_string(rows);
      forms.push_back({inner ? padded(rows) : rows, result, accumulate});
    });
    if (forms.empty()) continue;
    if (reason.empty()) reason = codes_.prepare(o.product, forms, a, b);
    if (!reason.empty() && plan_.products == Multiplied::kNative)
      fail_config("layer '" + name_.layer + "': products = \"native\", but " + std::string(gemm_of(o.a)) +
                  " cannot multiply codes: " + reason +
                  "; products = \"auto\" multiplies values there, \"values\" everywhere");
  }
}

bool QuantizedSite::takes_codes(Use which) const {
  return codes_.has(static_cast<Product>(index_of(which) / 2));
}

void QuantizedSite::prepare_products(bool head) {
  for_each_form(head, [&](const Operands& o, std::int64_t rows, DType result, bool accumulate) {
    const bool turns_plain = plan_.may_keep || plan_.late == Switch::kAll ||
                             (plan_.late == Switch::kForward && o.product == Product::kFprop);
    const bool scaled = use(o.a).quantized() || use(o.b).quantized();
    const std::int64_t length = o.product == Product::kWgrad ? padded(rows) : rows;
    if (!codes_.has(o.product)) {
      if (!accumulate && (use(o.a).plan().by_block() || use(o.b).plan().by_block()))
        products_.prepare_blocks(o.product, length);
      products_.prepare(o.product, length, result, accumulate, scaled);
    }
    if (turns_plain && scaled) products_.prepare(o.product, rows, result, accumulate, false);
  });
}

/// Plain activations are multiplied in place, unless the other operand is longer.
bool QuantizedSite::kept_in_scratch(Use which, std::int64_t rows, std::int64_t length) const {
  return !is_weight(which) && (use(which).quantized() || length > rows);
}

QuantizedSite::Scratch QuantizedSite::cut(TensorView memory, Use a, Use b, std::int64_t rows,
                                          std::size_t* used) const {
  Cutter cutter(memory);
  Scratch cut;
  std::size_t kernel = 0;
  for (const OperandUse& each : uses_) kernel = std::max(kernel, each.scratch_bytes());
  cut.products = cutter.bytes(std::max(products_.scratch_bytes(), codes_.scratch_bytes()));
  cut.kernel = cutter.bytes(kernel);
  const std::int64_t length = a == Use::kWgradDy ? padded(rows) : rows;
  // If x is kept as codes, measuring them needs their values too.
  if (a == Use::kFpropX && keeps_codes_)
    cut.kept = cutter.take(DType::kBF16, Shape{use(Use::kWgradX).padded(rows), k_});
  const auto operand = [&](Use which, TensorView& values, TensorView& scales, TensorView& codes) {
    if (kept_in_scratch(which, rows, length))
      values = cutter.take(DType::kBF16, Shape{length, columns(which)});
    scales = use(which).cut_scales(cutter, is_weight(which) ? n_ : rows);
    if (takes_codes(which) && !is_weight(which)) codes = cutter.bytes(use(which).code_bytes(rows));
  };
  operand(a, cut.a, cut.a_scales, cut.a_codes);
  operand(b, cut.b, cut.b_scales, cut.b_codes);
  if (used != nullptr) *used = cutter.used();
  return cut;
}

QuantizedSite::Kept QuantizedSite::cut_kept(TensorView memory, std::size_t* used) const {
  Cutter cutter(memory);
  Kept cut;
  cut.codes = cutter.bytes(use(Use::kWgradX).code_bytes(chunk_));
  cut.scales = use(Use::kWgradX).cut_scales(cutter, chunk_);
  if (used != nullptr) *used = cutter.used();
  return cut;
}

QuantizedSite::Weights QuantizedSite::cut_weights(TensorView memory, std::size_t* used) const {
  Cutter cutter(memory);
  Weights cut;
  const auto copy = [&](Use which, bool codes, Weight& weight) {
    weight.values = cutter.take(DType::kBF16, Shape{n_, k_});
    if (codes || use(which).plan().by_block()) weight.scales = use(which).cut_scales(cutter, n_);
    if (codes) weight.codes = cutter.bytes(use(which).code_bytes(n_));
  };
  const bool forward = takes_codes(Use::kFpropW), backward = takes_codes(Use::kDgradW);
  copy(Use::kFpropW, forward || (shared_weight_ && backward), cut.forward);
  if (!shared_weight_) copy(Use::kDgradW, backward, cut.backward);
  if (used != nullptr) *used = cutter.used();
  return cut;
}

SiteMemory QuantizedSite::memory() const {
  SiteMemory memory;
  for (const std::int64_t rows : {chunk_, rest_}) {
    if (rows == 0) continue;
    for (const auto& [a, b] : {std::pair{Use::kFpropX, Use::kFpropW}, std::pair{Use::kDgradDy, Use::kDgradW},
                               std::pair{Use::kWgradDy, Use::kWgradX}}) {
      std::size_t used = 0;
      cut({}, a, b, rows, &used);
      memory.scratch = std::max(memory.scratch, used);
    }
  }
  if (keeps_codes_) cut_kept({}, &memory.kept);
  cut_weights({}, &memory.persistent);
  return memory;
}

AmaxHistory* QuantizedSite::history(Use which) {
  if (!use(which).plan().delayed) return nullptr;
  const std::string_view operand = operand_of(which);
  return operand == "x" ? &*history_x_ : operand == "w" ? &*history_w_ : &*history_dy_;
}

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
