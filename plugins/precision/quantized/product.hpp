// One of the three products of a site on bf16 values, with f32 accumulation and tensor scales as alpha.
// Operands with f32 block scales are multiplied block by block of the contracted dimension and summed in f32;
// bias and map are applied once, at the end.
#pragma once

#include "memory.hpp"
#include "operand.hpp"

#include <memory>
#include <vector>

namespace tenon::quantized {

enum class Product : std::uint8_t { kFprop, kDgrad, kWgrad };

/// Bias and map of fprop.
struct Finish {
  bool bias = false;
  Epilogue epilogue = Epilogue::kNone;
};

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

}  // namespace tenon::quantized
