// Statistics in float64 for every type of value.
#include "standardise.hpp"

#include <cstring>

namespace tenon::npy {
namespace {

/// Calls visit(value) for each value; if `values` is writable, the result replaces the value.
template <typename T, typename Byte, typename Visit>
void each(std::span<Byte> values, Visit visit) {
  for (std::size_t at = 0; at < values.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, values.data() + at, sizeof value);
    const T changed = static_cast<T>(visit(static_cast<double>(value)));
    if constexpr (!std::is_const_v<Byte>) std::memcpy(values.data() + at, &changed, sizeof changed);
  }
}

}  // namespace

void Moments::add(DType dtype, std::span<const std::byte> values) {
  const auto take = [this](double value) {
    if (std::isnan(value)) return value;
    ++count_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
    return value;
  };
  dtype == DType::kF64 ? each<double>(values, take) : each<float>(values, take);
}

void standardise(DType dtype, std::span<std::byte> values, double offset, double scale) {
  const auto change = [&](double value) { return (value - offset) / scale; };
  dtype == DType::kF64 ? each<double>(values, change) : each<float>(values, change);
}

}  // namespace tenon::npy
