// For the transforms of this plugin: a base class, the check of a single source, and real numbers of all
// floating-point types with one rounding.
#pragma once

#include <tenon/error.hpp>
#include <tenon/sdk/stored_slices.hpp>
#include <tenon/transform.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::transform_basic {

/// A transform without further interfaces.
class TransformBase : public Transform {
 public:
  void* query(std::string_view) override { return nullptr; }
};

/// The source of a transform that takes one. Throws Error(kConfig).
StoredModel& only_source(std::span<StoredModel* const> sources, std::string_view transform);

std::vector<StoredTensor> parameters_of(const StoredModel& source);

/// f64, f32, bf16 and f16.
bool is_floating_point(DType dtype) noexcept;

/// Rounds `value` to nearest even in `dtype`, one of the four, once: a value beyond the largest one becomes
/// infinite.
double rounded(double value, DType dtype) noexcept;

/// Writes values into host memory of one of the four types, or of complex numbers of two of them, each
/// rounded once. There are as many values as real numbers in the view.
void store(std::span<const double> values, const TensorView& view) noexcept;

}  // namespace tenon::transform_basic
