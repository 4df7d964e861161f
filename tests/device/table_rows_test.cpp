// Rows of tables against plain loops: moves of any dtype, sums of bags and row-wise updates have the bits of
// those loops on every device.
#include "device_test.hpp"

#include <tenon/sdk/ops/table_rows.hpp>

#include <random>

namespace tenon::testing::table_rows_test {
namespace {

using ::testing::HasSubstr;

class RowsOfTables : public OnEveryChoice {
 protected:
  TableRowOps& ops() { return device_.family<TableRowOps>(); }
};

std::vector<std::byte> drawn_bytes(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Bytes of NaNs are moved like others. Words are as wide as rows allow: 1, 4 and 8 bytes.
TEST_P(RowsOfTables, MoveWithTheirBits) {
  constexpr std::int64_t kRows = 40, kFirst = 1000;
  const std::vector<std::int64_t> ids = {1039, 1000, 1017, 1003, 1038};
  const auto n = static_cast<std::int64_t>(ids.size());
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8})
    for (const std::int64_t width : {1, 3, 8, 300}) {
      const std::int64_t row_bytes = dtype_bytes(dtype, width);
      const auto before = drawn_bytes(kRows * row_bytes, 1), rows = drawn_bytes(n * row_bytes, 2);
      std::vector<std::byte> picked, after = before;
      for (std::int64_t i = 0; i < n; ++i) {
        const auto row = before.begin() + (ids[i] - kFirst) * row_bytes;
        picked.insert(picked.end(), row, row + row_bytes);
        std::copy_n(rows.begin() + i * row_bytes, row_bytes, after.begin() + (ids[i] - kFirst) * row_bytes);
      }
      Owned table(device_, {kRows, width}, dtype), id(device_, {n}, DType::kI64),
          out(device_, {n, width}, dtype), in(device_, {n, width}, dtype);
      table.put(before);
      id.put(ids);
      in.put(rows);
      ops().gather(table, kFirst, id, out);
      EXPECT_EQ(out.bytes(), picked) << dtype_name(dtype) << " " << width;
      EXPECT_EQ(table.bytes(), before);
      ops().scatter(in, table, kFirst, id);
      EXPECT_EQ(table.bytes(), after) << dtype_name(dtype) << " " << width;
      Owned none(device_, {0}, DType::kI64), no_rows(device_, {0, width}, dtype);
      ops().gather(table, kFirst, none, no_rows);
      ops().scatter(no_rows, table, kFirst, none);
      EXPECT_EQ(table.bytes(), after);
    }
}

/// Sums, and means, of bags, with empty bags and left-out ids.
template <class T>
std::vector<T> pooled(const std::vector<T>& table, std::int64_t width, const std::vector<std::int32_t>& ids,
                      std::int64_t length, bool mean) {
  std::vector<T> sums;
  for (std::size_t bag = 0; bag < ids.size(); bag += length) {
    std::vector<std::int32_t> present;
    std::copy_if(ids.begin() + bag, ids.begin() + bag + length, std::back_inserter(present),
                 [](std::int32_t id) { return id >= 0; });
    for (std::int64_t j = 0; j < width; ++j) {
      T sum = 0;
      for (std::size_t i = 0; i < present.size(); ++i) {
        const T value = table[present[i] * width + j];
        if (i == 0) sum = value;
        if (i > 0) sum += value;
      }
      if (mean && present.size() > 1) sum /= static_cast<T>(present.size());
      sums.push_back(sum);
    }
  }
  return sums;
}

template <class T>
void expect_pooled(Device& device, TableRowOps& ops, DType out_dtype) {
  constexpr DType kReal = sizeof(T) == 8 ? DType::kF64 : DType::kF32;
  constexpr std::int64_t kRows = 50, kBatch = 37, kBags = 3;
  std::mt19937 random(5);
  for (const std::int64_t width : {1, 5, 16})
    for (const std::int64_t length : {1, 4, 9}) {
      const auto drawn = numbers(kRows * width, "table", kReal);
      std::vector<T> table(drawn.begin(), drawn.end());
      table[0] = T{-0.0};
      std::vector<std::int32_t> ids(kBatch * kBags * length);
      for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % (kRows + 20)) - 20;
      for (std::int32_t& id : ids) id = std::max(id, -1);
      const auto old = numbers(kBatch * kBags * width, "old", out_dtype);
      Owned rows(device, {kRows, width}, kReal), id(device, {kBatch, kBags, length}, DType::kI32),
          out(device, {kBatch, kBags, width}, out_dtype, old);
      rows.put(table);
      id.put(ids);
      for (const bool mean : {false, true}) {
        const auto sums = pooled(table, width, ids, length, mean);
        const std::vector<double> expected = rounded({sums.begin(), sums.end()}, out_dtype);
        out.fill(old);
        ops.pool(rows, id, 2, mean, out);
        ops.pool(rows, id, 0, mean, out);
        const auto found = out.values();
        for (std::size_t i = 0; i < found.size(); ++i) {
          const bool asked = i / width % kBags != 1;
          ASSERT_EQ(found[i], asked ? expected[i] : old[i])
              << dtype_name(out_dtype) << ", width " << width << ", length " << length << ", element " << i;
        }
      }
    }
}

