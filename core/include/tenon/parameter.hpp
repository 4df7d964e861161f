// Parameters: how a layer declares them and how strategies see them. The core owns the memory. Weights and
// gradients are in backward-finish order, 64-byte aligned, one arena per dtype and replica group, so that
// buckets, syncs, hashes and saves are slices. Row tables are reached by rows only.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

class RowTable;

enum class Role : std::uint8_t {
  kParameter,  ///< dense, in an arena
  kBuffer,     ///< not trained (running statistics); follows [sync] buffers
  kRowTable,   ///< reached through RowTable only
};

enum class Initializer : std::uint8_t {
  kZero,
  kOne,
  kNormal,
  kUniform,
  kConstant,
  kUniformFromZero,  ///< in [0, init_scale)
  kLogOfUniform,     ///< log u, where u is uniform in [init_low, init_scale)
  /// x with softplus(x) = u, where log u is uniform in [log init_low, log init_scale).
  kInverseSoftplusLogUniform,
};

/// Declaration of a parameter. Shapes are global; placement says which shard this rank holds.
struct ParameterSpec {
  std::string name;  ///< conventional name; two declarations of one name are one tied parameter
  DType dtype = DType::kF32;
  Shape shape;  ///< global
  /// Empty = replicated over the mesh; only row tables can be sharded over the replicas.
  std::vector<DimSharding> sharding;
  Role role = Role::kParameter;
  bool trainable = true;
  bool decay = true;  ///< weight decay applies
  Initializer init = Initializer::kNormal;
  double init_scale = 0.02;  ///< std of normal, half-width or end of uniform, or the constant
  double init_low = 0;       ///< begin of the two logarithmic ones, above 0 and at most init_scale
};

/// Whether the parameter is sharded along `axis` (kReplicaAxis: over the replicas).
bool is_sharded(const ParameterSpec& spec, int axis) noexcept;
/// Returns the shard of the rank at `place`. Throws Error(kConfig) that names the parameter if its layout
/// does not fit the mesh.
Box local_part(const ParameterSpec& spec, const MeshPlace& place);

/// Location of a dense parameter: elements [begin, begin + elements) of arena `arena` (same in every
/// ParameterSet).
struct ParameterInfo {
  ParameterSpec spec;
  int index = 0;   ///< position in backward-finish order over all parameters
  int arena = -1;  ///< -1 for row tables
  std::int64_t begin = 0;
  Shape local;    ///< this rank's shard
  Shape offset;   ///< first global index of that shard per dimension
  int users = 1;  ///< layers that add to its gradient (tied weights: more than one)
};

/// One copy of all parameters: live, gradient, anchor, teacher, optimizer state.
/// Views stay valid for the life of the run; contents follow the rules of the owner.
class ParameterSet {
 public:
  virtual ~ParameterSet();
  virtual std::string_view name() const = 0;
  virtual std::span<const ParameterInfo> parameters() const = 0;
  virtual int arenas() const = 0;
  /// A whole arena as a flat tensor, padding included (padding is zero and stays zero).
  virtual TensorView arena(int index) const = 0;
  /// This rank's shard of one dense parameter or buffer.
  virtual TensorView tensor(int parameter) const = 0;
  /// Null unless the parameter is a row table.
  virtual RowTable* table(int parameter) const = 0;
  /// Grows at every `touch`; derived copies (BF16, quantized) are keyed by it.
  virtual std::uint64_t version(int parameter) const = 0;
  /// Every writer (optimizer, MIX, merge, restore) calls this after writing; -1 = all parameters.
  virtual void touch(int parameter) = 0;
};

/// A table of rows (embedding) that is never one dense slice, so that rows may live in several memory tiers.
/// Row ids are global; a rank answers only for rows that it owns. Thread rules: concurrent reads are fine;
/// concurrent writes of one row need the Hogwild capability (relaxed element writes).
class RowTable {
 public:
  virtual ~RowTable();
  virtual std::int64_t rows() const = 0;   ///< global
  virtual std::int64_t width() const = 0;  ///< elements per row
  virtual DType dtype() const = 0;
  /// Owned rows are [first, last).
  virtual std::int64_t owned_first() const = 0;
  virtual std::int64_t owned_last() const = 0;
  /// out: [ids.size(), width]. Throws Error(kRun) on a row that this rank does not own.
  virtual void read(std::span<const std::int64_t> ids, TensorView out) const = 0;
  virtual void write(std::span<const std::int64_t> ids, TensorView values) = 0;
  /// As read() and write(), without effect on caches and their counts: for whole passes and evaluations,
  /// which come by once.
  virtual void scan(std::span<const std::int64_t> ids, TensorView out) const;
  virtual void fill(std::span<const std::int64_t> ids, TensorView values);
  /// Grows at every write of a row. Neighbouring rows may share a count, so it may also grow without one.
  virtual void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const = 0;
  /// What a table has beyond this (<tenon/tier.hpp>); null for others.
  virtual void* query(std::string_view interface_id);
};

/// Row-sparse gradient of one table: unique rows in ascending order and their summed gradients.
struct RowGradient {
  int parameter = 0;
  std::span<const std::int64_t> ids;
  TensorView values;                           ///< [ids.size(), width]
  std::span<const std::uint32_t> counts = {};  ///< how often each row was added to
};

TENON_ABI_END
