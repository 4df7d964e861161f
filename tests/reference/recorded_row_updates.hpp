// Update rules on a row table: a table with state stepped by hand, and the trajectories that PyTorch recorded
// for an EmbeddingBag (row_optimizers.safetensors).
#pragma once

#include "graph/parameter_set.hpp"
#include "graph/row_gradients.hpp"
#include "graph/row_table.hpp"
#include "reference/recorded.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/optimizer_harness.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

/// A table of rows x width on its own, as the core would hold it for `optimizer`.
class RowHarness {
 public:
  RowHarness(Device& device, Optimizer& optimizer, DType dtype, std::int64_t width,
             const std::vector<double>& start)
      : device_(device),
        rule_(*static_cast<RowOptimizer*>(optimizer.query(RowOptimizer::kId))),
        dtype_(dtype),
        rows_(static_cast<std::int64_t>(start.size()) / width),
        weights_(
            graph::make_row_table({.table = "w", .last = rows_, .width = width, .dtype = dtype}, rows_)) {
    for (const RowStateSlot& slot : rule_.row_slots()) {
      const RowMemorySpec spec{.table = "w",
                               .state = slot.name,
                               .last = rows_,
                               .width = slot.width == 0 ? width : slot.width,
                               .dtype = dtype};
      state_.push_back(graph::make_row_table(spec, rows_));
      state_pointers_.push_back(state_.back().get());
    }
    std::vector<std::byte> bytes;
    weights_->write(all(), pack(start, width, bytes));
  }

  /// Adds the backward of a layer: rows, repeated if they were read twice, and their gradients.
  void step(const std::vector<std::int64_t>& ids, const std::vector<double>& values, double lr,
            std::int64_t count, double gradient_scale) {
    graph::RowGradients rows;
    std::vector<std::byte> bytes;
    rows.add(0, ids, pack(values, weights_->width(), bytes));
    rule_.step_rows({.lr = lr, .count = count, .gradient_scale = gradient_scale, .device = &device_},
                    *weights_, state_pointers_, rows.summed()[0]);
  }
  std::vector<double> weights() const { return unpack(*weights_); }
  std::vector<double> state(std::size_t slot) const { return unpack(*state_[slot]); }
  std::int64_t state_width(std::size_t slot) const { return state_[slot]->width(); }

 private:
  std::vector<std::int64_t> all() const {
    std::vector<std::int64_t> ids(rows_);
    std::iota(ids.begin(), ids.end(), std::int64_t{0});
    return ids;
  }
  TensorView pack(const std::vector<double>& values, std::int64_t width,
                  std::vector<std::byte>& bytes) const {
    const auto count = static_cast<std::int64_t>(values.size());
    bytes.resize(dtype_bytes(dtype_, count));
    const TensorView view{bytes.data(), Shape{count / width, width}, dtype_, MemorySpace::kHost};
    for (std::size_t i = 0; i < values.size(); ++i)
      dtype_ == DType::kF32 ? void(view.as<float>()[i] = static_cast<float>(values[i]))
                            : void(view.as<double>()[i] = values[i]);
    return view;
  }
  std::vector<double> unpack(const RowTable& table) const {
    std::vector<std::byte> bytes(dtype_bytes(dtype_, rows_ * table.width()));
    table.read(all(), {bytes.data(), Shape{rows_, table.width()}, dtype_, MemorySpace::kHost});
    return to_doubles(dtype_, bytes);
  }

  Device& device_;
  RowOptimizer& rule_;
  DType dtype_;
  std::int64_t rows_;
  std::unique_ptr<RowTable> weights_;
  std::vector<std::unique_ptr<RowTable>> state_;
  std::vector<RowTable*> state_pointers_;
};

struct RecordedRows {
  const char *name, *options;
  double lr;
  std::vector<const char*> states;
};

/// float32: three steps of at most five roundings of 2^-24 each, relative to the largest element.
inline constexpr std::pair<DType, double> kRowBounds[] = {{DType::kF64, 1e-12},
                                                          {DType::kF32, 15.0 / (1 << 24)}};

