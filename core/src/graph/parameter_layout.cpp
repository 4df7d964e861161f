// Layout of parameters in arenas and the arithmetic of shards.
#include "graph/parameter_layout.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

TENON_ABI_BEGIN

namespace {

const DimSharding* sharding_of(const ParameterSpec& spec, int dim) {
  for (const DimSharding& cut : spec.sharding) {
    if (cut.dim == dim) return &cut;
  }
  return nullptr;
}

/// Place of a rank along the axis that `cut` names.
std::size_t part_of(const ParameterSpec& spec, const DimSharding& cut, std::span<const int> coordinates,
                    int replica) {
  if (cut.axis == kReplicaAxis) {
    if (spec.role != Role::kRowTable) {
      fail_config(fmt::format("parameter '{}' is cut over the replicas; only row tables can be", spec.name));
    }
    return static_cast<std::size_t>(replica);
  }
  if (cut.axis < 0 || cut.axis >= static_cast<int>(coordinates.size())) {
    fail_config(fmt::format("parameter '{}' is cut along axis {} of the model grid, which has {} axes",
                            spec.name, cut.axis, coordinates.size()));
  }
  return static_cast<std::size_t>(coordinates[static_cast<std::size_t>(cut.axis)]);
}

std::pair<std::int64_t, std::int64_t> bounds(const ParameterSpec& spec, int dim,
                                             std::span<const int> coordinates, int replica) {
  const DimSharding* cut = sharding_of(spec, dim);
  if (cut == nullptr) return {0, spec.shape[dim]};
  const std::size_t part = part_of(spec, *cut, coordinates, replica);
  if (part + 1 >= cut->offsets.size() || cut->offsets.front() != 0 ||
      cut->offsets.back() != spec.shape[dim] || !std::is_sorted(cut->offsets.begin(), cut->offsets.end())) {
    const std::string along =
        cut->axis == kReplicaAxis ? "replica" : fmt::format("rank of axis {}", cut->axis);
    fail_config(fmt::format(
        "parameter '{}': the offset table of dimension {} must rise from 0 to {} with one part per {}",
        spec.name, dim, spec.shape[dim], along));
  }
  return {cut->offsets[part], cut->offsets[part + 1]};
}

}  // namespace

bool is_cut(const ParameterSpec& spec, int axis) noexcept {
  return std::any_of(spec.sharding.begin(), spec.sharding.end(),
                     [axis](const DimSharding& cut) { return cut.axis == axis; });
}

Shape local_shape(const ParameterSpec& spec, std::span<const int> coordinates, int replica) {
  Shape shape = spec.shape;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const auto [begin, end] = bounds(spec, dim, coordinates, replica);
    shape[dim] = end - begin;
  }
  return shape;
}

std::vector<std::int64_t> local_offset(const ParameterSpec& spec, std::span<const int> coordinates,
                                       int replica) {
  std::vector<std::int64_t> offset;
  for (int dim = 0; dim < spec.shape.rank(); ++dim)
    offset.push_back(bounds(spec, dim, coordinates, replica).first);
  return offset;
}

TENON_ABI_END

namespace tenon::graph {

ArenaUse arena_use(const ParameterSpec& spec) {
  if (spec.role == Role::kBuffer) return ArenaUse::kBuffer;
  return spec.trainable ? ArenaUse::kTrained : ArenaUse::kFrozen;
}

std::vector<ParameterInfo> lay_out(const std::vector<Declared>& declared, std::span<const int> coordinates,
                                   int replica) {
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
    info.local = local_shape(info.spec, coordinates, replica);
    info.offset = local_offset(info.spec, coordinates, replica);
    info.users = declared[index].users;
    if (info.spec.role != Role::kRowTable) {
      info.arena = arenas.at(Key{arena_use(info.spec), info.spec.dtype});
      std::int64_t& end = used[static_cast<std::size_t>(info.arena)];
      const std::int64_t step = std::max<std::int64_t>(1, 64 * 8 / dtype_bits(info.spec.dtype));
      info.begin = (end + step - 1) / step * step;
      end = info.begin + info.local.elements();
    }
    result.push_back(std::move(info));
  }
  return result;
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
