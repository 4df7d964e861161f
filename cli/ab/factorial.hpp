// Main effects and interactions of two factors, as contrasts of the cells of each seed (paired by seed), and
// what a study of one factor at a time would have said. Source: Montgomery, Design and Analysis of
// Experiments, chapter 5; the contrasts are treatment contrasts, each level against the first. It knows no
// files.
#pragma once

#include "ab/analysis.hpp"

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::ab {

/// Final values by cell and seed.
using CellValues = std::vector<std::vector<double>>;

/// Factors that a mean holds at a level: (factor, level).
using Held = std::vector<std::pair<std::size_t, std::size_t>>;

/// By seed, the mean of the cells that have these levels.
std::vector<double> margin_of(std::span<const Factor> factors, const CellValues& values, const Held& held);

/// Every effect with its tests, adjusted over all of them (Holm), and its verdict. `same_weights(a, b)`: on
/// every seed cells a and b ended with the same weights.
FactorialResult effects_of(const Experiment& experiment, CellValues values,
                           const std::function<bool(std::size_t, std::size_t)>& same_weights);

/// effects_of() the runs of a study, which are all there.
FactorialResult analyse_factors(const Study& study);

/// "rounding=nearest".
std::string level_text(const Factor& factor, std::size_t level);
/// "rounding=nearest × rotation=none".
std::string interaction_text(std::span<const Factor> factors, const Interaction& interaction);

/// The end of `tenon ab`: the effects as a table, and how one factor at a time would have read.
std::string factorial_text(const StudyResult& result);
/// The page's verdicts, one per main effect and one on the interactions.
std::string factorial_verdicts(const StudyResult& result);
/// The page's facts on factors and cells, in place of those on arms.
std::string factorial_facts(const StudyResult& result);
/// The page's section: means of the cells, effects, interaction plots.
std::string factorial_section(const StudyResult& result);

}  // namespace tenon::ab
