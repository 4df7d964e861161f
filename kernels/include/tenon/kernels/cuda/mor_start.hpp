// The launches of one mixture of representations, in order; `launch(grid, body)` starts a body. Nothing is
// read back in between: results stay on the device until the totals are complete.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/mor.hpp>

namespace tenon::kernels::cuda {

struct MorRules {
  MorStrategy strategy = MorStrategy::kGam;
  MorMode mode = MorMode::kTensor;
  bool e2m3 = false;
};

/// Rounds every block to its choice and leaves the totals in m.totals. With elements that are not finite only
/// `largest` and `non_zero` of them are meaningful. `choices` may be null.
template <class S, class Launch>
void start_mor(const MorMatrix<S>& m, const MorRules& rules, Bf16* values, std::uint8_t* choices,
               Launch launch) {
  constexpr std::int64_t kMost = 132 * 32, kFewColumns = 32;
  const auto grid = [](std::int64_t threads, std::size_t shared = 0) {
    const std::int64_t blocks = (threads + kMorThreads - 1) / kMorThreads;
    return Grid{blocks < 1 ? 1 : blocks < kMost ? blocks : kMost, kMorThreads, shared};
  };
  const std::int64_t blocks = m.across() * m.down(), columns = m.strips() * m.columns;
  const auto sum = [&](int which, bool settles) {
    const std::int64_t sums = m.strips() * m.across();
    if (m.block_columns < kFewColumns) {
      launch(grid(sums), MorSumFewColumns<S>{m});
    } else {
      launch(grid(sums * kMorThreads, kMorThreads * sizeof(float) + sizeof(double)), MorSumColumns<S>{m});
    }
    launch(grid(blocks), MorSumStrips<S>{m, which, settles});
  };
  launch(grid(blocks), MorClear<S>{m});
  if (blocks == 0) return;
  launch(grid(columns, kMorThreads * sizeof(MorSpan)), MorSpans<S>{m});
  launch(grid(blocks), MorChoose<S>{m, rules.strategy, rules.mode, rules.e2m3});
  if (rules.mode == MorMode::kQuantError) {
    for (const int which : {0, 1}) {
      launch(grid(columns), MorRound<S>{m, which, nullptr});
      sum(which, which == 1);
    }
  }
  launch(grid(columns), MorRound<S>{m, -1, values});
  sum(0, false);
  launch(Grid{1, kMorThreads, MorTotal<S>::kShared}, MorTotal<S>{m, choices});
}

/// Values become the input, and every choice kKeep; totals are left as they are.
template <class S, class Launch>
void start_mor_keep(const MorMatrix<S>& m, Bf16* values, Launch launch) {
  launch(grid_for(m.rows * m.columns), MorKeep<S>{m.x, m.rows * m.columns, values});
}

}  // namespace tenon::kernels::cuda
