// Layout of parameters in arenas, the arithmetic of shards, and sets of parameters in device memory.
#include "graph/parameter_set.hpp"

#include "base/at.hpp"
#include "base/elapsed.hpp"
#include "comm/random_blocks.hpp"
#include "graph/memory_budget.hpp"
#include "graph/row_table.hpp"

#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/parallel.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

TENON_ABI_BEGIN

bool is_sharded(const ParameterSpec& spec, int axis) noexcept {
  return std::any_of(spec.sharding.begin(), spec.sharding.end(), [axis](const DimSharding& sharding) {
    return std::find(sharding.axes.begin(), sharding.axes.end(), axis) != sharding.axes.end();
  });
}

Box local_part(const ParameterSpec& spec, const MeshPlace& place) {
  if (is_sharded(spec, kReplicaAxis) && spec.role != Role::kRowTable)
    fail_config(
        fmt::format("parameter '{}' is sharded over the replicas; only row tables can be", spec.name));
  for (const DimSharding& sharding : spec.sharding) {
    const auto parts = static_cast<int>(sharding.offsets.size()) - 1;
    if (sharding.axes == std::vector{kReplicaAxis} && place.replica >= parts) {
      fail_config(fmt::format(
          "parameter '{}': dimension {} has {} shards over the replicas, but there is a replica {}",
          spec.name, sharding.dim, parts, place.replica));
    }
  }
  const Layout layout{spec.shape, spec.sharding};
  check_layout(layout, place.extents, fmt::format("parameter '{}'", spec.name));
  return part_of(layout, place);
}

TENON_ABI_END

namespace tenon::graph {

ArenaUse arena_use(const ParameterSpec& spec) {
  if (spec.role == Role::kBuffer) return ArenaUse::kBuffer;
  return spec.trainable ? ArenaUse::kTrained : ArenaUse::kFrozen;
}

/// The first element from `end` on at which a parameter may begin.
static std::int64_t aligned(std::int64_t end, DType dtype) {
  const std::int64_t step = std::max<std::int64_t>(1, 64 * 8 / dtype_bits(dtype));
  return (end + step - 1) / step * step;
}

std::vector<ParameterInfo> lay_out(const std::vector<Declared>& declared, const MeshPlace& place) {
  std::vector<std::size_t> order(declared.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return declared[a].finish_order < declared[b].finish_order;
  });

  // Trainable arenas first, so that gradient arenas are a prefix.
  using Key = std::tuple<ArenaUse, DType>;
  std::map<Key, int> arenas;
  for (const ArenaUse use : {ArenaUse::kTrained, ArenaUse::kFrozen, ArenaUse::kBuffer}) {
    for (std::size_t index : order) {
      const ParameterSpec& spec = declared[index].spec;
      if (spec.role == Role::kRowTable || arena_use(spec) != use) continue;
      arenas.try_emplace(Key{use, spec.dtype}, static_cast<int>(arenas.size()));
    }
  }

  std::vector<ParameterInfo> result;
  std::vector<std::int64_t> used(arenas.size(), 0);
  for (std::size_t index : order) {
    ParameterInfo info;
    info.spec = declared[index].spec;
    info.index = static_cast<int>(result.size());
    const Box part = local_part(info.spec, place);
    info.local = part.extents;
    info.offset = part.offset;
    info.users = declared[index].users;
    if (info.spec.role != Role::kRowTable) {
      info.arena = arenas.at(Key{arena_use(info.spec), info.spec.dtype});
      std::int64_t& end = used[info.arena];
      info.begin = aligned(end, info.spec.dtype);
      end = info.begin + info.local.elements();
    }
    result.push_back(std::move(info));
  }
  return result;
}

