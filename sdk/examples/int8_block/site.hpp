// One linear site under int8_block. A product sums over k in fprop, n in dgrad and m in wgrad, and both of
// its operands are quantized along that dimension; so a weight has two quantized copies, each made once per
// version of the weight. The executor keeps x, and wgrad quantizes it again along another dimension. If a
// layer calls in chunks of rows, blocks begin with each chunk.
#pragma once

#include "int8_block.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace int8_block {

class Site final : public tenon::LinearSite {
 public:
  Site(const tenon::SiteInfo& info, tenon::SiteHost& host, std::int64_t block, Products products);

  tenon::SiteMemory memory() const override;
  bool reads_input() const override { return true; }
  void fprop(const tenon::SiteCall& call, tenon::TensorView x, tenon::TensorView w, tenon::TensorView bias,
             tenon::TensorView y) override;
  void dgrad(const tenon::SiteCall& call, tenon::TensorView dy, tenon::TensorView w, tenon::TensorView dx,
             bool accumulate) override;
  void wgrad(const tenon::SiteCall& call, tenon::TensorView x, tenon::TensorView dy, tenon::TensorView dw,
             bool accumulate) override;

 private:
  enum class Product : std::uint8_t { kFprop, kDgrad, kWgrad };
  enum class Along : std::uint8_t { kRows, kColumns };
  /// A prepared product for a number of rows: a layer's chunks have at most two sizes.
  struct Prepared {
    Product product;
    std::int64_t rows;
    bool accumulate;
    std::unique_ptr<tenon::Gemm> gemm;
  };
  /// A quantized weight, and the weight that it was made from.
  struct WeightCopy {
    std::size_t offset = 0;  ///< in the site's persistent memory
    const void* source = nullptr;
    std::uint64_t version = 0;
  };

  void prepare(Product product, std::int64_t rows, bool accumulate);
  tenon::Gemm& find(Product product, std::int64_t rows, bool accumulate);
  tenon::TensorView quantized(tenon::TensorView x, Along along, tenon::TensorView memory, std::size_t offset);
  tenon::TensorView weight(const tenon::SiteCall& call, tenon::TensorView w, Along along, WeightCopy& copy);
  tenon::TensorView product_scratch(const tenon::SiteCall& call) const;
  void check(tenon::TensorView view) const;

  std::string layer_;
  std::int64_t n_, k_, rows_, block_;
  bool bias_;
  tenon::Epilogue epilogue_;
  Products products_;
  tenon::Blas& blas_;
  tenon::OperandCounter& operands_;
  std::vector<Prepared> prepared_;
  std::size_t scratch_ = 0;  ///< needed by the products
  WeightCopy along_k_, along_n_;
};

}  // namespace int8_block
