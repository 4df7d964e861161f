// Preparation and calls of code_products.hpp.
#include "code_products.hpp"

#include <tenon/error.hpp>

#include <algorithm>

namespace tenon::quantized {

CodeProducts::CodeProducts(const Products& products, Device& device)
    : products_(products), family_(static_cast<ScaledProducts*>(device.query(ScaledProducts::kId))) {}

std::string CodeProducts::prepare(Product product, const std::vector<Form>& forms, const OperandUse& a,
                                  const OperandUse& b) {
  if (!a.quantized() || !b.quantized())
    return std::string(a.quantized() ? b.plan().format->name : a.plan().format->name) +
           " has no codes: both operands must be quantized";
  if (family_ == nullptr)
    return std::string("the device has no products of codes (") + ScaledProducts::kId + ")";
  std::vector<ScaledProductSpec> specs;
  for (const Form& form : forms) {
    specs.push_back(
        {products_.spec(product, form.rows, form.result, form.accumulate, true), a.scaled(), b.scaled()});
    if (std::string reason = family_->refusal(specs.back()); !reason.empty()) return reason;
  }
  for (std::size_t i = 0; i < forms.size(); ++i) {
    prepared_.push_back({product, forms[i], family_->prepare(specs[i])});
    scratch_ = std::max(scratch_, prepared_.back().run->scratch_bytes());
  }
  has_[static_cast<std::size_t>(product)] = true;
  return "";
}

void CodeProducts::run(Product product, const Side& a, const Side& b, TensorView c, TensorView bias,
                       bool accumulate, TensorView scratch) {
  const std::int64_t rows = a.values.shape[0];
  for (Prepared& p : prepared_) {
    if (p.product == product && p.form.rows == rows && p.form.result == c.dtype &&
        p.form.accumulate == accumulate)
      return p.run->run(a.stored, b.stored, c, bias, a.scale * b.scale, scratch);
  }
  products_.fail_unprepared(rows, c.dtype);
}

}  // namespace tenon::quantized
