// Element types, shapes, views and layouts of <tenon/tensor.hpp>.
#include <tenon/tensor.hpp>

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

TENON_ABI_BEGIN

// Facts about element types: one table, in the order of the enum, that every function reads.

namespace {

enum class Family : std::uint8_t { kReal, kComplex, kInteger };

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  int bits;
  Family family;
};

constexpr DTypeFacts kFacts[] = {
    {DType::kF32, "f32", 32, Family::kReal},       {DType::kF64, "f64", 64, Family::kReal},
    {DType::kBF16, "bf16", 16, Family::kReal},     {DType::kF16, "f16", 16, Family::kReal},
    {DType::kC64, "c64", 64, Family::kComplex},    {DType::kC128, "c128", 128, Family::kComplex},
    {DType::kI8, "i8", 8, Family::kInteger},       {DType::kU8, "u8", 8, Family::kInteger},
    {DType::kI16, "i16", 16, Family::kInteger},    {DType::kU16, "u16", 16, Family::kInteger},
    {DType::kI32, "i32", 32, Family::kInteger},    {DType::kU32, "u32", 32, Family::kInteger},
    {DType::kI64, "i64", 64, Family::kInteger},    {DType::kU64, "u64", 64, Family::kInteger},
    {DType::kBool, "bool", 8, Family::kInteger},   {DType::kF8E4M3, "f8_e4m3", 8, Family::kReal},
    {DType::kF8E5M2, "f8_e5m2", 8, Family::kReal}, {DType::kF8E8M0, "f8_e8m0", 8, Family::kReal},
    {DType::kF4E2M1, "f4_e2m1", 4, Family::kReal}, {DType::kF6E2M3, "f6_e2m3", 6, Family::kReal},
    {DType::kF6E3M2, "f6_e3m2", 6, Family::kReal},
};

constexpr bool table_follows_enum() {
  for (std::size_t i = 0; i < std::size(kFacts); ++i) {
    if (static_cast<std::size_t>(kFacts[i].dtype) != i) return false;
  }
  return std::size(kFacts) == static_cast<std::size_t>(DType::kF6E3M2) + 1;
}
static_assert(table_follows_enum());

constexpr DTypeFacts kUnknown{DType::kF32, "unknown", 0, Family::kInteger};

// A value outside the enum can arrive from a file or a plugin; it must not index past the table.
const DTypeFacts& facts(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < std::size(kFacts) ? kFacts[index] : kUnknown;
}

}  // namespace

int dtype_bits(DType dtype) noexcept {
  return facts(dtype).bits;
}

std::int64_t dtype_bytes(DType dtype, std::int64_t elements) noexcept {
  const std::int64_t bits = facts(dtype).bits;
  std::int64_t total = 0;
  if (bits % 8 == 0) {
    return __builtin_mul_overflow(elements, bits / 8, &total) ? std::numeric_limits<std::int64_t>::max()
                                                              : total;
  }
  // 8 elements of b bits are b bytes: multiplying whole groups first keeps the product in range.
  if (__builtin_mul_overflow(elements / 8, bits, &total)) return std::numeric_limits<std::int64_t>::max();
  return total + ((elements % 8) * bits + 7) / 8;
}

std::string_view dtype_name(DType dtype) noexcept {
  return facts(dtype).name;
}

DType dtype_from_name(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DTypeFacts& entry : kFacts) {
    if (entry.name == name) return entry.dtype;
    known.push_back(entry.name);
  }
  fail_config(fmt::format("unknown element type '{}'; expected one of {}", name, fmt::join(known, ", ")));
}

bool dtype_is_real(DType dtype) noexcept {
  return facts(dtype).family == Family::kReal;
}
bool dtype_is_complex(DType dtype) noexcept {
  return facts(dtype).family == Family::kComplex;
}

// Shapes and views. A shape is checked when it is made (rank, signs, element count), so that every later
// product of extents is in range; a shape edited in place saturates instead of overflowing.

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

// Checks of layouts and the arithmetic of parts.

namespace {

std::string axes_text(const std::vector<int>& axes) {
  if (axes.size() == 1 && axes.front() == kReplicaAxis) return "the replicas";
  return fmt::format("{} {}", axes.size() == 1 ? "axis" : "axes", fmt::join(axes, ", "));
}

void use_axes(const std::vector<int>& axes, std::span<const int> mesh, std::vector<int>& used,
              std::string_view what) {
  for (const int axis : axes) {
    if (axis < 0 || axis >= static_cast<int>(mesh.size())) {
      fail_config(fmt::format("{}: laid over axis {} of the mesh, which has {} axes ([{}])", what, axis,
                              mesh.size(), fmt::join(mesh, ", ")));
    }
    if (used[axis]++ != 0) fail_config(fmt::format("{}: axis {} of the mesh is used twice", what, axis));
  }
}

std::size_t part_index(const DimSharding& sharding, const MeshPlace& place) {
  if (sharding.axes.size() == 1 && sharding.axes.front() == kReplicaAxis) return place.replica;
  int index = 0;
  for (const int axis : sharding.axes) {
    const std::size_t at = axis;
    index = index * place.extents[at] + place.coordinates[at];
  }
  return index;
}

}  // namespace

