// Rows in device memory are those of host memory, to the bit, whatever reads, writes and updates them;
// updates bring gradients to the device and take no rows away; and requests that cannot be met say so.
#include "graph/row_table.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/ops/table_rows.hpp>
#include <tenon/sdk/row_update.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/tier.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

namespace tenon::tier_hbm::hbm_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The emulated device, with its copies counted.
class Counted final : public Device {
 public:
  explicit Counted(Device& device) : device_(device) {}
  void open(const DeviceSpec& spec) override { device_.open(spec); }
  MemorySpace space() const override { return device_.space(); }
  void* allocate(std::size_t bytes) override {
    ++allocations;
    return device_.allocate(bytes);
  }
  void release(void* memory, std::size_t bytes) noexcept override { device_.release(memory, bytes); }
  void copy(TensorView from, TensorView to) override {
    ++copies;
    device_.copy(from, to);
  }
  void synchronize() override { device_.synchronize(); }
  std::string_view kernel_choice() const override { return device_.kernel_choice(); }
  std::string_view features() const override { return device_.features(); }
  void* query(std::string_view id) override { return device_.query(id); }

  std::atomic<int> copies = 0, allocations = 0;

 private:
  Device& device_;
};

class HbmTier : public ::testing::Test, private RowPlaces {
 protected:
  static constexpr std::int64_t kRows = 700, kFirst = 100, kLast = 600;