std::vector<ParameterInfo> reduced(std::vector<ParameterInfo> parameters, const StateSlot& slot) {
  std::map<int, std::int64_t> used;
  for (ParameterInfo& info : parameters) {
    if (info.arena < 0) continue;
    info.local = state_shape(slot, info.local);
    info.spec.shape = state_shape(slot, info.spec.shape);
    std::erase_if(info.spec.sharding,
                  [&](const DimSharding& sharding) { return (slot.dimensions >> sharding.dim & 1) == 0; });
    for (int d = 0; d < info.offset.rank(); ++d)
      if ((slot.dimensions >> d & 1) == 0) info.offset[d] = 0;
    std::int64_t& end = used[info.arena];
    info.begin = aligned(end, info.spec.dtype);
    end = info.begin + info.local.elements();
  }
  return parameters;
}

namespace {

const char* role_name(Role role) {
  switch (role) {
    case Role::kParameter:
      return "parameter";
    case Role::kBuffer:
      return "buffer";
    case Role::kRowTable:
      return "row table";
  }
  return "";
}

/// "parameter f32 [8, 4]", and the shard where a rank has only a part.
std::string described(const ParameterInfo& info) {
  const ParameterSpec& spec = info.spec;
  std::string text = fmt::format("{} {} {}", role_name(spec.role), dtype_name(spec.dtype),
                                 layout_text({spec.shape, spec.sharding}));
  if (!(info.local == spec.shape))
    text += fmt::format(", here {} from {}", info.local.text(), info.offset.text());
  return text;
}

bool alike(const ParameterInfo& a, const ParameterInfo& b) {
  const Layout first{a.spec.shape, a.spec.sharding}, second{b.spec.shape, b.spec.sharding};
  return first == second && a.local == b.local && a.offset == b.offset && a.spec.dtype == b.spec.dtype &&
         a.spec.role == b.spec.role;
}

bool has_memory(const ParameterInfo& info, const ParameterSet& set) {
  if (info.spec.role == Role::kRowTable) return set.table(info.index) != nullptr;
  return info.local.elements() == 0 || !set.tensor(info.index).empty();
}

}  // namespace

std::vector<int> bound_indices(const std::vector<ParameterInfo>& parameters, const ParameterSet& set) {
  std::map<std::string_view, const ParameterInfo*> by_name;
  for (const ParameterInfo& info : set.parameters()) by_name[info.spec.name] = &info;
  std::vector<int> indices;
  std::vector<std::string> differences;
  for (const ParameterInfo& info : parameters) {
    const auto found = by_name.find(info.spec.name);
    if (found == by_name.end()) {
      differences.push_back(fmt::format("'{}' is missing, expected {}", info.spec.name, described(info)));
    } else if (!alike(info, *found->second)) {
      differences.push_back(fmt::format("'{}': expected {}, found {}", info.spec.name, described(info),
                                        described(*found->second)));
    } else if (!has_memory(*found->second, set)) {
      differences.push_back(fmt::format("'{}' has no memory in this set", info.spec.name));
    } else {
      indices.push_back(found->second->index);
    }
  }
  if (differences.empty()) return indices;
  fail_config(
      fmt::format("a graph cannot read the parameters of '{}'; {} of {} differ:\n  {}\nBind a set that was "
                  "made for a graph of the same model and precision",
                  set.name(), differences.size(), parameters.size(), fmt::join(differences, "\n  ")));
}

std::int64_t arena_elements(const std::vector<ParameterInfo>& parameters, int arena) {
  std::int64_t end = 0;
  std::int64_t step = 1;
  for (const ParameterInfo& info : parameters) {
    if (info.arena != arena) continue;
    end = std::max(end, info.begin + info.local.elements());
    step = std::max<std::int64_t>(1, 64 * 8 / dtype_bits(info.spec.dtype));
  }
  return (end + step - 1) / step * step;
}

DType arena_dtype(const std::vector<ParameterInfo>& parameters, int arena) {
  for (const ParameterInfo& info : parameters) {
    if (info.arena == arena) return info.spec.dtype;
  }
  return DType::kF32;
}

