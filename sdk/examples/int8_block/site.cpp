// The three products of site.hpp.
#include "site.hpp"

#include "quantizer.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <algorithm>

namespace int8_block {

using tenon::DType;
using tenon::TensorView;

namespace {

constexpr std::size_t kLine = 64;  // operands of products should begin on a cache line

std::size_t line_up(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

std::size_t float_bytes(std::int64_t elements) {
  return line_up(elements * sizeof(float));
}

}  // namespace

Site::Site(const tenon::SiteInfo& info, tenon::SiteHost& host, std::int64_t block, Products products)
    : layer_(info.layer),
      n_(info.n),
      k_(info.k),
      rows_(std::min(info.chunk, info.m)),
      block_(block),
      bias_(info.bias),
      epilogue_(info.epilogue),
      products_(products),
      blas_(host.device().family<tenon::Blas>()),
      operands_(host.operands()) {
  // Everything that the declared chunks need is prepared now: a steady step allocates nothing.
  for (const std::int64_t rows : {rows_, info.m % std::max<std::int64_t>(rows_, 1)}) {
    if (rows == 0) continue;
    prepare(Product::kFprop, rows, false);
    for (const bool accumulate : {false, true}) {
      prepare(Product::kDgrad, rows, accumulate);
      prepare(Product::kWgrad, rows, accumulate);
    }
  }
  if (products_.fprop && products_.dgrad) along_n_.offset = float_bytes(n_ * k_);
}

/// Scratch: the quantized activations of one product, then what the product itself needs.
tenon::SiteMemory Site::memory() const {
  tenon::SiteMemory memory;
  memory.persistent =
      (products_.fprop ? float_bytes(n_ * k_) : 0) + (products_.dgrad ? float_bytes(n_ * k_) : 0);
  memory.scratch = scratch_ + (products_.wgrad ? float_bytes(rows_ * k_) + float_bytes(rows_ * n_)
                                               : float_bytes(rows_ * std::max(k_, n_)));
  return memory;
}

void Site::check(TensorView view) const {
  if (view.dtype == DType::kF32) return;
  tenon::fail_plugin("precision int8_block: layer '" + layer_ + "' passed " +
                     std::string(tenon::dtype_name(view.dtype)) +
                     " to a site whose operands and results are f32");
}

// [fprop]
void Site::fprop(const tenon::SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) {
  check(y);
  if (products_.fprop) {
    x = quantized(x, Along::kRows, call.scratch, scratch_);
    w = weight(call, w, Along::kRows, along_k_);
    operands_.count("int8_block", 2);
  }
  find(Product::kFprop, x.shape[0], false).run(x, w, y, bias, 1.0f, product_scratch(call));
}
// [/fprop]

void Site::dgrad(const tenon::SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) {
  check(dx);
  if (products_.dgrad) {
    dy = quantized(dy, Along::kRows, call.scratch, scratch_);
    w = weight(call, w, Along::kColumns, along_n_);
    operands_.count("int8_block", 2);
  }
  find(Product::kDgrad, dy.shape[0], accumulate).run(dy, w, dx, {}, 1.0f, product_scratch(call));
}

void Site::wgrad(const tenon::SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) {
  check(dw);
  if (products_.wgrad) {
    x = quantized(x, Along::kColumns, call.scratch, scratch_);
    dy = quantized(dy, Along::kColumns, call.scratch, scratch_ + float_bytes(rows_ * k_));
    operands_.count("int8_block", 2);
  }
  find(Product::kWgrad, dy.shape[0], accumulate).run(dy, x, dw, {}, 1.0f, product_scratch(call));
}

TensorView Site::product_scratch(const tenon::SiteCall& call) const {
  return {call.scratch.data, tenon::Shape{static_cast<std::int64_t>(scratch_)}, DType::kU8,
          call.scratch.space};
}

TensorView Site::quantized(TensorView x, Along along, TensorView memory, std::size_t offset) {
  check(x);
  TensorView values = x;
  values.data = memory.as<std::byte>() + offset;
  const auto quantize = along == Along::kRows ? quantize_along_rows : quantize_along_columns;
  const std::int64_t rows = x.shape[0];
  quantize(x.as<float>(), rows, rows == 0 ? 0 : x.elements() / rows, block_, values.as<float>());
  return values;
}

// [weight]
/// Quantized again when the weight was written to, or when another copy of it (an average, a teacher) is
/// passed.
TensorView Site::weight(const tenon::SiteCall& call, TensorView w, Along along, WeightCopy& copy) {
  if (copy.source == w.data && copy.version == call.weight_version) {
    TensorView values = w;
    values.data = call.persistent.as<std::byte>() + copy.offset;
    return values;
  }
  copy.source = w.data;
  copy.version = call.weight_version;
  return quantized(w, along, call.persistent, copy.offset);
}
// [/weight]

tenon::Gemm& Site::find(Product product, std::int64_t rows, bool accumulate) {
  for (Prepared& prepared : prepared_) {
    if (prepared.product == product && prepared.rows == rows && prepared.accumulate == accumulate)
      return *prepared.gemm;
  }
  tenon::fail_plugin("precision int8_block: layer '" + layer_ + "' called its site with " +
                     std::to_string(rows) + " rows, which is neither its chunk nor what is left of its rows");
}

void Site::prepare(Product product, std::int64_t rows, bool accumulate) {
  tenon::GemmSpec spec;
  spec.accumulate = accumulate;
  switch (product) {
    case Product::kFprop:  // y[m,n] = x[m,k] w[n,k]^T
      spec.m = rows, spec.n = n_, spec.k = k_, spec.transpose_b = true;
      spec.bias = bias_, spec.epilogue = epilogue_;
      break;
    case Product::kDgrad:  // dx[m,k] = dy[m,n] w[n,k]
      spec.m = rows, spec.n = k_, spec.k = n_;
      break;
    case Product::kWgrad:  // dw[n,k] = dy[m,n]^T x[m,k]
      spec.m = n_, spec.n = k_, spec.k = rows, spec.transpose_a = true;
      break;
  }
  prepared_.push_back({product, rows, accumulate, blas_.gemm(spec)});
  scratch_ = std::max(scratch_, line_up(prepared_.back().gemm->scratch_bytes()));
}

}  // namespace int8_block