/// Trajectory and state in float64 and float32, with plain and fast kernels, on one thread and on two. Rows
/// that no batch read keep their bits and have no state. The gradients come scaled by 1/4 and are scaled back
/// as they are read.
inline void expect_recorded_rows(const RecordedRows& run, std::string_view type) {
  const Recorded recorded("row_optimizers");
  const std::string prefix = std::string(run.name) + ".";
  const Shape shape = recorded.shape(prefix + "w"), batch = recorded.shape("ids");
  const std::int64_t width = shape[2];
  const std::vector<double> start = recorded.row(prefix + "w", 0);
  for (const auto& [kernels, threads] : {std::pair{"reference", 1}, std::pair{"auto", 2}}) {
    Bench bench("cpu", kernels, threads);
    const auto optimizer = bench.make_component<Optimizer>(type, run.options);
    for (const auto& [dtype, bound] : kRowBounds) {
      RowHarness table(*bench.device, *optimizer, dtype, width, start);
      std::set<std::int64_t> touched;
      for (std::int64_t step = 0; step < batch[0]; ++step) {
        const auto places = recorded.row("ids", step), d_y = recorded.row("d_y", step);
        std::vector<std::int64_t> ids;
        std::vector<double> values;
        for (std::int64_t place = 0; place < batch[1] * batch[2]; ++place) {
          const auto id = static_cast<std::int64_t>(places[place]);
          if (id < 0) continue;
          ids.push_back(id);
          for (std::int64_t i = 0; i < width; ++i) values.push_back(d_y[place / batch[2] * width + i] / 4);
        }
        ASSERT_GT(ids.size(), std::set(ids.begin(), ids.end()).size()) << "the batch must repeat rows";
        touched.insert(ids.begin(), ids.end());
        table.step(ids, values, run.lr, step + 1, 4.0);
        EXPECT_LT(relative_error(table.weights(), recorded.row(prefix + "w", step + 1)), bound)
            << run.name << " " << kernels << " " << dtype_name(dtype) << " step " << step;
      }
      const std::vector<double> weights = table.weights();
      for (std::int64_t row = 0; row < shape[1]; ++row) {
        if (touched.count(row) > 0) continue;
        for (std::int64_t i = row * width; i < (row + 1) * width; ++i)
          EXPECT_EQ(weights[i], start[i]) << "row " << row;
      }
      ASSERT_LT(touched.size(), static_cast<std::size_t>(shape[1])) << "some row must stay unread";
      for (std::size_t slot = 0; slot < run.states.size(); ++slot) {
        const std::vector<double> found = table.state(slot),
                                  expected = recorded.values(prefix + run.states[slot]);
        const std::size_t state_width = table.state_width(slot);
        ASSERT_EQ(found.size(), expected.size()) << run.states[slot];
        std::vector<double> of_touched, expected_of_touched;
        for (std::size_t i = 0; i < found.size(); ++i) {
          if (touched.count(static_cast<std::int64_t>(i / state_width)) > 0) {
            of_touched.push_back(found[i]);
            expected_of_touched.push_back(expected[i]);
          } else {
            EXPECT_EQ(found[i], 0) << "an unread row has no state";
          }
        }
        EXPECT_LT(relative_error(of_touched, expected_of_touched), bound)
            << run.name << " " << run.states[slot];
      }
    }
  }
}

/// A batch that reads every row once: the table then moves like a dense tensor of its elements, to the same
/// bits, for every rule.
inline void expect_rows_equal_dense(const char* type, const char* options, double lr, bool decay) {
  constexpr std::int64_t kRows = 150, kWidth = 7;  // three blocks
  const std::vector<double> start = normals(kRows * kWidth, "start");
  std::vector<std::int64_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  Bench bench("cpu", "auto", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const auto optimizer = bench.make_component<Optimizer>(type, options);
    RowHarness rows(*bench.device, *optimizer, dtype, kWidth, start);
    OptimizerHarness dense(*bench.device, *optimizer, dtype, start);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const std::vector<double> gradients = normals(kRows * kWidth, "gradient" + std::to_string(step));
      rows.step(ids, gradients, lr, step, 0.5);
      dense.step(gradients, lr, step, 0.5, decay);
      ASSERT_EQ(rows.weights(), dense.weights()) << type << " step " << step;
    }
    for (std::size_t slot = 0; slot < optimizer->slots().size(); ++slot)
      EXPECT_EQ(rows.state(slot), dense.state(slot)) << type;
  }
}

}  // namespace tenon::testing