TEST_P(RowsOfTables, PoolBagsInTheOrderOfTheirIds) {
  expect_pooled<float>(device_, ops(), DType::kF32);
  expect_pooled<float>(device_, ops(), DType::kBF16);
  expect_pooled<double>(device_, ops(), DType::kF64);
}

template <class T>
void expect_row_update(Device& device, TableRowOps& ops) {
  constexpr DType kReal = sizeof(T) == 8 ? DType::kF64 : DType::kF32;
  constexpr std::int64_t kRows = 33;
  const double scale = 0.37;
  for (const std::int64_t width : {1, 7, 8, 16, 100}) {
    const auto x = numbers(kRows * width, "x", kReal), w = numbers(kRows * width, "w", kReal),
               rate = numbers(kRows, "rates", kReal);
    std::vector<T> means, moved;
    for (std::int64_t r = 0; r < kRows; ++r) {
      T part[8] = {};
      for (std::int64_t j = 0; j < width; ++j) {
        const T g = static_cast<T>(scale) * static_cast<T>(x[r * width + j]);
        part[j % 8] += g * g;
        moved.push_back(static_cast<T>(w[r * width + j]) - static_cast<T>(rate[r]) * g);
      }
      means.push_back(
          (((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]))) /
          static_cast<T>(width));
    }
    Owned x_t(device, {kRows, width}, kReal, x), w_t(device, {kRows, width}, kReal, w),
        rate_t(device, {kRows}, kReal, rate), mean_t(device, {kRows}, kReal);
    ops.mean_squares(x_t, scale, mean_t);
    ops.subtract_scaled(w_t, x_t, scale, rate_t);
    EXPECT_EQ(mean_t.elements<T>(), means) << width;
    EXPECT_EQ(w_t.elements<T>(), moved) << width;
  }
}

TEST_P(RowsOfTables, UpdateByOneNumberPerRow) {
  expect_row_update<float>(device_, ops());
  expect_row_update<double>(device_, ops());
}

TEST_P(RowsOfTables, DoNotDependOnTheNumberOfThreads) {
  constexpr std::int64_t kRows = 5000, kWidth = 24, kBatch = 999;
  std::vector<std::int32_t> ids(kBatch * 4);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7919 % kRows);
  Owned table(device_, {kRows, kWidth}, DType::kF32, numbers(kRows * kWidth, "table", DType::kF32)),
      id(device_, {kBatch, 1, 4}, DType::kI32), out(device_, {kBatch, 1, kWidth}, DType::kF32),
      means(device_, {kRows}, DType::kF32);
  id.put(ids);
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3}) {
    set_parallel_threads(threads);
    expect_no_allocations(device_, [&] {
      ops().pool(table, id, 0, false, out);
      ops().mean_squares(table, 2, means);
    });
    const std::vector<std::vector<std::byte>> all = {out.bytes(), means.bytes()};
    if (threads == 1) first = all;
    EXPECT_EQ(all, first) << threads;
  }
}

TEST_P(RowsOfTables, RefuseTensorsThatDoNotFit) {
  Owned table(device_, {4, 3}, DType::kF32), ids(device_, {2}, DType::kI64),
      narrow(device_, {2}, DType::kI32), rows(device_, {2, 3}, DType::kF32),
      wide(device_, {2, 4}, DType::kF32), bags(device_, {2, 1, 2}, DType::kI32),
      out(device_, {2, 1, 3}, DType::kF32), one(device_, {1}, DType::kF32),
      halves(device_, {2, 3}, DType::kBF16);
  EXPECT_THAT(message_of([&] { ops().gather(table, 0, narrow, rows); }), HasSubstr("ids"));
  EXPECT_THAT(message_of([&] { ops().gather(table, 0, ids, wide); }), HasSubstr("rows"));
  EXPECT_THAT(message_of([&] { ops().scatter(halves, table, 0, ids); }), HasSubstr("rows"));
  EXPECT_THAT(message_of([&] { ops().pool(table, bags, 1, false, out); }),
              HasSubstr(device_says("pool: expected ids [batch, bags, length], out [batch, bags, 3] and one "
                                    "of the bags, found [2, 1, 2], [2, 1, 3] and bag 1")));
  EXPECT_THAT(message_of([&] { ops().pool(table, bags, 0, false, rows); }), HasSubstr("expected ids"));
  EXPECT_THAT(message_of([&] { ops().mean_squares(rows, 1, one); }), HasSubstr("means"));
  EXPECT_NE(message_of([&] { ops().mean_squares(halves, 1, one); }), "");
  EXPECT_THAT(message_of([&] { ops().subtract_scaled(wide, rows, 1, one); }), HasSubstr("rates"));
}

INSTANTIATE_TEST_SUITE_P(Device, RowsOfTables, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::table_rows_test
