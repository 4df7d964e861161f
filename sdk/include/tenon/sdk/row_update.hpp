// Helpers for RowOptimizer: they update the rows of a table that a gradient names, block by block. They
// access a table through read and write alone, so a rule written with them works wherever the rows are
// stored. They copy no table and allocate nothing per step.
#pragma once

#include <tenon/optimizer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

TENON_ABI_BEGIN

/// Some rows with their gradients and their state, in host memory of the calling thread: row-major, of the
/// table's dtype (f32 or f64), the same rows in each.
struct RowBlock {
  TensorView weights;                 ///< [rows, width]; written back after the call
  TensorView gradients;               ///< [rows, width]; only read
  std::span<const TensorView> state;  ///< [rows, the state's width], in the order given; written back
};

/// Maximum rows of a block; fewer if the rows of weights and state would not fit into 32 KiB together.
inline constexpr std::int64_t kRowBlock = 64;
inline constexpr std::size_t kMostRowStates = 4;

namespace detail {
void update_row_blocks(RowTable& weights, std::span<RowTable* const> state, const RowGradient& gradient,
                       void* body, void (*call)(void*, const RowBlock&));
}

/// Calls body(const RowBlock&) for consecutive blocks of the gradient's rows, on several threads
/// (parallel_for). Rows of a gradient are unique, so no split changes the bits. Several threads may call this
/// for one table at once, as Hogwild workers do: blocks are private, and of two writes of one row the later
/// one stays. Memory beyond the thread's stack is used only for rows wider than 32 KiB with their state, and
/// the thread keeps it for the next call; the body must not call for_each_row_block. Throws Error(kRun) for
/// tensors that do not belong together, and what body throws.
template <typename Body>
void for_each_row_block(RowTable& weights, std::span<RowTable* const> state, const RowGradient& gradient,
                        Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::update_row_blocks(
      weights, state, gradient, const_cast<std::remove_const_t<Plain>*>(&body),
      [](void* opaque, const RowBlock& block) { (*static_cast<Plain*>(opaque))(block); });
}

/// For rules whose weight decay is part of the gradient: they would have to read a whole table in every step.
/// Throws Error(kConfig) if weight_decay is not 0 and a trainable table wants decay.
void refuse_decayed_tables(std::string_view optimizer, double weight_decay,
                           std::span<const ParameterInfo> parameters);

TENON_ABI_END