ArenaUse arena_use(const std::vector<ParameterInfo>& parameters, int arena) {
  for (const ParameterInfo& info : parameters) {
    if (info.arena == arena) return arena_use(info.spec);
  }
  return ArenaUse::kFrozen;
}

int arena_count(const std::vector<ParameterInfo>& parameters) {
  int count = 0;
  for (const ParameterInfo& info : parameters) count = std::max(count, info.arena + 1);
  return count;
}

}  // namespace tenon::graph

TENON_ABI_BEGIN

// ParameterSet in device memory, one block per arena, and the declared initial values.

namespace {

class DeviceParameterSet final : public ParameterSet {
 public:
  DeviceParameterSet(std::string name, const std::vector<ParameterInfo>& parameters, Device& device,
                     SetContents contents, RowPlaces* places, ParameterSet* tables_of)
      : name_(std::move(name)),
        parameters_(parameters),
        device_(device),
        tables_of_(tables_of),
        versions_(parameters.size()),
        all_(first_version()) {
    for (int arena = 0; arena < graph::arena_count(parameters_); ++arena) {
      TensorView view;
      const graph::ArenaUse use = graph::arena_use(parameters_, arena);
      const bool wanted = contents == SetContents::kGradients ? use == graph::ArenaUse::kTrained
                          : contents == SetContents::kBuffers ? use == graph::ArenaUse::kBuffer
                                                              : true;
      view.shape = Shape{wanted ? graph::arena_elements(parameters_, arena) : 0};
      view.dtype = graph::arena_dtype(parameters_, arena);
      view.space = device.space();
      if (view.bytes() > 0) {
        view.data =
            graph::allocate_for(device, static_cast<std::size_t>(view.bytes()),
                                fmt::format("'{}': {} and what lies beside it", name_, first_of(arena)));
      }
      arenas_.push_back(view);
    }
    for (const ParameterInfo& info : parameters_) {
      std::unique_ptr<RowTable> table;
      if (info.spec.role == Role::kRowTable && contents == SetContents::kEverything) {
        const RowMemorySpec spec{.table = info.spec.name,
                                 .first = info.offset[0],
                                 .last = info.offset[0] + info.local[0],
                                 .width = info.spec.shape[1],
                                 .dtype = info.spec.dtype};
        table = graph::make_row_table(spec, info.spec.shape[0], places);
      }
      tables_.push_back(std::move(table));
    }
  }

  ~DeviceParameterSet() override {
    for (const TensorView& arena : arenas_) {
      if (arena.data != nullptr) device_.release(arena.data, arena.bytes());
    }
  }

  std::string_view name() const override { return name_; }
  std::span<const ParameterInfo> parameters() const override { return parameters_; }
  int arenas() const override { return static_cast<int>(arenas_.size()); }
  TensorView arena(int index) const override { return base::at(arenas_, index); }

  TensorView tensor(int parameter) const override {
    const ParameterInfo& info = base::at(parameters_, parameter);
    if (info.arena < 0) return {};
    TensorView view = base::at(arenas_, info.arena);
    if (view.data == nullptr) return {};
    view.data = static_cast<std::byte*>(view.data) + dtype_bytes(info.spec.dtype, info.begin);
    view.shape = info.local;
    return view;
  }

  RowTable* table(int parameter) const override {
    if (tables_of_ != nullptr) return tables_of_->table(parameter);
    return base::at(tables_, parameter).get();
  }

