// Layout of parameters in arenas and the arithmetic of shards.
#include "graph/parameter_layout.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

TENON_ABI_BEGIN

bool is_cut(const ParameterSpec& spec, int axis) noexcept {
  return std::any_of(spec.sharding.begin(), spec.sharding.end(), [axis](const DimSharding& cut) {
    return std::find(cut.axes.begin(), cut.axes.end(), axis) != cut.axes.end();
  });
}

Box local_part(const ParameterSpec& spec, const GridPlace& place) {
  if (is_cut(spec, kReplicaAxis) && spec.role != Role::kRowTable)
    fail_config(fmt::format("parameter '{}' is cut over the replicas; only row tables can be", spec.name));
  for (const DimSharding& cut : spec.sharding) {
    const auto parts = static_cast<int>(cut.offsets.size()) - 1;
    if (cut.axes == std::vector{kReplicaAxis} && place.replica >= parts) {
      fail_config(
          fmt::format("parameter '{}': dimension {} is cut in {} parts over the replicas, but there is a "
                      "replica {}",
                      spec.name, cut.dim, parts, place.replica));
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

std::vector<ParameterInfo> lay_out(const std::vector<Declared>& declared, const GridPlace& place) {
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
