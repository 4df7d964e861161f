// Assigns trained parameters to fragments, and their elements to one packed buffer per arena.
// Runs extend to the next parameter or the arena's end, so that a single fragment of everything equals the
// arena and its sum has the bits of an all-reduce of the arena.
#pragma once

#include <tenon/error.hpp>
#include <tenon/options.hpp>
#include <tenon/parameter.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::sync_streaming {

/// Neighbouring parameters of one arena, with the padding after each of them: elements [begin, begin +
/// elements), packed from element `at` on.
struct Run {
  std::int64_t begin = 0, elements = 0, at = 0;
};
struct Lane {
  int arena = 0;
  std::vector<Run> runs;
  std::int64_t elements = 0;  ///< packed
};
struct Fragment {
  std::vector<int> parameters;
  std::vector<Lane> lanes;  ///< by arena, those that contain a part of it
};

/// Returns `count` fragments, strided over the order of the parameters; or, with patterns, one for each, a
/// parameter going to the first pattern that matches its name. Throws Error(kConfig) if a fragment would be
/// empty or a parameter has none.
std::vector<Fragment> cut_fragments(const ParameterSet& live, std::int64_t count,
                                    std::span<const std::string_view> patterns);

/// Return the section of `arena` that a run covers, and the section of a packed buffer that holds it.
TensorView run_of(TensorView arena, const Run& run);
TensorView packed_run(TensorView buffer, const Run& run);

inline bool is_trained(const ParameterInfo& info) {
  return info.arena >= 0 && info.spec.role == Role::kParameter && info.spec.trainable;
}

inline std::size_t fragment_of(std::string_view name, std::span<const std::string_view> patterns) {
  const auto found = std::find_if(patterns.begin(), patterns.end(),
                                  [&](std::string_view pattern) { return matches_pattern(pattern, name); });
  if (found == patterns.end()) {
    fail_config(
        fmt::format("sync streaming_diloco: parameter '{}' belongs to no fragment; add a pattern that "
                    "matches it to sync.patterns, e.g. \"*\" as the last one",
                    name));
  }
  return found - patterns.begin();
}

inline void add(Fragment& fragment, const ParameterInfo& info, std::int64_t end) {
  fragment.parameters.push_back(info.index);
  auto lane = std::find_if(fragment.lanes.begin(), fragment.lanes.end(),
                           [&](const Lane& known) { return known.arena == info.arena; });
  if (lane == fragment.lanes.end())
    lane = fragment.lanes.insert(fragment.lanes.end(), Lane{info.arena, {}, 0});
  if (!lane->runs.empty() && lane->runs.back().begin + lane->runs.back().elements == info.begin)
    lane->runs.back().elements = end - lane->runs.back().begin;
  else
    lane->runs.push_back({info.begin, end - info.begin, lane->elements});
  lane->elements = lane->runs.back().at + lane->runs.back().elements;
}

inline TensorView part(TensorView view, std::int64_t begin, std::int64_t elements) {
  view.data = static_cast<std::byte*>(view.data) + dtype_bytes(view.dtype, begin);
  view.shape = Shape{elements};
  return view;
}

inline std::vector<Fragment> cut_fragments(const ParameterSet& live, std::int64_t count,
                                           std::span<const std::string_view> patterns) {
  std::vector<const ParameterInfo*> trained;
  for (const ParameterInfo& info : live.parameters()) {
    if (is_trained(info)) trained.push_back(&info);
  }
  const bool named = !patterns.empty();
  std::vector<Fragment> fragments(named ? patterns.size() : static_cast<std::size_t>(count));
  if (fragments.size() > trained.size()) {
    fail_config(fmt::format(
        "sync streaming_diloco: {} fragments, but the model has {} trained tensors, which are never split; "
        "lower sync.fragments",
        fragments.size(), trained.size()));
  }
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const ParameterInfo& info = *trained[i];
    // The next parameter of the arena begins where this one and its padding end.
    std::int64_t end = live.arena(info.arena).elements();
    for (std::size_t next = i + 1; next < trained.size(); ++next) {
      if (trained[next]->arena != info.arena) continue;
      end = trained[next]->begin;
      break;
    }
    add(fragments[named ? fragment_of(info.spec.name, patterns) : i % fragments.size()], info, end);
  }
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (!fragments[i].parameters.empty()) continue;
    fail_config(
        fmt::format("sync streaming_diloco: sync.patterns: no trained parameter is left for '{}'; every "
                    "pattern must be the first to match some name",
                    patterns[i]));
  }
  return fragments;
}

inline TensorView run_of(TensorView arena, const Run& run) {
  return part(arena, run.begin, run.elements);
}
inline TensorView packed_run(TensorView buffer, const Run& run) {
  return part(buffer, run.at, run.elements);
}

}  // namespace tenon::sync_streaming
