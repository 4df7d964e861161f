// Refusals, apart from the sources that start kernels: their messages are formatted, and nvcc does not
// compile fmt.
#include "common.hpp"

#include "device_common/quantizers.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::device_arguments {

using cuda::kDeviceName;

void refuse_dtype(DType dtype, const char* where) {
  fail_config(fmt::format("device {}: {} does not take {}", kDeviceName, where, dtype_name(dtype)));
}

void refuse_view(const TensorView& view, DType dtype, std::int64_t elements, const char* where,
                 const char* name) {
  const char* const space = view.space == MemorySpace::kCuda ? "" : " in host memory";
  fail_run(fmt::format("device {}: {}: {} is {} {}{}{}, expected {} elements of {} in the device's memory",
                       kDeviceName, where, name, dtype_name(view.dtype), view.shape.text(), space,
                       view.data == nullptr ? " without memory" : "", elements, dtype_name(dtype)));
}

bool reaches(MemorySpace space) {
  return space == MemorySpace::kCuda;
}

const char* device_name() {
  return kDeviceName;
}

}  // namespace tenon::device_arguments

namespace tenon::cuda {

void refuse_memory(std::size_t bytes, std::size_t free, std::size_t total, const std::string& why) {
  const auto mib = [](std::size_t count) { return static_cast<double>(count) / (1 << 20); };
  fail_run(fmt::format(
      "device {}: out of memory: {} bytes ({:.1f} MiB) were asked for, {:.1f} of {:.1f} MiB are free{}; "
      "use a smaller data.batch, with more run.accumulate for the same mean, or a smaller model",
      kDeviceName, bytes, mib(bytes), mib(free), mib(total), why.empty() ? "" : " (" + why + ")"));
}

void check_quantize_spec(const QuantizeSpec& spec) {
  device_quantizers::check_quantizer(spec);
}

void check_mor_spec(const MorSpec& spec) {
  device_quantizers::check_mor(spec);
}

}  // namespace tenon::cuda
