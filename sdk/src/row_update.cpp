// Blocks of rows on the stack. Their size depends on the width alone, never on the number of threads.
#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/row_update.hpp>

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

class RowUpdate {
 public:
  RowUpdate(RowTable& weights, std::span<RowTable* const> state, const RowGradient& gradient)
      : gradient_(gradient),
        tables_(1 + state.size()),
        row_bytes_(dtype_bytes(weights.dtype(), weights.width())) {
    check(weights, state);
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
  void check(const RowTable& weights, std::span<RowTable* const> state) const {
    const DType dtype = weights.dtype();
    if (dtype != DType::kF32 && dtype != DType::kF64) {
      fail_run(fmt::format("a row update takes tables of f32 and f64, found {}", dtype_name(dtype)));
    }
    const TensorView& values = gradient_.values;
    const auto ids = static_cast<std::int64_t>(gradient_.ids.size());
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

}  // namespace

namespace detail {

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
