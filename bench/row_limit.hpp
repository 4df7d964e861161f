// The time that the machine takes to reach rows of large tables: a bound for steps whose rows are anywhere in
// them. Beyond the caches a row costs a miss, and beyond the reach of the translation caches also the walk
// through the page tables, which in a virtual machine are those of the host, too.
#pragma once

#include "product_limit.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace tenon::bench {

/// A step reads `reads` rows of each of `tables` tables, and later reads and writes them together with a
/// float of their own.
struct RowAccesses {
  int tables = 0;
  std::int64_t rows = 0, width = 0, reads = 0;
};

/// The rows of one step at a time, in memory of the device, which is in huge pages like that of the tables.
class RowLimit {
 public:
  RowLimit(const RowAccesses& accesses, Device& device) : of_(accesses), ids_(of_.tables) {
    if (of_.width > kMostWidth)
      fail_run(fmt::format("rows of {} floats; expected at most {}", of_.width, kMostWidth));
    const auto written = [&](std::int64_t width) {
      auto memory = std::make_unique<DeviceMemory>(device, Shape{of_.rows, width}, DType::kF32);
      std::ranges::fill(memory->view().span<float>(), 1.0F);
      return memory;
    };
    for (int t = 0; t < of_.tables; ++t) {
      rows_.push_back(written(of_.width));
      numbers_.push_back(written(1));
    }
  }

  /// Median seconds of a step.
  double seconds() {
    std::vector<double> steps(kSteps);
    for (double& step : steps) {
      draw();
      step = timed([this] { read(); });
      for (std::vector<std::int64_t>& ids : ids_) {
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      }
      step += timed([this] { update(); });
    }
    std::nth_element(steps.begin(), steps.begin() + kSteps / 2, steps.end());
    return steps[kSteps / 2];
  }

 private:
  static constexpr int kSteps = 301;
  static constexpr std::size_t kBlock = 64;        ///< rows
  static constexpr std::size_t kAhead = 32;        ///< rows that are asked for before they are read
  static constexpr std::int64_t kMostWidth = 256;  ///< floats of a row

  template <class Run>
  static double timed(Run run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void draw() {
    std::uniform_int_distribution<std::int64_t> row(0, of_.rows - 1);
    for (std::vector<std::int64_t>& ids : ids_) {
      ids.resize(of_.reads);
      for (std::int64_t& id : ids) id = row(engine_);
    }
  }

  /// Calls run(table, its ids, begin and end of a block of them), blocks in parallel.
  template <class Run>
  void for_blocks(Run run) const {
    const std::int64_t blocks = (of_.reads + kBlock - 1) / kBlock;
    parallel_for(blocks * of_.tables, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::span<const std::int64_t> ids = ids_[item / blocks];
        const auto first = static_cast<std::size_t>(item % blocks * kBlock);
        run(item / blocks, ids, first, std::min(ids.size(), first + kBlock));
      }
    });
  }

  /// The sums of the rows, which stay with the thread.
  void read() {
    for_blocks(
        [&](std::int64_t table, std::span<const std::int64_t> ids, std::size_t begin, std::size_t end) {
          const float* const rows = static_cast<float*>(rows_[table]->view().data);
          std::array<float, kMostWidth> sums{};
          for (std::size_t i = begin; i < end; ++i) {
            if (i + kAhead < ids.size()) __builtin_prefetch(rows + ids[i + kAhead] * of_.width);
            for (std::int64_t j = 0; j < of_.width; ++j) sums[j] += rows[ids[i] * of_.width + j];
          }
          [[maybe_unused]] volatile float kept = sums[0];
        });
  }

  void update() {
    for_blocks(
        [&](std::int64_t table, std::span<const std::int64_t> ids, std::size_t begin, std::size_t end) {
          float* const rows = static_cast<float*>(rows_[table]->view().data);
          float* const numbers = static_cast<float*>(numbers_[table]->view().data);
          for (std::size_t i = begin; i < end; ++i) {
            if (i + kAhead < ids.size()) {
              __builtin_prefetch(rows + ids[i + kAhead] * of_.width, 1);
              __builtin_prefetch(numbers + ids[i + kAhead], 1);
            }
            numbers[ids[i]] += 1.0F;
            for (std::int64_t j = 0; j < of_.width; ++j) rows[ids[i] * of_.width + j] += 1.0F;
          }
        });
  }

  RowAccesses of_;
  std::vector<std::unique_ptr<DeviceMemory>> rows_, numbers_;
  std::vector<std::vector<std::int64_t>> ids_;
  std::mt19937_64 engine_{1};
};

}  // namespace tenon::bench
