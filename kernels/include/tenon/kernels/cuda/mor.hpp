// Kernel bodies of mixtures of representations (mor.hpp): spans of blocks, the choice for each block,
// rounding with sums of errors, and the totals that decide about the tensor. Sums are in the order of
// mor.hpp, so decisions are the host's. Neighbouring threads process neighbouring columns of a strip of rows.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/mor.hpp>

namespace tenon::kernels::cuda {

inline constexpr int kMorThreads = 128;
inline constexpr std::uint32_t kMorNone = kInfinityBits;  ///< as the smallest magnitude: none was found

/// State of a block. Bits of magnitudes are those of floats.
struct MorBlock {
  std::uint32_t largest, smallest;
  std::int64_t non_zero;
  float scales[2];  ///< of the chosen format, and of E5M2 while the block is undecided
  double error[2];
  std::int64_t choice;
};

/// Totals that the host reads back.
struct MorTotals {
  double error;
  std::int64_t non_zero, blocks[4], elements[4];
  std::uint32_t largest;
};

/// An element as a bfloat16: the same bits, or rounded.
TENON_BOTH inline Bf16 mor_input(Bf16 x) {
  return x;
}
TENON_BOTH inline Bf16 mor_input(float x) {
  return to_bf16(x);
}

/// A matrix split into blocks, and those into strips of at most kMorStrip rows.
template <class S>
struct MorMatrix {
  const S* x;
  std::int64_t rows, columns, block_rows, block_columns;
  MorBlock* blocks;
  float* sums;     ///< [strips, columns]: errors of a column within a strip
  double* errors;  ///< [strips, across]: of a block within a strip
  MorTotals* totals;

  TENON_BOTH std::int64_t across() const { return (columns + block_columns - 1) / block_columns; }
  TENON_BOTH std::int64_t down() const { return (rows + block_rows - 1) / block_rows; }
  TENON_BOTH std::int64_t strips_of_block() const { return (block_rows + kMorStrip - 1) / kMorStrip; }
  TENON_BOTH std::int64_t strips() const {
    return rows / block_rows * strips_of_block() + (rows % block_rows + kMorStrip - 1) / kMorStrip;
  }
  TENON_BOTH std::int64_t first_row(std::int64_t strip) const {
    return strip / strips_of_block() * block_rows + strip % strips_of_block() * kMorStrip;
  }
  TENON_BOTH std::int64_t last_row(std::int64_t strip) const {
    const std::int64_t end =
        Smaller{}(first_row(strip) + kMorStrip, (strip / strips_of_block() + 1) * block_rows);
    return Smaller{}(end, rows);
  }
  TENON_BOTH MorBlock& block_of(std::int64_t strip, std::int64_t column) const {
    return blocks[strip / strips_of_block() * across() + column / block_columns];
  }
  TENON_BOTH float at(std::int64_t row, std::int64_t column) const {
    return to_float(mor_input(x[row * columns + column]));
  }
};

template <class S>
struct MorClear {
  MorMatrix<S> m;

  TENON_BOTH void operator()(const Block& block) const {
    const MorMatrix<S>& of = m;
    for_each_element(block, of.across() * of.down(), [&](std::int64_t b) {
      of.blocks[b] = {.largest = 0,
                      .smallest = kMorNone,
                      .non_zero = 0,
                      .scales = {1, 1},
                      .error = {0, 0},
                      .choice = static_cast<std::int64_t>(MorChoice::kKeep)};
    });
    block.each([&](int thread) {
      if (thread == 0 && block.index() == 0) *of.totals = {};
    });
  }
};

struct MorSpan {
  std::uint32_t largest, smallest;
  std::int64_t non_zero;
};
struct JoinSpans {
  TENON_BOTH MorSpan operator()(const MorSpan& a, const MorSpan& b) const {
    return {Larger{}(a.largest, b.largest), Smaller{}(a.smallest, b.smallest), a.non_zero + b.non_zero};
  }
};

/// Largest and smallest magnitude of every block, and its number of elements that are not zero.
template <class S>
struct MorSpans {
  MorMatrix<S> m;

  TENON_BOTH void operator()(const Block& block) const {
    const MorMatrix<S>& of = m;
    auto* const found = block.shared<MorSpan>();
    const std::int64_t n = of.strips() * of.columns;
    for (std::int64_t begin = block.index() * block.threads(); begin < n;
         begin += block.blocks() * block.threads()) {
      const std::int64_t last = Smaller{}(begin + block.threads(), n) - 1;
      // One of the threads reports for all if they are in one block.
      const bool alone = &of.block_of(begin / of.columns, begin % of.columns) ==
                         &of.block_of(last / of.columns, last % of.columns);
      block.each([&](int thread) {
        const std::int64_t at = begin + thread;
        found[thread] = {0, kMorNone, 0};
        if (at > last) return;
        found[thread] = span_of(of, at / of.columns, at % of.columns);
        if (!alone) tell(of, at, found[thread]);
      });
      if (!alone) continue;
      reduce_block(block, found, JoinSpans{});
      block.each([&](int thread) {
        if (thread == 0) tell(of, begin, found[0]);
      });
    }
  }

