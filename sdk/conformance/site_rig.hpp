// One linear site of the precision under test, called as the executor calls it: memory of exactly the size
// that the site asked for, with guard bytes on both sides, and chunks of rows. Exact products to compare
// with.
#pragma once

#include "subject.hpp"

#include <tenon/precision.hpp>
#include <tenon/random.hpp>

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace tenon::conformance {

struct SiteShape {
  std::int64_t m = 0, n = 0, k = 0, chunk = 0;
  int layer_index = 0, layer_count = 4;
  bool bias = false;
};
std::string text_of(const SiteShape& shape);

/// Rectangles that fit blocks of 16 and of 32, and such that fit nothing; whole and in chunks.
extern const std::vector<SiteShape> kSiteShapes;

class SiteRig final : public SiteHost, public OperandCounter {
 public:
  SiteRig(Subject& subject, Precision& precision, const SiteShape& shape);
  ~SiteRig() override;
  SiteRig(const SiteRig&) = delete;
  SiteRig& operator=(const SiteRig&) = delete;

  /// Null if the policy left the product to the core.
  LinearSite* site() const { return site_.get(); }
  Device& device() override { return device_; }
  OperandCounter& operands() override { return *this; }
  RandomKey rounding_key() override { return random_key(1, "rounding"); }
  TensorView state(std::string_view name, DType dtype, const Shape& shape) override;
  void count(std::string_view, std::int64_t operands) override { counted_ += operands; }
  std::int64_t counted() const { return counted_; }

  void set_weight(const std::vector<double>& values);  ///< raises its version
  void set(TensorView view, const std::vector<double>& values);
  std::vector<double> get(TensorView view) const;

  /// Runs all rows, chunk by chunk. Outputs start as NaN, or as `base` if the product is added to them.
  std::vector<double> fprop();
  std::vector<double> dgrad(const std::vector<double>* base = nullptr);
  std::vector<double> wgrad(const std::vector<double>* base = nullptr);
  std::vector<double> exact_fprop() const;
  std::vector<double> exact_dgrad() const;
  std::vector<double> exact_wgrad() const;

  /// Returns the name of memory whose guard bytes have changed; "" = none.
  std::string spilled() const;

  TensorView x, w, bias, y, dy, dx, dw;

 private:
  struct Guarded {
    std::string name;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  TensorView guard(std::byte* memory) const;
  TensorView allocate(const std::string& name, DType dtype, const Shape& shape);
  template <typename Call>
  void in_chunks(Call&& call);

  Device& device_;
  SiteShape shape_;
  std::vector<Guarded> memory_;
  std::deque<std::string> state_names_;
  std::map<std::string, TensorView> states_;
  std::unique_ptr<LinearSite> site_;
  SiteCall call_;
  std::int64_t counted_ = 0;
};

/// |found - expected| / |expected| in the Frobenius norm; infinite if anything is not finite.
double frobenius_error(const std::vector<double>& found, const std::vector<double>& expected);

}  // namespace tenon::conformance
