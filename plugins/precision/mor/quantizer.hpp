// Interface `tenon.quantizer/1`, format `mor`: one matrix on the host, element by element, with codes and
// scales of the E4M3 attempt.
#pragma once

#include "settings.hpp"

#include <tenon/sdk/quantizer.hpp>

namespace tenon::mor {

class MorQuantizer final : public Quantizer {
 public:
  explicit MorQuantizer(const Settings& settings) : settings_(settings) {}

  std::span<const std::string_view> formats() const override;
  QuantizeShape shape(const QuantizeRequest& request) const override;
  QuantizeReport run(const QuantizeRequest& request, Device& device, TensorView x, TensorView codes,
                     TensorView block_scales, TensorView dequantized) override;

 private:
  const Settings& settings_;
};

}  // namespace tenon::mor