const DimSharding* sharding_of(const Layout& layout, int dim) noexcept {
  const auto found = std::find_if(layout.sharding.begin(), layout.sharding.end(),
                                  [dim](const DimSharding& sharding) { return sharding.dim == dim; });
  return found == layout.sharding.end() ? nullptr : &*found;
}

Box intersection(const Box& a, const Box& b) noexcept {
  Box shared = a;
  for (int dim = 0; dim < a.offset.rank(); ++dim) {
    shared.offset[dim] = std::max(a.offset[dim], b.offset[dim]);
    shared.extents[dim] = std::max<std::int64_t>(0, std::min(a.end(dim), b.end(dim)) - shared.offset[dim]);
  }
  return shared;
}

bool Layout::operator==(const Layout& other) const {
  const auto same = [](const DimSharding& a, const DimSharding& b) {
    return a.dim == b.dim && a.axes == b.axes && a.offsets == b.offsets;
  };
  const auto has = [&](const std::vector<DimSharding>& all, const DimSharding& sharding) {
    return std::any_of(all.begin(), all.end(), [&](const DimSharding& one) { return same(one, sharding); });
  };
  return shape == other.shape && sharding.size() == other.sharding.size() &&
         std::all_of(sharding.begin(), sharding.end(),
                     [&](const DimSharding& sharding) { return has(other.sharding, sharding); }) &&
         std::is_permutation(partial.begin(), partial.end(), other.partial.begin(), other.partial.end());
}

std::vector<std::int64_t> balanced_offsets(std::int64_t extent, int parts) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i <= parts; ++i)
    offsets.push_back(i * (extent / parts) + std::min(i, extent % parts));
  return offsets;
}

std::vector<std::int64_t> owned_offsets(std::int64_t extent, int parts, int owner) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(parts) + 1, extent);
  std::fill_n(offsets.begin(), owner + 1, 0);
  return offsets;
}

void check_layout(const Layout& layout, std::span<const int> mesh, std::string_view what) {
  std::vector<int> used(mesh.size(), 0);
  std::vector<bool> sharded_dims(layout.shape.rank(), false);
  for (const DimSharding& sharding : layout.sharding) {
    if (sharding.dim < 0 || sharding.dim >= layout.shape.rank()) {
      fail_config(fmt::format("{}: dimension {} is sharded, but the shape is {}", what, sharding.dim,
                              layout.shape.text()));
    }
    if (sharded_dims[sharding.dim])
      fail_config(fmt::format("{}: dimension {} is sharded twice; shard it over several axes together", what,
                              sharding.dim));
    sharded_dims[sharding.dim] = true;
    // As many parts as there are replicas: only the run knows how many.
    std::size_t parts = sharding.offsets.empty() ? 1 : sharding.offsets.size() - 1;
    if (sharding.axes != std::vector{kReplicaAxis}) {
      use_axes(sharding.axes, mesh, used, what);
      parts = 1;
      for (const int axis : sharding.axes) parts *= static_cast<std::size_t>(mesh[axis]);
    }
    if (sharding.offsets.size() != parts + 1 || sharding.offsets.front() != 0 ||
        sharding.offsets.back() != layout.shape[sharding.dim] ||
        !std::is_sorted(sharding.offsets.begin(), sharding.offsets.end())) {
      fail_config(fmt::format(
          "{}: the offset table of dimension {} over {} must rise from 0 to {} in {} parts, found [{}]", what,
          sharding.dim, axes_text(sharding.axes), layout.shape[sharding.dim], parts,
          fmt::join(sharding.offsets, ", ")));
    }
  }
  use_axes(layout.partial, mesh, used, what);
}

Box part_of(const Layout& layout, const MeshPlace& place) {
  Box box{layout.shape, layout.shape};
  for (int dim = 0; dim < layout.shape.rank(); ++dim) {
    box.offset[dim] = 0;
    const DimSharding* sharding = sharding_of(layout, dim);
    if (sharding == nullptr) continue;
    const std::size_t part = part_index(*sharding, place);
    box.offset[dim] = sharding->offsets.at(part);
    box.extents[dim] = sharding->offsets.at(part + 1) - sharding->offsets[part];
  }
  return box;
}

std::vector<int> sharded_axes(const Layout& layout) {
  std::vector<int> axes;
  for (const DimSharding& sharding : layout.sharding)
    axes.insert(axes.end(), sharding.axes.begin(), sharding.axes.end());
  return axes;
}

std::string layout_text(const Layout& layout) {
  std::string text = layout.shape.text();
  for (const DimSharding& sharding : layout.sharding) {
    text += fmt::format(", dimension {} sharded over {} at {}", sharding.dim, axes_text(sharding.axes),
                        fmt::join(sharding.offsets, ", "));
  }
  if (!layout.partial.empty()) text += ", a sum over " + axes_text(layout.partial);
  return text;
}

std::vector<int> mesh_coordinates(int index, std::span<const int> mesh) {
  std::vector<int> coordinates(mesh.size());
  for (std::size_t axis = mesh.size(); axis-- > 0;) {
    coordinates[axis] = index % mesh[axis];
    index /= mesh[axis];
  }
  return coordinates;
}

int mesh_index(std::span<const int> coordinates, std::span<const int> mesh) {
  int index = 0;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) index = index * mesh[axis] + coordinates[axis];
  return index;
}

TENON_ABI_END
