// Row updates: every named row once and no other, for any width and any number of threads or callers.
#include "base/testing/allocation_count.hpp"
#include "graph/row_table.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/row_update.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace tenon::graph {
namespace {

/// A table whose element j of row r is r + j / 1024, a state of one element a row, gradients of every third
/// row.
template <typename Real>
struct Rows {
  Rows(std::int64_t rows, std::int64_t width, DType dtype)
      : weights(make_row_table({.table = "w", .last = rows, .width = width, .dtype = dtype}, rows)),
        state(make_row_table({.table = "s", .last = rows, .width = 1, .dtype = dtype}, rows)) {
    std::vector<std::int64_t> all(rows);
    std::iota(all.begin(), all.end(), std::int64_t{0});
    std::vector<Real> start(rows * width);
    for (std::size_t i = 0; i < start.size(); ++i)
      start[i] = static_cast<Real>(i / static_cast<std::size_t>(width)) +
                 static_cast<Real>(i % static_cast<std::size_t>(width)) / 1024;
    weights->write(all, {start.data(), Shape{rows, width}, dtype});
    for (std::int64_t row = 0; row < rows; row += 3) ids.push_back(row);
    values.resize(ids.size() * static_cast<std::size_t>(width));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Real>(i % 97) / 8;
    gradient.ids = ids;
    gradient.values = {values.data(), Shape{static_cast<std::int64_t>(ids.size()), width}, dtype};
    pointers[0] = state.get();
  }

  /// w -= g, and the state counts the updates of its row.
  void update() {
    for_each_row_block(*weights, pointers, gradient, [](const RowBlock& block) {
      const auto w = block.weights.template span<Real>(), g = block.gradients.template span<Real>();
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= g[i];
      for (Real& count : block.state[0].template span<Real>()) count += 1;
    });
  }

  std::vector<Real> all(const RowTable& table) const {
    std::vector<std::int64_t> every(table.rows());
    std::iota(every.begin(), every.end(), std::int64_t{0});
    std::vector<Real> out(every.size() * static_cast<std::size_t>(table.width()));
    table.read(every, {out.data(), Shape{table.rows(), table.width()}, table.dtype()});
    return out;
  }

  std::unique_ptr<RowTable> weights, state;
  RowTable* pointers[1];
  std::vector<std::int64_t> ids;
  std::vector<Real> values;
  RowGradient gradient;
};

template <typename Real>
void expect_every_named_row_once(DType dtype) {
  // The last width is more than 32 KiB a row.
  for (const std::int64_t width : {1, 3, 16, 200, 5000, 9001}) {
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      Rows<Real> rows(400, width, dtype);
      const std::vector<Real> before = rows.all(*rows.weights);
      rows.update();
      const std::vector<Real> after = rows.all(*rows.weights), counts = rows.all(*rows.state);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(width);
        const bool named = row % 3 == 0;
        const std::size_t at =
            row / 3 * static_cast<std::size_t>(width) + i % static_cast<std::size_t>(width);
        ASSERT_EQ(after[i], named ? before[i] - rows.values[at] : before[i])
            << "row " << row << " width " << width;
        ASSERT_EQ(counts[row], named ? 1 : 0);
      }
    }
  }
  set_parallel_threads(static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(RowUpdate, TouchesEveryNamedRowOnceAndNoOther) {
  expect_every_named_row_once<float>(DType::kF32);
  expect_every_named_row_once<double>(DType::kF64);
}

TEST(RowUpdate, BlocksFitAndFollowFromTheWidthAlone) {
  const struct { std::int64_t width, most; } cases[] = {{16, 64}, {500, 16}, {20000, 1}};
  for (const auto& c : cases) {
    for (const int threads : {1, 2}) {
      set_parallel_threads(threads);
      Rows<float> rows(300, c.width, DType::kF32);
      std::atomic<std::int64_t> seen{0}, whole{0};
      for_each_row_block(*rows.weights, rows.pointers, rows.gradient, [&](const RowBlock& block) {
        seen += block.weights.shape[0];
        if (block.weights.shape[0] == c.most) ++whole;
        EXPECT_LE(block.weights.shape[0], c.most);
        EXPECT_EQ(block.gradients.shape, block.weights.shape);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.weights.data) % 64, 0u);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.state[0].data) % 64, 0u);
      });
      EXPECT_EQ(seen, 100);
      EXPECT_EQ(whole, 100 / c.most) << c.width;
    }
  }
}

