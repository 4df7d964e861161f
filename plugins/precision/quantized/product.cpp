// Preparation and calls of the products, on values and on codes.
#include "product.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/norm.hpp>

#include <algorithm>

namespace tenon::quantized {

namespace {

constexpr std::int64_t kBlock = 128;

}  // namespace

Products::Products(const SiteInfo& info, Device& device)
    : layer_(info.layer), n_(info.n), k_(info.k), finish_{info.bias, info.epilogue}, device_(device) {}

Products::Extents Products::extents(Product product, std::int64_t rows) const {
  switch (product) {
    case Product::kFprop:  // y[m,n] = x[m,k] w[n,k]^T
      return {rows, n_, k_, false, false};
    case Product::kDgrad:  // dx[m,k] = dy[m,n] w[n,k]
      return {rows, k_, n_, false, true};
    default:  // dw[n,k] = dy[m,n]^T x[m,k]
      return {n_, k_, rows, true, true};
  }
}

GemmSpec Products::spec(Product product, std::int64_t rows, DType result, bool accumulate,
                        bool scaled) const {
  const Extents e = extents(product, rows);
  GemmSpec spec;
  spec.m = e.m, spec.n = e.n, spec.k = e.k;
  spec.transpose_a = e.a_down, spec.transpose_b = !e.b_down;
  spec.a = spec.b = DType::kBF16;
  spec.c = result;
  spec.accumulate = accumulate;
  spec.alpha = scaled;
  if (product == Product::kFprop) {
    spec.bias = finish_.bias;
    spec.epilogue = finish_.epilogue;
  }
  return spec;
}

Gemm& Products::make(Product product, std::int64_t rows, std::int64_t block, DType result, bool accumulate,
                     bool scaled) {
  for (Prepared& p : prepared_) {
    if (p.product == product && p.rows == rows && p.block == block && p.result == result &&
        p.accumulate == accumulate && p.scaled == scaled)
      return *p.gemm;
  }
  GemmSpec wanted = spec(product, rows, result, accumulate, scaled);
  if (block != 0) {  // bias and map follow the sum over blocks
    wanted.k = block;
    wanted.bias = false;
    wanted.epilogue = Epilogue::kNone;
  }
  prepared_.push_back(
      {product, rows, block, result, accumulate, scaled, device_.family<Blas>().gemm(wanted)});
  gemm_scratch_ = std::max(gemm_scratch_, prepared_.back().gemm->scratch_bytes());
  return *prepared_.back().gemm;
}

Gemm& Products::find(Product product, std::int64_t rows, std::int64_t block, DType result, bool accumulate,
                     bool scaled) {
  for (Prepared& p : prepared_) {
    if (p.product == product && p.rows == rows && p.block == block && p.result == result &&
        p.accumulate == accumulate && p.scaled == scaled)
      return *p.gemm;
  }
  fail_unprepared(rows, result);
}

void Products::fail_unprepared(std::int64_t rows, DType result) const {
  fail_plugin("layer '" + layer_ + "' asks its site for a product over " + std::to_string(rows) +
              " rows with a result in " + std::string(dtype_name(result)) +
              ", which was not prepared: rows are the site's chunk or what is left of its rows");
}

void Products::prepare(Product product, std::int64_t rows, DType result, bool accumulate, bool scaled) {
  make(product, rows, 0, result, accumulate, scaled);
}

void Products::prepare_blocks(Product product, std::int64_t rows) {
  const Extents e = extents(product, rows);
  if (e.k >= kBlock) make(product, rows, kBlock, DType::kF32, false, true);
  if (e.k % kBlock != 0) make(product, rows, e.k % kBlock, DType::kF32, false, true);
  blocks_.push_back(e);
}

std::size_t Products::scratch_bytes() const {
  std::size_t most = gemm_scratch_;
  for (const Extents& e : blocks_) {
    std::size_t used = 0;
    cut({}, e, used);
    most = std::max(most, used);
  }
  return most;
}

Products::BlockMemory Products::cut(TensorView memory, const Extents& e, std::size_t& used) const {
  Cutter cutter(memory);
  BlockMemory cut;
  const std::int64_t block = std::min(kBlock, e.k);
  cut.gemm = cutter.bytes(gemm_scratch_);
  cut.a = cutter.take(DType::kBF16, Shape{e.a_down ? 0 : e.m * block});
  cut.b = cutter.take(DType::kBF16, Shape{e.b_down ? 0 : e.n * block});
  cut.part = cutter.take(DType::kF32, Shape{e.m, e.n});
  cut.sum = cutter.take(DType::kF32, Shape{e.m, e.n});
  used = cutter.used();
  return cut;
}

void Products::run(Product product, const Side& a, const Side& b, TensorView c, TensorView bias,
                   bool accumulate, bool scaled, TensorView scratch) {
  const std::int64_t rows = a.values.shape[0];
  find(product, rows, 0, c.dtype, accumulate, scaled)
      .run(a.values, b.values, c, bias, scaled ? a.scale * b.scale : 1.0f, scratch);
}

/// Copies columns [begin, end) of a matrix, row by row: products read whole matrices.
TensorView Products::columns(TensorView matrix, std::int64_t begin, std::int64_t end, TensorView memory) {
  const std::int64_t rows = matrix.shape[0], width = matrix.elements() / rows, count = end - begin;
  if (count == width) return matrix;
  const std::size_t size = dtype_bytes(matrix.dtype, 1);
  TensorView packed{memory.data, Shape{rows, count}, matrix.dtype, memory.space};
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto from = static_cast<std::size_t>(row * width + begin) * size;
    const auto to = static_cast<std::size_t>(row * count) * size;
    device_.copy({matrix.as<std::byte>() + from, Shape{count}, matrix.dtype, matrix.space},
                 {packed.as<std::byte>() + to, Shape{count}, matrix.dtype, packed.space});
  }
  return packed;
}

