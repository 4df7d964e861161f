// Data types, shapes and views, and layouts of tensors over ranks. A view never owns; memory is freed by the
// side that made it.
// The layout follows DLPack (type code and bits, shape and strides in elements), with room for packed
// sub-byte codes.
#pragma once

#include <tenon/abi.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// Element type. Values reach disk and the plugin ABI: do not renumber.
enum class DType : std::uint8_t {
  kF32 = 0,
  kF64 = 1,
  kBF16 = 2,
  kF16 = 3,
  kC64 = 4,   ///< complex of two f32
  kC128 = 5,  ///< complex of two f64
  kI8 = 6,
  kU8 = 7,
  kI16 = 8,
  kU16 = 9,
  kI32 = 10,
  kU32 = 11,
  kI64 = 12,
  kU64 = 13,
  kBool = 14,
  kF8E4M3 = 15,
  kF8E5M2 = 16,
  kF8E8M0 = 17,
  kF4E2M1 = 18,  ///< packed, two codes per byte, element 2i in the low nibble
  kF6E2M3 = 19,
  kF6E3M2 = 20,
};

/// Bits of one element: 4 for F4, 6 for F6, else 8 x bytes.
int dtype_bits(DType dtype) noexcept;
/// Bytes of `elements` contiguous elements, rounded up to whole bytes.
std::int64_t dtype_bytes(DType dtype, std::int64_t elements) noexcept;
/// "f32", "bf16", ...: the names used in TOML and messages.
std::string_view dtype_name(DType dtype) noexcept;
/// Inverse of dtype_name; throws Error(kConfig) that lists the names.
DType dtype_from_name(std::string_view name);
bool dtype_is_real(DType dtype) noexcept;
bool dtype_is_complex(DType dtype) noexcept;

inline constexpr int kMaxRank = 8;

/// Extents, outermost first. At most kMaxRank dimensions.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int dim) const noexcept { return extents_[dim]; }
  std::int64_t& operator[](int dim) noexcept { return extents_[dim]; }
  std::int64_t elements() const noexcept;  ///< 1 for a scalar
  std::span<const std::int64_t> extents() const noexcept {
    return {extents_.data(), static_cast<std::size_t>(rank_)};
  }
  std::string text() const;  ///< "[12, 64, 128]"
  bool operator==(const Shape& other) const noexcept;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// Location of memory.
enum class MemorySpace : std::uint8_t { kHost = 0, kCuda = 1 };

/// A row-major, contiguous window on memory that it does not own. `data` may be null only when elements() is
/// 0.
struct TensorView {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::kF32;
  MemorySpace space = MemorySpace::kHost;

  std::int64_t elements() const noexcept { return shape.elements(); }
  std::int64_t bytes() const noexcept { return dtype_bytes(dtype, elements()); }
  bool empty() const noexcept { return data == nullptr || elements() == 0; }

  /// Typed pointer; the caller has checked dtype.
  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
  template <typename T>
  std::span<T> span() const noexcept {
    return {static_cast<T*>(data), static_cast<std::size_t>(elements())};
  }
  std::span<std::byte> raw() const noexcept {
    return {static_cast<std::byte*>(data), static_cast<std::size_t>(bytes())};
  }
  /// The same elements under another shape; throws if the counts differ.
  TensorView reshaped(const Shape& other) const;
  /// Rows [begin, end) of the outermost dimension.
  TensorView rows(std::int64_t begin, std::int64_t end) const;
};

// Layout of a global tensor on a mesh. A mesh is a row-major block of ranks; along each of its axes a
// tensor is sharded (every rank holds a shard of one dimension), replicated (every rank holds the same), or a
// partial sum (the tensor is the sum of what the ranks hold). Shards may be uneven or empty; a rank that
// holds nothing of a tensor has an empty shard.

/// The axis of the replicas. A row table sharded along it exists once in the run: each replica owns some
/// rows, reads the others' through messages, and the core sends every row's gradients to its owner. Nothing
/// else can be sharded along it.
inline constexpr int kReplicaAxis = -1;

/// Sharding of one dimension of a global tensor over axes of the mesh, together and row-major, or over
/// the replicas. offsets has parts + 1 entries that rise from 0 to the extent, one shard per rank of those
/// axes.
struct DimSharding {
  int dim = 0;
  std::vector<int> axes;
  std::vector<std::int64_t> offsets;
};

/// Place of a rank.
struct MeshPlace {
  std::span<const int> extents = {};      ///< ranks along each axis of the mesh; empty: no mesh
  std::span<const int> coordinates = {};  ///< one per axis
  int replica = 0;
};

/// Indices [begin, end).
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const noexcept { return end - begin; }
};

/// Elements [offset, offset + extents) of a tensor. Both shapes have the tensor's rank.
struct Box {
  Shape offset;
  Shape extents;

  std::int64_t elements() const noexcept { return extents.elements(); }
  std::int64_t end(int dim) const noexcept { return offset[dim] + extents[dim]; }
  bool operator==(const Box& other) const noexcept = default;
};

/// Returns the elements in both boxes; extents of 0 where they share nothing.
Box intersection(const Box& a, const Box& b) noexcept;

/// Layout of a value or a parameter. One whose shape has no dimensions states nothing.
struct Layout {
  Shape shape;                             ///< global
  std::vector<DimSharding> sharding = {};  ///< at most one per dimension, an axis in at most one
  std::vector<int> partial = {};           ///< axes over which it is a sum, in none of the above

  bool stated() const noexcept { return shape.rank() > 0; }
  /// Every rank holds all of it.
  bool whole() const noexcept { return sharding.empty() && partial.empty(); }
  bool operator==(const Layout& other) const;
};

/// floor(extent / parts) each, the first extent % parts one more; as an offset table.
std::vector<std::int64_t> balanced_offsets(std::int64_t extent, int parts);
/// Everything at part `owner`.
std::vector<std::int64_t> owned_offsets(std::int64_t extent, int parts, int owner);

/// Returns the sharding of dimension `dim`; null where it is not sharded.
const DimSharding* sharding_of(const Layout& layout, int dim) noexcept;

/// Throws Error(kConfig), beginning with `what`, unless axes exist, are used once, and offset tables fit.
void check_layout(const Layout& layout, std::span<const int> mesh, std::string_view what);
/// Returns the shard of a rank. The layout has been checked.
Box part_of(const Layout& layout, const MeshPlace& place);
/// Returns the axes along which ranks hold different shards.
std::vector<int> sharded_axes(const Layout& layout);
/// "[10, 28, 28], dimension 1 sharded over axes 2, 3 at 0, 14, 28, a sum over axis 1"
std::string layout_text(const Layout& layout);

/// Coordinates of the rank at `index` of a mesh, and back.
std::vector<int> mesh_coordinates(int index, std::span<const int> mesh);
int mesh_index(std::span<const int> coordinates, std::span<const int> mesh);

TENON_ABI_END
