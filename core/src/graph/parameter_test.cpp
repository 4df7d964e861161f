// Parameters: arenas, shards, initial values and row tables.
#include "base/testing/allocation_count.hpp"
#include "graph/parameter_set.hpp"
#include "graph/row_gradients.hpp"
#include "graph/row_table.hpp"

#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/parallel.hpp>
#include <tenon/random.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace tenon::graph {
namespace {

ParameterSpec dense(const std::string& name, Shape shape, bool trainable) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.trainable = trainable;
  return spec;
}

std::vector<float> drawn(const ParameterSpec& spec) {
  const std::vector<ParameterInfo> laid = lay_out({{spec, 1, 0}}, {});
  std::vector<float> values(static_cast<std::size_t>(spec.shape.elements()));
  std::vector<std::int64_t> rows(values.size());
  std::iota(rows.begin(), rows.end(), 0);
  TensorView view;
  view.data = values.data(), view.dtype = DType::kF32, view.shape = spec.shape;
  initial_rows(laid.at(0), 3, rows, view);
  return values;
}

TEST(InitialValues, LogarithmicOnesLieInTheirRange) {
  ParameterSpec spec = dense("A_log", {512}, true);
  spec.init = Initializer::kLogOfUniform, spec.init_low = 1, spec.init_scale = 16;
  double sum = 0;
  for (const float x : drawn(spec)) {
    EXPECT_GE(std::exp(x), 1 - 1e-6);
    EXPECT_LE(std::exp(x), 16 * (1 + 1e-6));
    sum += std::exp(x);
  }
  EXPECT_NEAR(sum / 512, 8.5, 4 * 15 / std::sqrt(12 * 512.0));  // uniform before the logarithm

  spec.init = Initializer::kInverseSoftplusLogUniform, spec.init_low = 1e-3, spec.init_scale = 0.1;
  int below = 0;  // the geometric middle of the range
  for (const float x : drawn(spec)) {
    const double u = std::log1p(std::exp(x));
    EXPECT_GE(u, 1e-3 * (1 - 1e-5));
    EXPECT_LE(u, 0.1 * (1 + 1e-5));
    below += u < 0.01;
  }
  EXPECT_NEAR(below, 256, 4 * std::sqrt(512.0) / 2);
}

// Shards along any dimensions hold what single draws give their elements; a complex number is two of them.
TEST(InitialValues, AreFunctionsOfTheGlobalIndex) {
  struct Case {
    Shape shape, local, offset;
  };
  const std::vector<Case> cases = {{{700, 3}, {700, 3}, {0, 0}},      {{6, 5, 4}, {6, 5, 4}, {0, 0, 0}},
                                   {{6, 5, 4}, {2, 5, 4}, {3, 0, 0}}, {{6, 5, 4}, {2, 3, 4}, {4, 2, 0}},
                                   {{6, 5, 4}, {6, 2, 3}, {0, 1, 1}}, {{6, 5, 300}, {6, 5, 290}, {0, 0, 7}}};
  const RandomKey key = random_key(3, "init:w");
  for (const Case& one : cases) {
    for (const DType dtype : {DType::kF32, DType::kC128}) {
      for (const Initializer init :
           {Initializer::kNormal, Initializer::kUniform, Initializer::kUniformFromZero, Initializer::kOne}) {
        ParameterInfo info;
        info.spec = dense("w", one.shape, true);
        info.spec.dtype = dtype;
        info.spec.init = init;
        info.spec.init_scale = 0.3;
        info.local = one.local;
        info.offset = one.offset;
        const int parts = dtype_is_complex(dtype) ? 2 : 1;
        std::vector<std::byte> memory(dtype_bytes(dtype, one.local.elements()));
        TensorView view;
        view.data = memory.data();
        view.dtype = dtype;
        view.shape = one.local;
        std::vector<std::int64_t> ids(one.local[0]);
        std::iota(ids.begin(), ids.end(), one.offset[0]);
        initial_rows(info, 3, ids, view);
        for (std::int64_t i = 0; i < one.local.elements() * parts; ++i) {
          std::int64_t rest = i / parts, global = 0, stride = 1;
          for (int dim = one.shape.rank() - 1; dim >= 0; --dim) {
            global += (rest % one.local[dim] + one.offset[dim]) * stride;
            rest /= one.local[dim];
            stride *= one.shape[dim];
          }
          const auto element = static_cast<std::uint64_t>(global * parts + i % parts);
          const double u = random_uniform(key, 0, element);
          const double expected = init == Initializer::kNormal    ? 0.3 * random_normal(key, 0, element)
                                  : init == Initializer::kUniform ? 0.3 * (2 * u - 1)
                                  : init == Initializer::kOne     ? 1
                                                                  : 0.3 * u;
          const double found = parts == 2 ? view.as<double>()[i] : view.as<float>()[i];
          ASSERT_EQ(found, parts == 2 ? expected : static_cast<float>(expected))
              << one.local.text() << " of " << one.shape.text() << ", " << dtype_name(dtype) << ", element "
              << i;
        }
      }
    }
  }
}

TEST(InitialValues, LogarithmicOnesRefuseARangeThatBeginsAtZero) {
  ParameterSpec spec = dense("A_log", {4}, true);
  spec.init = Initializer::kLogOfUniform, spec.init_scale = 16;
  EXPECT_THROW(drawn(spec), Error);
}

