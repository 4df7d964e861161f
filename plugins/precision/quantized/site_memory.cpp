// Preparation of a site when it is built, and the division of its memory.
#include "site.hpp"

#include <tenon/error.hpp>
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
  return which == Use::kDgradDy || which == Use::kWgradDy ? n_ : k_;
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
    std::vector<CodeProducts::Form> forms;
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

}  // namespace tenon::quantized
