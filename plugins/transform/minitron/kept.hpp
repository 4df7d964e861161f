// From scores to what stays: the indices of channels, neurons, heads and layers, each ascending.
#pragma once

#include "importance.hpp"
#include "plan.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::minitron {

using Indices = std::vector<std::int64_t>;

/// The `count` highest scores; of equal ones the first. Ascending.
Indices highest(std::span<const double> scores, std::int64_t count);

/// What stays of one layer of the result.
struct KeptLayer {
  Indices hidden;
  Indices kv_heads;
  Indices heads;  ///< query heads, group after group of those that stay
  /// For each of `heads`, a head of its group that went and whose residual it takes; -1: none.
  Indices merged;
  Indices mamba_heads;  ///< equally many of every group
  Indices mamba_head_width;
};

struct Kept {
  Indices width;
  std::vector<KeptLayer> layers;  ///< as Plan::layers
};

/// Scores of keys and values: of a group of query heads the sum.
std::vector<double> group_scores(std::span<const double> heads, std::int64_t kv_heads);
/// Scores of a Mamba layer's head width over all heads: the root of the sum of squares.
std::vector<double> width_scores(std::span<const double> channels, std::int64_t heads);
/// Scores of a Mamba layer's heads over the `kept` elements of each.
std::vector<double> head_scores(std::span<const double> channels, std::int64_t heads, const Indices& kept);

/// Throws Error(kConfig) where `importance` lacks scores that the plan needs, or has others' numbers.
Kept choose(const DecoderShape& shape, const Plan& plan, const Importance& importance);

}  // namespace tenon::minitron