TEST(ParameterLayout, FollowsBackwardFinishOrderAndAligns) {
  const std::vector<Declared> declared = {{dense("first", {3, 5}, true), 1, 2},
                                          {dense("last", {7}, true), 1, 0},
                                          {dense("frozen", {4}, false), 1, 1}};
  const auto laid = lay_out(declared, {});
  ASSERT_EQ(laid.size(), 3u);
  EXPECT_EQ(laid[0].spec.name, "last");
  EXPECT_EQ(laid[0].begin, 0);
  EXPECT_EQ(laid[2].spec.name, "first");
  EXPECT_EQ(laid[2].begin, 16);  // 7 floats, then the next 64-byte line
  EXPECT_EQ(arena_elements(laid, 0), 32);
  EXPECT_NE(laid[1].arena, laid[0].arena);
  EXPECT_EQ(arena_use(laid, 0), ArenaUse::kTrained);
  EXPECT_EQ(arena_use(laid, laid[1].arena), ArenaUse::kFrozen);
}

TEST(ParameterLayout, UnevenShardsCoverTheTensorOnce) {
  ParameterSpec spec = dense("w", {10, 4}, true);
  const int mesh[] = {3};
  spec.sharding = {{0, {0}, {0, 7, 7, 10}}};
  std::int64_t rows = 0;
  for (int part = 0; part < 3; ++part) {
    const int coordinates[] = {part};
    const Box held = local_part(spec, {mesh, coordinates});
    EXPECT_EQ(held.offset[0], rows);
    rows += held.extents[0];
  }
  EXPECT_EQ(rows, 10);
  spec.sharding[0].offsets = {0, 7, 6, 10};
  const int coordinates[] = {1};
  EXPECT_THROW(local_part(spec, {mesh, coordinates}), Error);
}

TEST(RowTable, ReadsWritesAndCountsOnlyOwnedRows) {
  const auto table = make_row_table({.table = "t", .first = 4, .last = 8, .width = 2}, 10);
  float values[] = {1, 2, 3, 4};
  const std::int64_t ids[] = {7, 4};
  TensorView view;
  view.data = values;
  view.shape = Shape{2, 2};
  table->write(ids, view);
  float out[4] = {};
  view.data = out;
  table->read(ids, view);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[3], 4);
  std::uint64_t versions[2];
  table->versions(ids, versions);
  EXPECT_EQ(versions[0], 1u);
  const std::int64_t foreign[] = {3, 8};
  EXPECT_THROW(table->read(foreign, view), Error);
}

TEST(RowGradients, SumsDuplicatesInOrderOfArrival) {
  RowGradients rows;
  float values[] = {1e8f, 1, 1, -1e8f, 5, 6};
  const std::int64_t ids[] = {9, 2, 9};
  TensorView view;
  view.data = values;
  view.shape = Shape{3, 2};
  rows.add(0, ids, view);
  const auto summed = rows.summed();
  ASSERT_EQ(summed.size(), 1u);
  ASSERT_EQ(summed[0].ids.size(), 2u);
  EXPECT_EQ(summed[0].ids[0], 2);
  EXPECT_EQ(summed[0].values.as<float>()[0], 1);
  EXPECT_EQ(summed[0].values.as<float>()[2], 1e8f + 5.0f);
  EXPECT_EQ(summed[0].values.as<float>()[3], 7);
  EXPECT_EQ(summed[0].counts[0], 1u);
  EXPECT_EQ(summed[0].counts[1], 2u);
  rows.clear();
  EXPECT_EQ(rows.summed()[0].ids.size(), 0u);
}

// Bags of varying length: a slot that reads more rows than any before must not always ask for memory.
TEST(RowGradients, SortIdsOfAnySizeAndKeepTheOrderOfEqualOnes) {
  RowGradients rows;
  std::map<std::int64_t, std::vector<float>> expected;  // of each id, what was added, in order
  std::vector<std::int64_t> ids;
  std::vector<float> values;
  const RandomKey key = random_key(1, "ids");
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const int bits = 1 + static_cast<int>(i % 40);
    ids.push_back(static_cast<std::int64_t>(random_below(key, 0, i, std::uint64_t{1} << bits)));
    values.push_back(static_cast<float>(random_normal(key, 1, i) * (i % 3 == 0 ? 1e6 : 1.0)));
    expected[ids.back()].push_back(values.back());
  }
  rows.add(0, ids, {values.data(), Shape{5000, 1}});
  const RowGradient found = rows.summed()[0];
  ASSERT_EQ(found.ids.size(), expected.size());
  std::size_t at = 0;
  for (const auto& [id, added] : expected) {
    ASSERT_EQ(found.ids[at], id);
    EXPECT_EQ(found.counts[at], added.size());
    EXPECT_EQ(found.values.as<float>()[at], std::accumulate(added.begin() + 1, added.end(), added[0])) << id;
    ++at;
  }
}

TEST(RowGradients, GrowToTwiceTheNeed) {
  set_parallel_threads(1);
  RowGradients rows;
  std::vector<std::int64_t> ids(200);
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  std::vector<float> values(400, 1.0f);
  const auto slot = [&](std::size_t count) {
    rows.clear();
    rows.add(0, std::span(ids).first(count),
             {values.data(), Shape{static_cast<std::int64_t>(count), 2}, DType::kF32});
    return rows.summed()[0].ids.size();
  };
  EXPECT_EQ(slot(100), 100u);
  const std::int64_t before = testing::allocation_count();
  for (std::size_t count = 101; count <= 200; ++count) EXPECT_EQ(slot(count), count);
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::graph
