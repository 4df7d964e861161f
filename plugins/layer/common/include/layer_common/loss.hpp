// Base of loss layers: the option `metric` (<layer_common/options.hpp>), the seed, and the ability. A loss
// adds its passes.
#pragma once

#include <tenon/layer.hpp>
#include <tenon/options.hpp>

#include <string>
#include <string_view>

namespace tenon::layer_common {

class Loss : public Layer, public LossLayer {
 public:
  explicit Loss(const Options& options) : metric_(options.text("metric")) {}
  void* query(std::string_view interface_id) final {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) final { seed_ = seed; }
  std::string_view metric() const final { return metric_; }

 protected:
  /// Gradient of what is trained with respect to the sum, for this backward.
  double seed() const { return seed_; }

 private:
  std::string metric_;
  double seed_ = 1;
};

}  // namespace tenon::layer_common
