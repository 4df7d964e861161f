#include "simulate/place.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string>

namespace tenon::simulate {
namespace {

std::int64_t number(const char* name, const char* text, std::int64_t least) {
  std::int64_t value = 0;
  const char* const end = text + std::char_traits<char>::length(text);
  const auto [stopped, code] = std::from_chars(text, end, value);
  if (code != std::errc() || stopped != end || value < least)
    fail_config(
        fmt::format("tenon simulate: {} is '{}', expected a whole number of at least {}", name, text, least));
  return value;
}

}  // namespace

std::optional<Place> launched() {
  // Slurm sets its first two for batch scripts, too; the number of a step's tasks only if srun started one.
  static constexpr const char* kNames[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                              {"PMI_RANK", "PMI_SIZE"},
                                              {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [index_name, count_name] : kNames) {
    const char *index = std::getenv(index_name), *count = std::getenv(count_name);
    if (index == nullptr || count == nullptr) continue;
    const Place place{number(index_name, index, 0), number(count_name, count, 1)};
    if (place.index >= place.count)
      fail_config(fmt::format("tenon simulate: {} is {}, and {} is {}: expected less", index_name,
                              place.index, count_name, place.count));
    if (place.count == 1) return std::nullopt;
    return place;
  }
  return std::nullopt;
}

}  // namespace tenon::simulate
