// Assigns trained parameters to fragments, and their elements to one packed buffer per arena.
#pragma once

#include <tenon/options.hpp>
#include <tenon/parameter.hpp>

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

}  // namespace tenon::sync_streaming