  // Relaxed: a version is read by the thread that ran after the writer, or under Hogwild by any thread, where
  // an old copy of a weight is as good as the weight itself.
  std::uint64_t version(int parameter) const override {
    return base::at(versions_, parameter).load(std::memory_order_relaxed) +
           all_.load(std::memory_order_relaxed);
  }
  void touch(int parameter) override {
    if (parameter < 0) {
      all_.fetch_add(1, std::memory_order_relaxed);
    } else {
      base::at(versions_, parameter).fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  /// Nanoseconds, so that a set in the memory of one that has ended never has its versions: converted copies
  /// are found by address and version.
  static std::uint64_t first_version() {
    return static_cast<std::uint64_t>(base::Steady::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }

  std::string first_of(int arena) const {
    for (const ParameterInfo& info : parameters_) {
      if (info.arena == arena) return info.spec.name;
    }
    return "nothing";
  }

  std::string name_;
  std::vector<ParameterInfo> parameters_;
  Device& device_;
  std::vector<TensorView> arenas_;
  ParameterSet* tables_of_;  ///< null: the tables are its own, if it has any
  std::vector<std::unique_ptr<RowTable>> tables_;
  std::deque<std::atomic<std::uint64_t>> versions_;
  std::atomic<std::uint64_t> all_;
};

/// Value of one element: a function of seed, parameter name and global index.
double initial_value(const ParameterSpec& spec, RandomKey key, std::uint64_t element) {
  switch (spec.init) {
    case Initializer::kZero:
      return 0;
    case Initializer::kOne:
      return 1;
    case Initializer::kConstant:
      return spec.init_scale;
    case Initializer::kNormal:
      return spec.init_scale * random_normal(key, 0, element);
    case Initializer::kUniform:
      return spec.init_scale * (2 * random_uniform(key, 0, element) - 1);
    case Initializer::kUniformFromZero:
      return spec.init_scale * random_uniform(key, 0, element);
    case Initializer::kLogOfUniform:
      return random_log_of_uniform(key, 0, element, spec.init_low, spec.init_scale);
    case Initializer::kInverseSoftplusLogUniform:
      return random_inverse_softplus(key, 0, element, spec.init_low, spec.init_scale);
  }
  return 0;
}

/// A declaration whose logarithm does not exist would fill the weights with NaN.
void require_range(const ParameterSpec& spec) {
  if (spec.init != Initializer::kLogOfUniform && spec.init != Initializer::kInverseSoftplusLogUniform) return;
  if (spec.init_low > 0 && spec.init_low <= spec.init_scale && std::isfinite(spec.init_scale)) return;
  fail_config(
      fmt::format("parameter '{}': initial values from {} to {}; a range of logarithms begins above 0 and "
                  "ends at its begin or later",
                  spec.name, spec.init_low, spec.init_scale));
}

/// Elements of a shard from `local` on whose global indices follow each other.
struct ElementRun {
  std::int64_t global = 0, length = 1;
};

ElementRun run_at(const ParameterInfo& info, std::int64_t local) {
  const Shape& shape = info.spec.shape;
  std::int64_t whole = 1;  // elements of the part that lies as it does in the tensor
  int first = shape.rank() - 1;
  while (first >= 0 && info.local[first] == shape[first]) whole *= shape[first--];
  if (first >= 0) whole *= info.local[first];
  ElementRun run{0, whole - local % whole};
  std::int64_t rest = local, stride = 1;
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    const std::int64_t extent = info.local[dim];
    run.global += (rest % extent + info.offset[dim]) * stride;
    rest /= extent;
    stride *= shape[dim];
  }
  return run;
}

/// The same values as initial_value() for elements that follow each other.
template <typename Real>
void fill_run(const ParameterSpec& spec, RandomKey key, std::uint64_t element, std::int64_t count,
              Real* out) {
  const bool normal = spec.init == Initializer::kNormal;
  if (!normal && spec.init != Initializer::kUniform && spec.init != Initializer::kUniformFromZero) {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = static_cast<Real>(initial_value(spec, key, element + static_cast<std::uint64_t>(i)));
    return;
  }
  constexpr std::int64_t kDrawn = 256;
  double drawn[kDrawn];
  const comm::RandomBlocks& draw = comm::random_blocks();
  for (std::int64_t begin = 0; begin < count; begin += kDrawn) {
    const std::int64_t here = std::min(kDrawn, count - begin);
    const std::uint64_t first = element + static_cast<std::uint64_t>(begin);
    (normal ? draw.normals : draw.uniforms)(static_cast<const std::uint32_t*>(key.words), 0, first, here,
                                            static_cast<double*>(drawn));
    const double scale = spec.init_scale;
    if (spec.init == Initializer::kUniform) {
      for (std::int64_t i = 0; i < here; ++i) out[begin + i] = static_cast<Real>(scale * (2 * drawn[i] - 1));
    } else {
      for (std::int64_t i = 0; i < here; ++i) out[begin + i] = static_cast<Real>(scale * drawn[i]);
    }
  }
}

/// Fills this rank's shard; a complex number is two reals with an index of their own.
template <typename Real>
void fill(const ParameterInfo& info, RandomKey key, Real* out) {
  const int parts = dtype_is_complex(info.spec.dtype) ? 2 : 1;
  parallel_for(info.local.elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const ElementRun run = run_at(info, begin);
      const std::int64_t here = std::min(run.length, end - begin);
      fill_run(info.spec, key, static_cast<std::uint64_t>(run.global * parts), here * parts,
               out + begin * parts);
      begin += here;
    }
  });
}

void fill_host(const ParameterInfo& info, RandomKey key, TensorView out) {
  require_range(info.spec);
  switch (out.dtype) {
    case DType::kF32:
    case DType::kC64:
      fill(info, key, out.as<float>());
      return;
    case DType::kF64:
    case DType::kC128:
      fill(info, key, out.as<double>());
      return;
    default:
      fail_config("parameter '" + info.spec.name + "' has dtype " + std::string(dtype_name(out.dtype)) +
                  "; initial values exist for f32, f64, c64 and c128");
  }
}

}  // namespace