void Products::run_blocks(Product product, const Side& a, const Side& b, TensorView c, TensorView bias,
                          bool accumulate, TensorView scratch) {
  const std::int64_t rows = a.values.shape[0];
  const Extents e = extents(product, rows);
  Elementwise& elementwise = device_.family<Elementwise>();
  QuantOps& quant = device_.family<QuantOps>();
  std::size_t used = 0;
  BlockMemory memory = cut(scratch, e, used);
  const bool direct = c.dtype == DType::kF32;
  const TensorView sum = direct ? c : memory.sum;
  if (accumulate && !direct) elementwise.convert(c, sum);

  // One block along the contracted dimension: a row or a column of the matrix of scales.
  const auto scales = [](const Side& side, bool down, std::int64_t block) {
    if (side.block_scales.empty()) return ProductScales{};
    const std::int64_t width = side.block_scales.shape[1];
    return down ? ProductScales{side.block_scales, side.across, block * width, 1}
                : ProductScales{side.block_scales, side.across, block, width};
  };
  const auto part = [&](const Side& side, bool down, std::int64_t begin, std::int64_t end, TensorView room) {
    return down ? side.values.rows(begin, end) : columns(side.values, begin, end, room);
  };
  for (std::int64_t begin = 0; begin < e.k; begin += kBlock) {
    const std::int64_t end = std::min(e.k, begin + kBlock), index = begin / kBlock;
    find(product, rows, end - begin, DType::kF32, false, true)
        .run(part(a, e.a_down, begin, end, memory.a), part(b, e.b_down, begin, end, memory.b), memory.part,
             {}, a.scale * b.scale, memory.gemm);
    quant.scale_product(memory.part, scales(a, e.a_down, index), scales(b, e.b_down, index), sum,
                        accumulate || index > 0);
  }
  if (product == Product::kFprop) {
    if (finish_.bias) elementwise.add_bias(sum, bias, sum);
    if (finish_.epilogue != Epilogue::kNone)
      device_.family<NeuralOps>().activation(finish_.epilogue, sum, sum);
  }
  if (!direct) elementwise.convert(sum, c);
}

NativeGemms::NativeGemms(const Products& products, Device& device)
    : products_(products), family_(static_cast<ScaledProducts*>(device.query(ScaledProducts::kId))) {}

std::string NativeGemms::prepare(Product product, const std::vector<Form>& forms, const OperandUse& a,
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

void NativeGemms::run(Product product, const Side& a, const Side& b, TensorView c, TensorView bias,
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