  RowMemorySpec spec(std::int64_t width, DType dtype = DType::kF32, std::string_view state = {}) {
    return {.table = "emb.0.weight",
            .state = state,
            .first = kFirst,
            .last = kLast,
            .width = width,
            .dtype = dtype,
            .device = &device_};
  }
  std::unique_ptr<RowTable> in_hbm(const RowMemorySpec& spec) {
    return graph::make_row_table(spec, kRows, this);
  }
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& of) override {
    RowMemorySpec here = of;
    here.device = &device_;
    return tier_->allocate(here);
  }
  std::string refusal(const RowMemorySpec& of) {
    try {
      tier_->allocate(of);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  testing::Bench bench_{"cuda_emulated", "auto", 2, "memory_mib = 64"};
  Counted device_{*bench_.device};
  testing::Made<Tier> tier_ = bench_.make_component<Tier>("hbm", "");
};

/// All owned rows.
std::vector<std::byte> content(const RowTable& table) {
  std::vector<std::byte> all;
  graph::for_each_chunk(table, [&](std::span<const std::int64_t> ids, TensorView rows) {
    table.scan(ids, rows);
    all.insert(all.end(), rows.raw().begin(), rows.raw().end());
  });
  return all;
}

std::vector<std::uint64_t> versions(const RowTable& table) {
  std::vector<std::int64_t> ids(table.owned_last() - table.owned_first());
  std::iota(ids.begin(), ids.end(), table.owned_first());
  std::vector<std::uint64_t> found(ids.size());
  table.versions(ids, found);
  return found;
}

TEST_F(HbmTier, T1_RowsArePlainMemorysAfterRandomReadsAndWrites) {
  std::mt19937 random(1);
  // A row of 3 elements is odd in words; with 20,000 elements few rows fit the buffer.
  for (const auto& [width, dtype, calls] : {std::tuple{16, DType::kF32, 2500},
                                            {3, DType::kF32, 2500},
                                            {1, DType::kF64, 2500},
                                            {5, DType::kBF16, 1000},
                                            {20000, DType::kF32, 6}}) {
    const auto hbm = in_hbm(spec(width, dtype));
    const auto plain = graph::make_row_table(spec(width, dtype), kRows);
    std::int64_t moved = 0;
    for (int call = 0; call < calls; ++call) {
      std::vector<std::int64_t> ids(kLast - kFirst);
      std::iota(ids.begin(), ids.end(), kFirst);
      const bool run = random() % 4 == 0;  // neighbours in ascending order
      if (!run) std::shuffle(ids.begin(), ids.end(), random);
      const std::size_t begin = random() % ids.size(),
                        count = std::min<std::size_t>(random() % 80, ids.size() - begin);
      const auto some = std::span<const std::int64_t>(ids).subspan(begin, count);
      moved += static_cast<std::int64_t>(count);
      TensorView rows;
      rows.dtype = dtype;
      rows.shape = Shape{static_cast<std::int64_t>(count), width};
      std::vector<std::byte> values(static_cast<std::size_t>(rows.bytes()) + 1);
      rows.data = values.data();
      const unsigned what = random() % 4;
      if (what < 2) {
        for (std::byte& byte : values) byte = static_cast<std::byte>(random());
        for (RowTable* table : {hbm.get(), plain.get()}) {
          if (what == 0) table->write(some, rows);
          if (what == 1) table->fill(some, rows);
        }
        continue;
      }
      std::vector<std::byte> expected = values;
      TensorView other = rows;
      other.data = expected.data();
      plain->read(some, other);
      if (what == 2) hbm->read(some, rows);
      if (what == 3) hbm->scan(some, rows);
      ASSERT_EQ(values, expected) << "call " << call << ", width " << width;
    }
    EXPECT_EQ(content(*hbm), content(*plain)) << width << " " << dtype_name(dtype);
    EXPECT_EQ(versions(*hbm), versions(*plain));
    EXPECT_GT(moved, calls * 20);
  }
}

TEST_F(HbmTier, T1_ThreadsReadAndWriteRowsOfTheirOwn) {
  const auto hbm = in_hbm(spec(8)), plain = graph::make_row_table(spec(8), kRows);
  const auto work = [](RowTable& table, std::int64_t part) {
    std::mt19937 random(static_cast<unsigned>(part));
    std::vector<std::int64_t> ids;
    for (std::int64_t id = kFirst + part; id < kLast; id += 4) ids.push_back(id);
    std::vector<float> rows(ids.size() * 8);
    const TensorView view{rows.data(), Shape{static_cast<std::int64_t>(ids.size()), 8}};
    for (int turn = 0; turn < 50; ++turn) {
      table.read(ids, view);
      for (float& value : rows) value += static_cast<float>(random() % 100);
      table.write(ids, view);
    }
  };
  std::vector<std::thread> threads;
  for (std::int64_t part = 0; part < 4; ++part) threads.emplace_back([&, part] { work(*hbm, part); });
  for (std::thread& thread : threads) thread.join();
  for (std::int64_t part = 0; part < 4; ++part) work(*plain, part);
  EXPECT_EQ(content(*hbm), content(*plain));
}

struct RuleCase {
  const char *type, *options;
};

/// Weights and state of one rule.
struct Tables {
  std::unique_ptr<RowTable> weights;
  std::vector<std::unique_ptr<RowTable>> state;
  std::vector<RowTable*> pointers;
};

/// Versions of some rows of the weights, then of each state.
std::vector<std::uint64_t> versions_of(const Tables& tables, std::span<const std::int64_t> ids) {
  std::vector<std::uint64_t> all(ids.size() * (1 + tables.state.size()));
  const auto part = [&](std::size_t i) { return std::span(all).subspan(i * ids.size(), ids.size()); };
  tables.weights->versions(ids, part(0));
  for (std::size_t i = 0; i < tables.state.size(); ++i) tables.state[i]->versions(ids, part(1 + i));
  return all;
}

class HbmUpdates : public HbmTier, public ::testing::WithParamInterface<RuleCase> {
 protected:
  /// `own`, `state`: whether weights and state are in device memory.
  Tables tables(RowOptimizer& rule, std::int64_t width, DType dtype, bool own, bool state) {
    Tables made;
    const auto table = [&](const RowMemorySpec& of, bool device) {
      return device ? in_hbm(of) : graph::make_row_table(of, kRows);
    };
    made.weights = table(spec(width, dtype), own);
    for (const RowStateSlot& slot : rule.row_slots())
      made.state.push_back(table(spec(slot.width == 0 ? width : slot.width, dtype, slot.name), state));
    for (const auto& one : made.state) made.pointers.push_back(one.get());
    return made;
  }

  template <class Real>
  void expect_updates() {
    constexpr DType kReal = sizeof(Real) == 8 ? DType::kF64 : DType::kF32;
    const auto rule = bench_.make_component<Optimizer>(GetParam().type, GetParam().options);
    auto& rows = *static_cast<RowOptimizer*>(rule->query(RowOptimizer::kId));
    for (const std::int64_t width : {1, 7, 16}) {
      Tables plain = tables(rows, width, kReal, false, false), hbm = tables(rows, width, kReal, true, true),
             mixed = tables(rows, width, kReal, true, false);
      std::mt19937 random(2);
      std::normal_distribution<Real> normal;
      std::vector<std::int64_t> every(kLast - kFirst);
      std::iota(every.begin(), every.end(), kFirst);
      for (std::int64_t slot = 1; slot <= 12; ++slot) {
        std::vector<std::int64_t> ids;
        std::sample(every.begin(), every.end(), std::back_inserter(ids), 100, random);
        std::vector<Real> values(ids.size() * static_cast<std::size_t>(width));
        for (Real& value : values) value = normal(random);
        const RowGradient gradient{
            0, ids, {values.data(), Shape{static_cast<std::int64_t>(ids.size()), width}, kReal}};
        const UpdateContext context{.lr = 0.05, .count = slot, .gradient_scale = 0.37, .device = &device_};
        rows.step_rows(context, *plain.weights, plain.pointers, gradient);
        device_.copies = 0;
        device_.allocations = 0;
        const auto before = versions_of(hbm, ids);
        rows.step_rows(context, *hbm.weights, hbm.pointers, gradient);
        const auto after = versions_of(hbm, ids);
        for (std::size_t i = 0; i < after.size(); ++i) ASSERT_GT(after[i], before[i]) << i;
        EXPECT_EQ(device_.copies, 2) << "ids and gradients travel, rows do not";
        if (slot > 1) {
          EXPECT_EQ(device_.allocations, 0);
        }
        rows.step_rows(context, *mixed.weights, mixed.pointers, gradient);
      }
      for (Tables* other : {&hbm, &mixed}) {
        EXPECT_EQ(content(*other->weights), content(*plain.weights)) << width;
        for (std::size_t i = 0; i < plain.state.size(); ++i)
          EXPECT_EQ(content(*other->state[i]), content(*plain.state[i])) << width;
      }
      EXPECT_NE(content(*plain.weights), std::vector<std::byte>(content(*plain.weights).size()));
    }
  }
};

TEST_P(HbmUpdates, T1_AreThoseOfRowsInHostMemory) {
  expect_updates<float>();
  expect_updates<double>();
}

INSTANTIATE_TEST_SUITE_P(Rules, HbmUpdates,
                         ::testing::Values(RuleCase{"sgd", ""}, RuleCase{"adagrad", "eps = 1e-6"},
                                           RuleCase{"adagrad", "initial_accumulator = 0.5"},
                                           RuleCase{"rowwise_adagrad", ""},
                                           RuleCase{"rowwise_adagrad", "initial_accumulator = 0.1"},
                                           RuleCase{"adamw", "weight_decay = 0.0"}),
                         [](const auto& info) { return info.param.type + std::to_string(info.index); });

// Gradients beyond the size of one block are updated in several.
TEST_F(HbmTier, UpdatesManyRowsInBlocks) {
  const std::int64_t width = 40000;
  const auto hbm = in_hbm({.table = "wide", .first = kFirst, .last = kFirst + 160, .width = width});
  std::vector<std::int64_t> ids(160);
  std::iota(ids.begin(), ids.end(), kFirst);
  std::vector<float> values(ids.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1009);
  const TensorView view{values.data(), Shape{160, width}};
  int blocks = 0;
  std::int64_t rows = 0;
  const bool there =
      for_each_device_block(device_, *hbm, {}, {0, ids, view}, [&](const DeviceRowBlock& block) {
        ++blocks;
        rows += block.weights.shape[0];
        device_.copy(block.gradients, block.weights);
      });
  EXPECT_TRUE(there);
  EXPECT_EQ(rows, 160);
  EXPECT_GT(blocks, 2);
  const auto found = content(*hbm);
  ASSERT_EQ(found.size(), values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(found.data(), values.data(), found.size()), 0);
}

TEST_F(HbmTier, OffersItsRowsToOperators) {
  const auto hbm = in_hbm(spec(4));
  auto* const rows = static_cast<DeviceRows*>(hbm->query(DeviceRows::kId));
  ASSERT_NE(rows, nullptr);
  const TensorView view = rows->rows_on_device();
  EXPECT_EQ(view.shape, (Shape{kLast - kFirst, 4}));
  EXPECT_EQ(view.space, MemorySpace::kCuda);
  EXPECT_EQ(rows->rows_on_device().data, view.data);
  const std::vector<float> row = {1, 2, 3, 4};
  const std::int64_t id = kFirst + 7;
  hbm->write({&id, 1}, {const_cast<float*>(row.data()), Shape{1, 4}});
  std::vector<float> found(4);
  device_.copy(view.rows(7, 8), {found.data(), Shape{1, 4}});
  EXPECT_EQ(found, row);
  const auto before = versions(*hbm);
  rows->wrote({&id, 1});
  EXPECT_GT(versions(*hbm)[7], before[7]);
  EXPECT_EQ(static_cast<RowsAhead*>(hbm->query(RowsAhead::kId)), nullptr);
}

TEST_F(HbmTier, CountsReadsAndWritesButNoScans) {
  const auto hbm = in_hbm(spec(4));
  const std::vector<std::int64_t> ids = {101, 300, 599};
  std::vector<float> values(12);
  const TensorView view{values.data(), Shape{3, 4}};
  hbm->write(ids, view);
  hbm->fill(ids, view);
  hbm->read(ids, view);
  hbm->read(ids, view);
  hbm->scan(ids, view);
  std::vector<TierCount> counts;
  static_cast<TierCounts*>(hbm->query(TierCounts::kId))->counts([&](const TierCount& count) {
    counts.push_back(count);
  });
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].tier, "hbm");
  EXPECT_EQ(counts[0].reads, 6);
  EXPECT_EQ(counts[0].writes, 3);
}

