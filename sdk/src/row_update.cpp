// Blocks of rows: on the stack, of a size that depends on the width alone, never on the number of threads; or
// in memory of a device.
#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/ops/table_rows.hpp>
#include <tenon/sdk/row_update.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

TENON_ABI_BEGIN

namespace {

struct alignas(64) Line {
  std::array<std::byte, 64> bytes;
};

constexpr std::int64_t kStackLines = (std::int64_t{32} << 10) / static_cast<std::int64_t>(sizeof(Line));

std::int64_t lines_of(std::int64_t bytes) {
  constexpr auto kLine = static_cast<std::int64_t>(sizeof(Line));
  return (bytes + kLine - 1) / kLine;
}

/// Lines for rows too wide for the stack. The thread keeps them: a steady step must not allocate.
Line* grown_lines(std::int64_t count) {
  thread_local std::vector<Line> lines;
  if (static_cast<std::int64_t>(lines.size()) < count) lines.resize(count);
  return lines.data();
}

void check_row_update(const RowTable& weights, std::span<RowTable* const> state,
                      const RowGradient& gradient) {
  const DType dtype = weights.dtype();
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    fail_run(fmt::format("a row update takes tables of f32 and f64, found {}", dtype_name(dtype)));
  }
  const TensorView& values = gradient.values;
  const auto ids = static_cast<std::int64_t>(gradient.ids.size());
  if (values.dtype != dtype || values.elements() != ids * weights.width()) {
    fail_run(fmt::format("a row update of {} rows of {} {} found gradients {} of {}", ids, weights.width(),
                         dtype_name(dtype), values.shape.text(), dtype_name(values.dtype)));
  }
  if (state.size() > kMostRowStates) {
    fail_run(
        fmt::format("a row update takes at most {} state tables, found {}", kMostRowStates, state.size()));
  }
  for (const RowTable* table : state) {
    if (table->dtype() != dtype) {
      fail_run(fmt::format("a row update of {} found a state table of {}", dtype_name(dtype),
                           dtype_name(table->dtype())));
    }
  }
}

class RowUpdate {
 public:
  RowUpdate(RowTable& weights, std::span<RowTable* const> state, const RowGradient& gradient)
      : gradient_(gradient),
        tables_(1 + state.size()),
        row_bytes_(dtype_bytes(weights.dtype(), weights.width())) {
    check_row_update(weights, state, gradient);
    table_[0] = &weights;
    std::int64_t bytes = row_bytes_;
    for (std::size_t i = 0; i < state.size(); ++i) {
      table_[1 + i] = state[i];
      bytes += dtype_bytes(state[i]->dtype(), state[i]->width());
    }
    // Every table begins on a line of its own.
    const std::int64_t room = (kStackLines - static_cast<std::int64_t>(tables_)) * 64;
    rows_ = std::clamp<std::int64_t>(room / std::max<std::int64_t>(1, bytes), 1, kRowBlock);
    for (std::size_t i = 0; i < tables_; ++i)
      lines_ += lines_of(dtype_bytes(table_[i]->dtype(), rows_ * table_[i]->width()));
  }

  std::int64_t rows_of_a_block() const { return rows_; }

  void run(std::int64_t begin, std::int64_t end, void* body, void (*call)(void*, const RowBlock&)) const {
    if (lines_ > kStackLines) return run_in(grown_lines(lines_), begin, end, body, call);
    std::array<Line, static_cast<std::size_t>(kStackLines)> lines;
    run_in(lines.data(), begin, end, body, call);
  }

 private:
  void run_in(Line* lines, std::int64_t begin, std::int64_t end, void* body,
              void (*call)(void*, const RowBlock&)) const {
    const std::int64_t rows = end - begin;
    const auto ids = gradient_.ids.subspan(begin, rows);
    std::array<TensorView, 1 + kMostRowStates> views;
    for (std::size_t i = 0; i < tables_; ++i) {
      views[i] = {lines, Shape{rows, table_[i]->width()}, table_[i]->dtype(), MemorySpace::kHost};
      lines += lines_of(views[i].bytes());
      table_[i]->read(ids, views[i]);
    }
    TensorView gradients = views[0];
    gradients.data = static_cast<std::byte*>(gradient_.values.data) + begin * row_bytes_;
    call(body, {views[0], gradients, std::span<const TensorView>(views).subspan(1, tables_ - 1)});
    for (std::size_t i = 0; i < tables_; ++i) table_[i]->write(ids, views[i]);
  }

  const RowGradient& gradient_;
  std::size_t tables_;
  std::int64_t row_bytes_;
  std::array<RowTable*, 1 + kMostRowStates> table_{};  // weights, then state
  std::int64_t rows_ = 1, lines_ = 0;                  // of a whole block
};

/// Bytes of a block on a device, about: gradients of a batch pass in few blocks, and rooms stay small.
constexpr std::int64_t kDeviceBlockBytes = std::int64_t{16} << 20;

/// An update of rows that a device holds.
class DeviceRowUpdate {
 public:
  DeviceRowUpdate(Device& device, TableRowOps& ops, const RowGradient& gradient)
      : device_(device), ops_(ops), gradient_(gradient) {}