 private:
  TENON_BOTH static MorSpan span_of(const MorMatrix<S>& of, std::int64_t strip, std::int64_t column) {
    MorSpan span = {0, kMorNone, 0};
    for (std::int64_t row = of.first_row(strip); row < of.last_row(strip); ++row) {
      const std::uint32_t magnitude = magnitude_bits(of.at(row, column));
      if (magnitude != 0) span = JoinSpans{}(span, {magnitude, magnitude, 1});
    }
    return span;
  }
  TENON_BOTH static void tell(const MorMatrix<S>& of, std::int64_t at, const MorSpan& span) {
    MorBlock& block = of.block_of(at / of.columns, at % of.columns);
    raise(&block.largest, span.largest);
    lower(&block.smallest, span.smallest);
    add_to(&block.non_zero, span.non_zero);
    raise(&of.totals->largest, span.largest);
  }
};

/// Chooses the format of each block by its span, and its scale.
template <class S>
struct MorChoose {
  MorMatrix<S> m;
  MorStrategy strategy;
  MorMode mode;
  bool e2m3;

  TENON_BOTH float scale_of(const MorBlock& of, MorChoice choice) const {
    return mor_scale(strategy, std::bit_cast<float>(of.largest), std::bit_cast<float>(m.totals->largest),
                     layout_of(mor_element(choice)).largest);
  }
  TENON_BOTH void operator()(const Block& block) const {
    const MorChoose& a = *this;
    for_each_element(block, m.across() * m.down(), [&](std::int64_t b) {
      MorBlock& of = a.m.blocks[b];
      MorChoice choice = MorChoice::kE4M3;
      if (a.mode != MorMode::kTensor) {
        const float smallest = of.non_zero > 0 ? std::bit_cast<float>(of.smallest) : 0.0f;
        choice = mor_by_span(mor_span(std::bit_cast<float>(of.largest), smallest), a.mode, a.e2m3);
      }
      of.scales[0] = of.scales[1] = a.scale_of(of, choice);
      if (a.mode == MorMode::kQuantError && choice == MorChoice::kE5M2)
        of.scales[0] = a.scale_of(of, MorChoice::kE4M3);
      of.choice = static_cast<std::int64_t>(choice);
    });
  }
};

/// Rounds the columns of strips and sums their errors from the top: blocks as they were chosen, into `out`;
/// or (`which` 0 or 1) only undecided ones, in E4M3 or E5M2, to measure.
template <class S>
struct MorRound {
  MorMatrix<S> m;
  int which;  ///< -1: as chosen
  Bf16* out;

  TENON_BOTH void operator()(const Block& block) const {
    const MorRound& a = *this;
    const MorMatrix<S>& of = m;
    for_each_element(block, of.strips() * of.columns, [&](std::int64_t at) {
      const std::int64_t strip = at / of.columns, column = at % of.columns;
      const MorBlock& own = of.block_of(strip, column);
      const auto choice = static_cast<MorChoice>(own.choice);
      const bool measures = a.which >= 0, keeps = !measures && choice == MorChoice::kKeep;
      of.sums[at] = 0;
      if (measures && choice != MorChoice::kE5M2) return;
      const Element element =
          measures ? (a.which == 0 ? Element::kE4M3 : Element::kE5M2) : mor_element(choice);
      const float scale = own.scales[a.which == 1 ? 1 : 0];
      float sum = 0;
      for (std::int64_t row = of.first_row(strip); row < of.last_row(strip); ++row) {
        const float x = of.at(row, column), y = keeps ? x : mor_round(x, scale, element);
        if (!keeps && x != 0) sum += mor_error(x, y);
        if (!measures) a.out[row * of.columns + column] = keeps ? to_bf16(x) : mor_bf16(y);
      }
      of.sums[at] = sum;
    });
  }
};

/// Adds sums of columns to sums of blocks within strips, columns from the left: one thread adds what all have
/// read.
template <class S>
struct MorSumColumns {
  MorMatrix<S> m;

  TENON_BOTH void operator()(const Block& block) const {
    const MorMatrix<S>& of = m;
    auto* const read = block.shared<float>();
    auto* const sum = block.shared<double>(kMorThreads * sizeof(float));
    for (std::int64_t at = block.index(); at < of.strips() * of.across(); at += block.blocks()) {
      const std::int64_t strip = at / of.across(), first = at % of.across() * of.block_columns;
      const std::int64_t end = Smaller{}(first + of.block_columns, of.columns);
      block.each([&](int thread) {
        if (thread == 0) *sum = 0;
      });
      for (std::int64_t column = first; column < end; column += block.threads()) {
        block.each([&](int thread) {
          if (column + thread < end) read[thread] = of.sums[strip * of.columns + column + thread];
        });
        block.each([&](int thread) {
          if (thread != 0) return;
          double added = *sum;
          for (int k = 0; k < block.threads() && column + k < end; ++k) added += static_cast<double>(read[k]);
          *sum = added;
        });
      }
      block.each([&](int thread) {
        if (thread == 0) of.errors[at] = *sum;
      });
    }
  }
};

/// The same for blocks of few columns: a thread processes a block within a strip.
template <class S>
struct MorSumFewColumns {
  MorMatrix<S> m;