TEST(RowUpdate, ASteadyStepAllocatesNothing) {
  set_parallel_threads(1);
  for (const std::int64_t width : {16, 9001}) {
    Rows<float> rows(300, width, DType::kF32);
    rows.update();
    const auto before = testing::allocation_count();
    for (int step = 0; step < 5; ++step) rows.update();
    EXPECT_EQ(testing::allocation_count(), before) << width;
  }
}

/// Workers on rows of their own in one table do not affect each other.
TEST(RowUpdate, SeveralCallersAtOnceKeepTheirRowsApart) {
  for (const std::int64_t width : {16, 9001}) {
    Rows<float> rows(240, width, DType::kF32);
    const std::vector<float> before = rows.all(*rows.weights);
    std::vector<std::vector<std::int64_t>> mine(4);
    for (std::int64_t row = 0; row < 240; ++row) mine[row % 4].push_back(row);
    std::vector<std::thread> workers;
    for (const auto& ids : mine) {
      workers.emplace_back([&] {
        set_parallel_threads(1);
        std::vector<float> ones(ids.size() * static_cast<std::size_t>(width), 1.0F);
        RowGradient gradient;
        gradient.ids = ids;
        gradient.values = {ones.data(), Shape{static_cast<std::int64_t>(ids.size()), width}, DType::kF32};
        for (int step = 0; step < 20; ++step) {
          for_each_row_block(*rows.weights, {}, gradient, [](const RowBlock& block) {
            for (float& w : block.weights.span<float>()) w += 1;
          });
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    const std::vector<float> after = rows.all(*rows.weights);
    for (std::size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i] + 20, 1e-3);
  }
}

TEST(RowUpdate, SaysWhatDoesNotFit) {
  Rows<float> rows(9, 4, DType::kF32);
  const auto message = [&](RowTable& weights, std::span<RowTable* const> state, const RowGradient& gradient) {
    try {
      for_each_row_block(weights, state, gradient, [](const RowBlock&) {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto half = make_row_table({.table = "h", .last = 9, .width = 4, .dtype = DType::kBF16}, 9),
             wide = make_row_table({.table = "d", .last = 9, .width = 1, .dtype = DType::kF64}, 9);
  EXPECT_EQ(message(*half, {}, rows.gradient), "a row update takes tables of f32 and f64, found bf16");
  RowGradient narrow = rows.gradient;
  narrow.values.shape = Shape{3, 2};
  EXPECT_EQ(message(*rows.weights, {}, narrow),
            "a row update of 3 rows of 4 f32 found gradients [3, 2] of f32");
  RowTable* const doubles[] = {wide.get()};
  EXPECT_EQ(message(*rows.weights, doubles, rows.gradient), "a row update of f32 found a state table of f64");
  const std::vector<RowTable*> many(5, rows.state.get());
  EXPECT_EQ(message(*rows.weights, many, rows.gradient),
            "a row update takes at most 4 state tables, found 5");
}

TEST(RowUpdate, NamesTheTableThatCannotBeDecayed) {
  ParameterInfo dense, table;
  table.spec.name = "emb.0.weight";
  table.spec.role = Role::kRowTable;
  const ParameterInfo both[] = {dense, table};
  EXPECT_NO_THROW(refuse_decayed_tables("sgd", 0, both));
  EXPECT_NO_THROW(refuse_decayed_tables("sgd", 0.1, {&both[0], 1}));
  try {
    refuse_decayed_tables("sgd", 0.1, both);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(),
                 "optimizer sgd: weight_decay = 0.1 cannot be used with the row table 'emb.0.weight': it "
                 "would move every row in every step; set weight_decay = 0");
  }
  table.spec.decay = false;
  EXPECT_NO_THROW(refuse_decayed_tables("sgd", 0.1, {&table, 1}));
}

}  // namespace
}  // namespace tenon::graph