std::unique_ptr<ParameterSet> make_parameter_set(std::string name,
                                                 const std::vector<ParameterInfo>& parameters, Device& device,
                                                 SetContents contents, RowPlaces* places) {
  return std::make_unique<DeviceParameterSet>(std::move(name), parameters, device, contents, places, nullptr);
}

std::unique_ptr<ParameterSet> make_parameter_set_beside(std::string name, ParameterSet& tables_of,
                                                        Device& device) {
  const auto parameters = tables_of.parameters();
  return std::make_unique<DeviceParameterSet>(
      std::move(name), std::vector<ParameterInfo>(parameters.begin(), parameters.end()), device,
      SetContents::kDense, nullptr, &tables_of);
}

void initial_rows(const ParameterInfo& table, std::uint64_t seed_init, std::span<const std::int64_t> ids,
                  TensorView rows) {
  ParameterInfo chunk = table;
  chunk.offset[0] = ids.front();
  chunk.local[0] = static_cast<std::int64_t>(ids.size());
  fill_host(chunk, random_key(seed_init, "init:" + table.spec.name), rows);
}

void initialise(ParameterSet& set, std::uint64_t seed_init, Device& device) {
  std::vector<std::byte> staging;
  for (const ParameterInfo& info : set.parameters()) {
    const RandomKey key = random_key(seed_init, "init:" + info.spec.name);
    TensorView host;
    host.dtype = info.spec.dtype;
    host.shape = info.local;
    if (RowTable* table = set.table(info.index)) {
      if (graph::holds_kept_rows(*table)) continue;
      graph::for_each_chunk(*table, [&](std::span<const std::int64_t> ids, TensorView rows) {
        initial_rows(info, seed_init, ids, rows);
        table->fill(ids, rows);
      });
      continue;
    }
    const TensorView target = set.tensor(info.index);
    if (target.empty()) continue;
    if (target.space == MemorySpace::kHost) {
      fill_host(info, key, target);
      continue;
    }
    staging.resize(host.bytes());
    host.data = staging.data();
    fill_host(info, key, host);
    device.copy(host, target);
  }
  set.touch(-1);
}

TENON_ABI_END
