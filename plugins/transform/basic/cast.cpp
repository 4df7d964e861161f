#include "cast.hpp"

#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <cmath>

namespace tenon::transform_basic {

Cast::Cast(const Options& options)
    : dtype_(options.choice("dtype", kTypes)),
      through_(options.has("through") ? options.choice("through", kTypes) : DType::kF64) {}

TransformedModel Cast::describe(std::span<StoredModel* const> sources) {
  const StoredModel& source = only_source(sources, kInfo.id);
  TransformedModel result{source.description(), parameters_of(source)};
  for (StoredTensor& tensor : result.parameters) {
    if (is_floating_point(tensor.dtype)) tensor.dtype = dtype_;
  }
  return result;
}

void Cast::run(std::span<StoredModel* const> sources, TensorWriter& out) {
  StoredModel& source = only_source(sources, kInfo.id);
  for (const StoredTensor& tensor : source.parameters()) {
    if (is_floating_point(tensor.dtype))
      convert(source, tensor, out);
    else
      copy_stored(source, tensor.name, tensor, out);
  }
}

void Cast::convert(StoredModel& source, const StoredTensor& tensor, TensorWriter& out) const {
  std::vector<std::byte> memory, result;
  std::vector<double> values;
  std::int64_t element = 0;
  for_each_slice(tensor.shape, kSliceElements, [&](const Shape& offset, const Shape& extents) {
    const std::int64_t count = extents.elements();
    memory.resize(dtype_bytes(tensor.dtype, count));
    result.resize(dtype_bytes(dtype_, count));
    const TensorView in{memory.data(), extents, tensor.dtype, MemorySpace::kHost};
    const TensorView piece{result.data(), extents, dtype_, MemorySpace::kHost};
    source.read(tensor.name, offset, in);
    values.clear();
    for_each_real(in, [&](double value) {
      const double once = rounded(value, through_);
      if (std::isfinite(value) && !std::isfinite(rounded(once, dtype_))) {
        const DType at = std::isfinite(once) ? dtype_ : through_;
        fail_run(
            fmt::format("transform cast: element {} of '{}' is {:g}, which {} cannot hold; choose a type of "
                        "larger range, "
                        "bf16 or f32",
                        element, tensor.name, value, dtype_name(at)));
      }
      values.push_back(once);
      ++element;
    });
    store(values, piece);
    out.write(piece);
  });
}

}  // namespace tenon::transform_basic