TEST_F(HbmTier, TakesNoHostMemory) {
  EXPECT_EQ(tier_->host_bytes(spec(16)), 0);
}

TEST_F(HbmTier, RefusesADeviceOfHostMemory) {
  testing::Bench cpu("cpu", "reference", 1);
  RowMemorySpec on_cpu = spec(16);
  on_cpu.device = &*cpu.device;
  EXPECT_THAT(refusal(on_cpu),
              AllOf(HasSubstr("tier hbm: the run's device has no memory of its own"),
                    HasSubstr("'emb.0.weight' in tier dram, or set device.type to an accelerator")));
  EXPECT_THROW(tier_->host_bytes(on_cpu), Error);
  on_cpu.device = nullptr;
  EXPECT_THAT(refusal(on_cpu), HasSubstr("row table 'emb.0.weight' is made without a device"));
}

TEST_F(HbmTier, SaysWhatThereIsNoRoomFor) {
  EXPECT_THAT(
      refusal(spec(40000, DType::kF32, "optimizer.sum")),
      AllOf(HasSubstr("tier hbm: row table 'optimizer.sum of emb.0.weight', 500 rows of 160000 bytes"),
            HasSubstr("80000000")));
}

}  // namespace
}  // namespace tenon::tier_hbm::hbm_test
