// The maps `halo_exchange` and `halo_exchange_nested`.
#pragma once

#include "moves/linear_map.hpp"

#include <span>
#include <string>

namespace tenon::comm {

// The map `halo_exchange`: from a rank's part of a tensor to the window of it that its outputs read, with
// zeros where the window reaches beyond the tensor.

/// The window that the rank at `place` needs for its outputs. Its tensor begins where the window does, pads
/// included.
Need window_at(const MoveSpec& spec, const MeshPlace& place);
/// Extents of that tensor.
Shape window_shape(const MoveSpec& spec, const MeshPlace& place);

std::string refuse_windows(const MoveSpec& spec);
std::unique_ptr<LinearMap> make_windows(Mesh& mesh, const MoveSpec& spec);

// The map `halo_exchange_nested`: the windows of `halo_exchange` where none reaches beyond a neighbour's
// part, one dimension after another. Corners travel through shared neighbours, so a rank sends two messages
// per sharded dimension, not one to each of its 3^D - 1 neighbours. The price is one round per dimension, of
// which only the first is overlapped (the classical scheme of Hewett, Grady 2020).

/// Returns "", or why the map is impossible; also if a dimension is sharded over other axes after than
/// before. Ranks without outputs and windows that pads fill are allowed: nothing is fetched for them.
std::string refuse_nested_windows(const MoveSpec& spec, std::span<const int> mesh);
/// Windows have the bits of `halo_exchange`. The adjoint sums dimension by dimension, the last first, and
/// within one in ascending order of ranks: a fixed order other than that of `halo_exchange`.
std::unique_ptr<LinearMap> make_nested_windows(Mesh& mesh, const MoveSpec& spec);

}  // namespace tenon::comm
