// Helpers for RowOptimizer: they update the rows of a table that a gradient names, block by block. Blocks are
// read and written, so a rule written with them works wherever the rows are stored; a rule that a device can
// compute updates rows in the device's memory there. They copy no table and allocate nothing per step.
#pragma once

#include <tenon/device.hpp>
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

/// The same in memory of a device.
struct DeviceRowBlock {
  TensorView weights;                 ///< [rows, width]; written back after the call
  TensorView gradients;               ///< [rows, width]; a copy
  std::span<const TensorView> state;  ///< [rows, the state's width]; written back
  TensorView numbers;                 ///< [rows], with unspecified values: for the rule's own use
};

/// Offered by RowTable::query where DeviceRows is: memory of the device for rows on their way.
class DeviceRowRoom {
 public:
  static constexpr const char* kId = "tenon.row_table.device_room/1";
  virtual ~DeviceRowRoom();
  /// u8 [bytes] with unspecified values, aligned to 64 bytes, valid until the next call; kept for it. One
  /// thread.
  virtual TensorView room(std::int64_t bytes) = 0;
};

namespace detail {
void update_row_blocks(RowTable& weights, std::span<RowTable* const> state, const RowGradient& gradient,
                       void* body, void (*call)(void*, const RowBlock&));
bool update_device_rows(Device& device, RowTable& weights, std::span<RowTable* const> state,
                        const RowGradient& gradient, void* body, void (*call)(void*, const DeviceRowBlock&));
}  // namespace detail

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

/// Where all rows are in the device's memory and it has TableRowOps: copies the gradients there, calls
/// body(const DeviceRowBlock&) with the rows that they name, of several blocks if they are many, and returns
/// true. Else returns false at once. One thread for one table at a time. Throws as for_each_row_block does.
template <typename Body>
bool for_each_device_block(Device& device, RowTable& weights, std::span<RowTable* const> state,
                           const RowGradient& gradient, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  return detail::update_device_rows(
      device, weights, state, gradient, const_cast<std::remove_const_t<Plain>*>(&body),
      [](void* opaque, const DeviceRowBlock& block) { (*static_cast<Plain*>(opaque))(block); });
}

/// For rules whose weight decay is part of the gradient: they would have to read a whole table in every step.
/// Throws Error(kConfig) if weight_decay is not 0 and a trainable table wants decay.
void refuse_decayed_tables(std::string_view optimizer, double weight_decay,
                           std::span<const ParameterInfo> parameters);

TENON_ABI_END
