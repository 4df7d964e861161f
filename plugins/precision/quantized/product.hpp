// The three products of a site: on bf16 values with f32 accumulation, or on the codes and scales themselves.
#pragma once

#include "operand.hpp"

#include <tenon/ops/quant.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::quantized {

using Product = SiteProduct;

/// Bias and map of fprop.
struct Finish {
  bool bias = false;
  Epilogue epilogue = Epilogue::kNone;
};

/// One of the three products of a site on bf16 values, with f32 accumulation and tensor scales as alpha.
/// Operands with f32 block scales are multiplied block by block of the contracted dimension and summed in
/// f32; bias and map are applied once, at the end.
class Products {
 public:
  Products(const SiteInfo& info, Device& device);

  /// Prepares a product over `rows` rows (of x and dy). scaled: some operand is quantized.
  void prepare(Product product, std::int64_t rows, DType result, bool accumulate, bool scaled);
  /// The same for the sum over blocks.
  void prepare_blocks(Product product, std::int64_t rows);

  /// Returns the request to the device.
  GemmSpec spec(Product product, std::int64_t rows, DType result, bool accumulate, bool scaled) const;
  [[noreturn]] void fail_unprepared(std::int64_t rows, DType result) const;

  std::size_t scratch_bytes() const;  ///< maximum over the products; known when all are prepared
  void run(Product product, const Side& a, const Side& b, TensorView c, TensorView bias, bool accumulate,
           bool scaled, TensorView scratch);
  void run_blocks(Product product, const Side& a, const Side& b, TensorView c, TensorView bias,
                  bool accumulate, TensorView scratch);

 private:
  struct Prepared {
    Product product;
    std::int64_t rows, block;
    DType result;
    bool accumulate, scaled;
    std::unique_ptr<Gemm> gemm;
  };
  struct Extents {
    std::int64_t m, n, k;
    bool a_down, b_down;  ///< the contracted dimension is the stored rows
  };
  struct BlockMemory {
    TensorView gemm, a, b, part, sum;
  };

  Extents extents(Product product, std::int64_t rows) const;
  Gemm& find(Product product, std::int64_t rows, std::int64_t block, DType result, bool accumulate,
             bool scaled);
  Gemm& make(Product product, std::int64_t rows, std::int64_t block, DType result, bool accumulate,
             bool scaled);
  BlockMemory cut(TensorView memory, const Extents& e, std::size_t& used) const;
  TensorView columns(TensorView matrix, std::int64_t begin, std::int64_t end, TensorView memory);

  std::string layer_;
  std::int64_t n_, k_;
  Finish finish_;
  Device& device_;
  std::vector<Prepared> prepared_;
  std::vector<Extents> blocks_;
  std::size_t gemm_scratch_ = 0;
};

/// Products of a site on the codes and scales themselves, through the optional device family
/// `tenon.device.scaled/1`. Reports for each of the three whether the device has it in all the forms that
/// calls may request, and runs those that were prepared; nothing here multiplies values.
class NativeGemms {
 public:
  /// One form of a product: the rows of x and dy, the dtype of the result, and whether to accumulate.
  struct Form {
    std::int64_t rows;
    DType result;
    bool accumulate;
  };

  NativeGemms(const Products& products, Device& device);

  /// Prepares all forms and returns "", or prepares none and returns the reason why the device lacks some.
  std::string prepare(Product product, const std::vector<Form>& forms, const OperandUse& a,
                      const OperandUse& b);
  bool has(Product product) const { return has_[static_cast<std::size_t>(product)]; }
  /// Returns how many of the three products run on codes.
  int count() const { return has_[0] + has_[1] + has_[2]; }

  std::size_t scratch_bytes() const { return scratch_; }  ///< maximum over the products
  void run(Product product, const Side& a, const Side& b, TensorView c, TensorView bias, bool accumulate,
           TensorView scratch);

 private:
  struct Prepared {
    Product product;
    Form form;
    std::unique_ptr<ScaledProduct> run;
  };

  const Products& products_;
  ScaledProducts* family_;  ///< null: the device has none
  std::vector<Prepared> prepared_;
  bool has_[3] = {false, false, false};
  std::size_t scratch_ = 0;
};

}  // namespace tenon::quantized