  TENON_BOTH void operator()(const Block& block) const {
    const MorMatrix<S>& of = m;
    for_each_element(block, of.strips() * of.across(), [&](std::int64_t at) {
      const std::int64_t strip = at / of.across(), first = at % of.across() * of.block_columns;
      double sum = 0;
      for (std::int64_t column = first; column < first + of.block_columns && column < of.columns; ++column)
        sum += static_cast<double>(of.sums[strip * of.columns + column]);
      of.errors[at] = sum;
    });
  }
};

/// Adds sums of strips to sums of blocks, from the top. `settles`: the second measurement was made, so
/// undecided blocks are decided.
template <class S>
struct MorSumStrips {
  MorMatrix<S> m;
  int which;
  bool settles;
  TENON_BOTH void operator()(const Block& block) const {
    const MorSumStrips& a = *this;
    const MorMatrix<S>& of = m;
    for_each_element(block, of.across() * of.down(), [&](std::int64_t b) {
      const std::int64_t first = b / of.across() * of.strips_of_block();
      double sum = 0;
      for (std::int64_t s = first; s < first + of.strips_of_block() && s < of.strips(); ++s)
        sum += of.errors[s * of.across() + b % of.across()];
      MorBlock& own = of.blocks[b];
      own.error[a.which] = sum;
      if (a.settles && static_cast<MorChoice>(own.choice) == MorChoice::kE5M2)
        own.choice = static_cast<std::int64_t>(mor_by_error(own.error[0], own.error[1]));
    });
  }
};

/// By one block of threads: errors of blocks in row-major order, and the numbers of blocks and elements of
/// each choice.
template <class S>
struct MorTotal {
  MorMatrix<S> m;
  std::uint8_t* choices;  ///< or null

  /// Counts that threads add up without an order.
  struct Counts {
    std::int64_t non_zero, blocks[4], elements[4];
  };
  struct AddCounts {
    TENON_BOTH Counts operator()(const Counts& a, const Counts& b) const {
      Counts sum = {a.non_zero + b.non_zero, {}, {}};
      for (int c = 0; c < 4; ++c) {
        sum.blocks[c] = a.blocks[c] + b.blocks[c];
        sum.elements[c] = a.elements[c] + b.elements[c];
      }
      return sum;
    }
  };
  static constexpr std::size_t kShared = kMorThreads * (sizeof(double) + sizeof(Counts));

  TENON_BOTH void operator()(const Block& block) const {
    const MorTotal& a = *this;
    const std::int64_t across = m.across(), n = across * m.down();
    auto* const read = block.shared<double>();
    auto* const counts = block.shared<Counts>(kMorThreads * sizeof(double));
    block.each([&](int thread) { counts[thread] = {}; });
    for (std::int64_t first = 0; first < n; first += block.threads()) {
      block.each([&](int thread) {
        const std::int64_t b = first + thread;
        if (b >= n) return;
        const MorBlock& of = a.m.blocks[b];
        const std::int64_t rows = a.m.rows - b / across * a.m.block_rows;
        const std::int64_t columns = a.m.columns - b % across * a.m.block_columns;
        read[thread] = of.error[0];
        counts[thread].non_zero += of.non_zero;
        counts[thread].blocks[of.choice] += 1;
        counts[thread].elements[of.choice] +=
            Smaller{}(rows, a.m.block_rows) * Smaller{}(columns, a.m.block_columns);
        if (a.choices != nullptr) a.choices[b] = static_cast<std::uint8_t>(of.choice);
      });
      block.each([&](int thread) {
        if (thread != 0) return;
        double sum = a.m.totals->error;
        for (int k = 0; k < block.threads() && first + k < n; ++k) sum += read[k];
        a.m.totals->error = sum;
      });
    }
    reduce_block(block, counts, AddCounts{});
    block.each([&](int thread) {
      if (thread != 0) return;
      a.m.totals->non_zero = counts[0].non_zero;
      for (int c = 0; c < 4; ++c) {
        a.m.totals->blocks[c] = counts[0].blocks[c];
        a.m.totals->elements[c] = counts[0].elements[c];
      }
    });
  }
};

/// Values become the input.
template <class S>
struct MorKeep {
  const S* x;
  std::int64_t n;
  Bf16* out;
  TENON_BOTH void operator()(const Block& block) const {
    const MorKeep& a = *this;
    for_each_element(block, n, [&](std::int64_t i) { a.out[i] = mor_input(a.x[i]); });
  }
};

// The launches of one mixture of representations, in order; `launch(grid, body)` starts a body. Nothing is
// read back in between: results stay on the device until the totals are complete.

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
