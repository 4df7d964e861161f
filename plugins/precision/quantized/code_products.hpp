// Products of a site on the codes and scales themselves, through the optional device family
// `tenon.device.scaled/1`. Reports for each of the three whether the device has it in all the forms that
// calls may request, and runs those that were prepared; nothing here multiplies values.
#pragma once

#include "operand.hpp"
#include "product.hpp"

#include <tenon/ops/quant.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::quantized {

class CodeProducts {
 public:
  /// One form of a product: the rows of x and dy, the dtype of the result, and whether to accumulate.
  struct Form {
    std::int64_t rows;
    DType result;
    bool accumulate;
  };

  CodeProducts(const Products& products, Device& device);

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
