// Shapes and views. A shape is checked when it is made (rank, signs, element count), so that every later
// product of extents is in range; a shape edited in place saturates instead of overflowing.
#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

TENON_ABI_BEGIN

namespace {

constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max();

// False when the product of the extents does not fit in 64 bits; a zero extent makes any shape empty.
bool count_elements(std::span<const std::int64_t> extents, std::int64_t& count) noexcept {
  count = 1;
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) {
    count = 0;
    return true;
  }
  for (const std::int64_t extent : extents) {
    if (__builtin_mul_overflow(count, extent, &count)) return false;
  }
  return true;
}

std::string extents_text(std::span<const std::int64_t> extents) {
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) {
  if (extents.size() > static_cast<std::size_t>(kMaxRank)) {
    fail_run("a shape of " + std::to_string(extents.size()) + " dimensions; at most " +
             std::to_string(kMaxRank) + " are supported");
  }
  for (const std::int64_t extent : extents) {
    if (extent < 0) fail_run("shape " + extents_text(extents) + " has a negative extent");
  }
  std::int64_t count = 0;
  if (!count_elements(extents, count)) {
    fail_run("shape " + extents_text(extents) + " has more than 2^63 - 1 elements");
  }
  std::copy(extents.begin(), extents.end(), extents_.begin());
  rank_ = static_cast<int>(extents.size());
}

std::int64_t Shape::elements() const noexcept {
  std::int64_t count = 0;
  return count_elements(extents(), count) ? count : kMaxElements;
}

std::string Shape::text() const {
  return extents_text(extents());
}

bool Shape::operator==(const Shape& other) const noexcept {
  return std::ranges::equal(extents(), other.extents());
}

TensorView TensorView::reshaped(const Shape& other) const {
  if (other.elements() != elements()) {
    fail_run("cannot view " + shape.text() + " as " + other.text() + ": " + std::to_string(elements()) +
             " and " + std::to_string(other.elements()) + " elements");
  }
  TensorView view = *this;
  view.shape = other;
  return view;
}

TensorView TensorView::rows(std::int64_t begin, std::int64_t end) const {
  if (shape.rank() == 0 || begin < 0 || end < begin || end > shape[0]) {
    fail_run("rows [" + std::to_string(begin) + ", " + std::to_string(end) +
             ") are outside a tensor of shape " + shape.text());
  }
  Shape row_shape = shape;
  row_shape[0] = 1;
  const std::int64_t skipped = begin * row_shape.elements();
  const int bits = dtype_bits(dtype);
  if (bits % 8 != 0 && (skipped % 8) * bits % 8 != 0) {
    fail_run("row " + std::to_string(begin) + " of " + shape.text() + " " + std::string(dtype_name(dtype)) +
             " does not start on a byte");
  }
  TensorView view = *this;
  view.shape[0] = end - begin;
  // A null base stands for "no elements"; it must stay null and must not be offset.
  if (data != nullptr) view.data = static_cast<std::byte*>(data) + dtype_bytes(dtype, skipped);
  return view;
}

TENON_ABI_END
