// The three products of site.hpp.
#include "site.hpp"

#include <algorithm>

namespace tenon::mor {
namespace {

std::size_t bf16_bytes(std::int64_t elements) {
  return line_up(static_cast<std::size_t>(elements) * 2);
}

TensorView part(TensorView memory, std::size_t offset, DType dtype, const Shape& shape) {
  return {memory.as<std::byte>() + offset, shape, dtype, memory.space};
}

}  // namespace

MorSite::MorSite(const SiteInfo& info, SiteHost& host, const Settings& settings, Ledger& ledger)
    : settings_(settings),
      ledger_(ledger),
      layer_(info.layer),
      site_(info.site),
      n_(info.n),
      k_(info.k),
      device_(host.device()),
      counter_(host.operands()),
      decisions_(host),
      products_(info, host.device().family<Blas>(), DType::kBF16),
      shares_(settings.partition.across == settings.partition.along) {
  MorOps& mor = host.device().family<MorOps>();
  QuantOps& quant = host.device().family<QuantOps>();
  Elementwise& elementwise = host.device().family<Elementwise>();
  operands_.reserve(kUses);
  for (int u = 0; u < kUses; ++u) {
    const Use use = static_cast<Use>(u);
    Operand& made =
        operands_.emplace_back(mor, quant, elementwise, settings, along_rows(use), is_weight(use));
    if (is_weight(use)) {
      made.prepare(n_, k_, info.parameter);
      continue;
    }
    const std::int64_t rows = products_.rows();
    for (const std::int64_t count : {rows, rows > 0 ? info.m % rows : 0})
      if (count > 0) made.prepare(count, is_gradient(use) ? n_ : k_, info.activation);
  }
  for (int copy = 0; copy < (shares_ ? 1 : 2); ++copy) {
    copies_[copy].values = persistent_;
    copies_[copy].choices = persistent_ + bf16_bytes(n_ * k_);
    const Operand& weights = operand(copy == 0 ? Use::kFpropW : Use::kDgradW);
    persistent_ = copies_[copy].choices + line_up(static_cast<std::size_t>(weights.blocks()));
  }
  std::size_t decide = 0, choices = 0;
  for (const Operand& each : operands_) {
    decide = std::max(decide, line_up(each.scratch_bytes()));
    choices = std::max(choices, line_up(static_cast<std::size_t>(each.blocks())));
  }
  decide_at_ = products_.scratch_bytes();
  first_at_ = decide_at_ + decide;
  second_at_ = first_at_ + bf16_bytes(products_.rows() * std::max(n_, k_));
  choices_at_ = second_at_ + bf16_bytes(products_.rows() * n_);
  scratch_ = choices_at_ + choices;
  ledger_.add(site_ == 0 ? layer_ : layer_ + "#" + std::to_string(site_), &decisions_);
}

MorSite::~MorSite() {
  ledger_.remove(&decisions_);
}

SiteMemory MorSite::memory() const {
  SiteMemory memory;
  memory.persistent = persistent_;
  memory.scratch = scratch_;
  return memory;
}

void MorSite::fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) {
  w = weight(call, Use::kFpropW, w);
  x = decided(call, Use::kFpropX, x, first_at_);
  products_.run(SiteProduct::kFprop, x, w, y, bias, false, call.scratch);
}

void MorSite::dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) {
  w = weight(call, Use::kDgradW, w);
  dy = decided(call, Use::kDgradDy, dy, first_at_);
  products_.run(SiteProduct::kDgrad, dy, w, dx, {}, accumulate, call.scratch);
}

void MorSite::wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) {
  x = decided(call, Use::kWgradX, x, first_at_);
  dy = decided(call, Use::kWgradDy, dy, second_at_);
  products_.run(SiteProduct::kWgrad, dy, x, dw, {}, accumulate, call.scratch);
}

TensorView MorSite::decided(const SiteCall& call, Use use, TensorView x, std::size_t offset) {
  Operand& own = operand(use);
  const TensorView values = part(call.scratch, offset, DType::kBF16, x.shape);
  const TensorView choices = part(call.scratch, choices_at_, DType::kU8, Shape{own.blocks_of(x.shape[0])});
  const TensorView memory =
      part(call.scratch, decide_at_, DType::kU8, Shape{static_cast<std::int64_t>(first_at_ - decide_at_)});
  record(call, use, x, values, choices, own.run(x, values, choices, memory));
  return values;
}

/// Rebuilds the copy when the weight was written to, or when another one (an average, a teacher) is passed.
TensorView MorSite::weight(const SiteCall& call, Use use, TensorView w) {
  Copy& copy = copies_[use == Use::kDgradW && !shares_ ? 1 : 0];
  Operand& own = operand(shares_ ? Use::kFpropW : use);
  const TensorView values = part(call.persistent, copy.values, DType::kBF16, w.shape);
  const TensorView choices = part(call.persistent, copy.choices, DType::kU8, Shape{own.blocks()});
  if (copy.version != call.weight_version || copy.source != w.data) {
    const TensorView memory =
        part(call.scratch, decide_at_, DType::kU8, Shape{static_cast<std::int64_t>(first_at_ - decide_at_)});
    copy.verdict = own.run(w, values, choices, memory);
    copy.version = call.weight_version;
    copy.source = w.data;
  }
  record(call, use, w, values, choices, copy.verdict);
  return values;
}

void MorSite::record(const SiteCall& call, Use use, TensorView x, TensorView values, TensorView choices,
                     const Verdict& verdict) {
  counter_.count(kFormatNames[verdict.choice], 1);
  if (call.training) decisions_.add(use, verdict);
  if (call.numerics == nullptr) return;
  const std::string reason = reason_of(settings_, verdict);
  OperandNumerics seen = operand_place(call, layer_, site_, gemm_of(use), operand_of(use));
  seen.format = kFormatNames[verdict.choice];
  seen.reason = reason;
  seen.input = input_here_.read(device_, x);
  seen.stats = measure_rounding(seen.input, values_here_.read(device_, values));
  seen.choices = choices_here_.read(device_, choices);
  seen.block_rows = operand(use).block_rows();
  seen.block_columns = operand(use).block_columns();
  call.numerics->add(seen);
}

}  // namespace tenon::mor
