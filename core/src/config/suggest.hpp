// "did you mean ...": the candidate nearest to a misspelt word.
#pragma once

#include <tenon/abi.hpp>

#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN
namespace config {

/// Edits (insert, delete, replace, transpose two neighbours) between two words; case and '-' for '_' are
/// free. Optimal string alignment distance (Damerau 1964, each part edited once).
int edit_distance(std::string_view a, std::string_view b);

/// The nearest candidate within a third of the word's length (at least one edit), "" when none is near. Ties
/// go to the longest common beginning, then to the earlier candidate.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'betas'?", or "" when nothing is near.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

}  // namespace config
TENON_ABI_END