  /// False where the rows of the table are elsewhere.
  bool add(RowTable& table) {
    auto* const rows = static_cast<DeviceRows*>(table.query(DeviceRows::kId));
    if (rows == nullptr || tables_ == held_.size()) return false;
    held_[tables_++] = {rows, rows->rows_on_device(), table.owned_first(), table.width()};
    return true;
  }

  void run(DeviceRowRoom& room, void* body, void (*call)(void*, const DeviceRowBlock&)) {
    const DType dtype = held_[0].rows.dtype;
    std::int64_t row_bytes = sizeof(std::int64_t) + dtype_bytes(dtype, 1 + held_[0].width);
    for (std::size_t i = 0; i < tables_; ++i) row_bytes += dtype_bytes(dtype, held_[i].width);
    const std::int64_t most = std::max<std::int64_t>(1, kDeviceBlockBytes / row_bytes);
    const auto ids = static_cast<std::int64_t>(gradient_.ids.size());
    for (std::int64_t begin = 0; begin < ids; begin += most) {
      const std::int64_t rows = std::min(most, ids - begin);
      // Ids, gradients, numbers and the rows of every table, each from a line of its own on.
      room_ = room.room(rows * row_bytes + static_cast<std::int64_t>(3 + tables_) * 64);
      run_block(begin, rows, body, call);
    }
  }

 private:
  struct Held {
    DeviceRows* of;
    TensorView rows;
    std::int64_t first, width;
  };

  /// The next part of the room.
  TensorView part(const Shape& shape, DType dtype) {
    const TensorView view{room_.data, shape, dtype, room_.space};
    const std::int64_t bytes = lines_of(view.bytes()) * 64;
    room_ = {static_cast<std::byte*>(room_.data) + bytes, Shape{room_.shape[0] - bytes}, DType::kU8,
             room_.space};
    return view;
  }

  void run_block(std::int64_t begin, std::int64_t rows, void* body,
                 void (*call)(void*, const DeviceRowBlock&)) {
    const auto ids = gradient_.ids.subspan(begin, rows);
    const TensorView there = part(Shape{rows}, DType::kI64);
    device_.copy({const_cast<std::int64_t*>(ids.data()), there.shape, there.dtype, MemorySpace::kHost},
                 there);
    const DType dtype = held_[0].rows.dtype;
    DeviceRowBlock block;
    block.numbers = part(Shape{rows}, dtype);
    block.gradients = part(Shape{rows, held_[0].width}, dtype);
    TensorView from = block.gradients;
    from.data = static_cast<std::byte*>(gradient_.values.data) + dtype_bytes(dtype, begin * held_[0].width);
    from.space = gradient_.values.space;
    device_.copy(from, block.gradients);
    std::array<TensorView, 1 + kMostRowStates> views;
    for (std::size_t i = 0; i < tables_; ++i) {
      views[i] = part(Shape{rows, held_[i].width}, dtype);
      ops_.gather(held_[i].rows, held_[i].first, there, views[i]);
    }
    block.weights = views[0];
    block.state = std::span<const TensorView>(views).subspan(1, tables_ - 1);
    call(body, block);
    for (std::size_t i = 0; i < tables_; ++i) {
      ops_.scatter(views[i], held_[i].rows, held_[i].first, there);
      held_[i].of->wrote(ids);
    }
  }

  Device& device_;
  TableRowOps& ops_;
  const RowGradient& gradient_;
  std::array<Held, 1 + kMostRowStates> held_{};  // weights, then state
  std::size_t tables_ = 0;
  TensorView room_;  // what is left of it
};

}  // namespace

DeviceRowRoom::~DeviceRowRoom() = default;

namespace detail {

bool update_device_rows(Device& device, RowTable& weights, std::span<RowTable* const> state,
                        const RowGradient& gradient, void* body, void (*call)(void*, const DeviceRowBlock&)) {
  auto* const ops = static_cast<TableRowOps*>(device.query(TableRowOps::kId));
  auto* const room = static_cast<DeviceRowRoom*>(weights.query(DeviceRowRoom::kId));
  if (ops == nullptr || room == nullptr) return false;
  DeviceRowUpdate update(device, *ops, gradient);
  if (!update.add(weights)) return false;
  for (RowTable* table : state) {
    if (!update.add(*table)) return false;
  }
  check_row_update(weights, state, gradient);
  update.run(*room, body, call);
  return true;
}

void update_row_blocks(RowTable& weights, std::span<RowTable* const> state, const RowGradient& gradient,
                       void* body, void (*call)(void*, const RowBlock&)) {
  const RowUpdate update(weights, state, gradient);
  parallel_for(static_cast<std::int64_t>(gradient.ids.size()), update.rows_of_a_block(),
               [&](std::int64_t begin, std::int64_t end) { update.run(begin, end, body, call); });
}

}  // namespace detail

void refuse_decayed_tables(std::string_view optimizer, double weight_decay,
                           std::span<const ParameterInfo> parameters) {
  if (weight_decay == 0) return;
  for (const ParameterInfo& info : parameters) {
    const ParameterSpec& spec = info.spec;
    if (spec.role != Role::kRowTable || !spec.trainable || !spec.decay) continue;
    fail_config(
        fmt::format("optimizer {}: weight_decay = {} cannot be used with the row table '{}': it would move "
                    "every row in every step; set weight_decay = 0",
                    optimizer, weight_decay, spec.name));
  }
}

TENON_ABI_END
