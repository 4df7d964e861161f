// Boxes of tensors: the place of a part of a tensor, the elements that two parts share, and copying the
// shared elements from storage that is read by byte ranges. Knows no files and no manifests.
#pragma once

#include <tenon/tensor.hpp>

#include <functional>

namespace tenon {

/// Number of elements that both boxes hold.
std::int64_t shared_elements(const Box& a, const Box& b) noexcept;

/// True if the box is within a tensor of this shape (and has its rank).
bool box_fits(const Box& box, const Shape& tensor) noexcept;

/// Reads bytes [offset, offset + out.size()) of a part.
using ByteSource = std::function<void(std::int64_t offset, std::span<std::byte> out)>;

/// Copies what `part` and `wanted` share into `out`, the row-major bytes of `wanted`; `source` yields the
/// row-major bytes of `part`. Runs are as long as the layouts allow. Returns the number of elements copied.
/// Throws Error(kRun) if packed elements (F4, F6) do not begin or end on bytes.
std::int64_t copy_shared(DType dtype, const Box& part, const ByteSource& source, const Box& wanted,
                         std::span<std::byte> out);

}  // namespace tenon
