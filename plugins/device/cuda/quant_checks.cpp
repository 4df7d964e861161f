// Refusals of quantizers and mixtures, apart from the sources that start kernels: their messages are
// formatted.
#include "quant.hpp"

#include "device_common/quantizers.hpp"

namespace tenon::cuda {

void check_quantize_spec(const QuantizeSpec& spec) {
  device_quantizers::check_quantizer(spec);
}

void check_mor_spec(const MorSpec& spec) {
  device_quantizers::check_mor(spec);
}

}  // namespace tenon::cuda
