// Importance as drawings in SVG: a panel per layer with its scores, those that stay in one colour and those
// that go in another.
#pragma once

#include "kept.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tenon::minitron {

struct Panel {
  std::string title;
  std::vector<double> scores;
  std::vector<bool> stays;          ///< as scores
  std::vector<std::string> labels;  ///< under the bars; empty: the index
};

/// `unit`: what a bar is ("neuron"), `score`: what its height is. Up to 64 bars a panel are in their order;
/// more are sorted by score.
std::string figure(const std::string& title, const std::string& unit, const std::string& score,
                   const std::vector<Panel>& panels);

/// A drawing for each axis that was scored, by its name: "width", "hidden", "heads", "mamba_heads",
/// "mamba_head_width", "depth_METHOD".
std::vector<std::pair<std::string, std::string>> figures(const Importance& importance,
                                                         const DecoderShape& shape, const Plan& plan,
                                                         const Kept& kept);

}  // namespace tenon::minitron
