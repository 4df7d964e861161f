// Mixture of representations, one element after another: the reference for bit-for-bit tests of faster
// versions, and the source of the codes and scales that `tenon quantize` shows. Order of operations and of
// sums: mor.hpp.
#pragma once

#include <tenon/kernels/mor.hpp>

#include <algorithm>
#include <vector>

namespace tenon::kernels::reference {

/// One block [row, row_end) x [column, column_end).
struct MorBlock {
  std::int64_t row = 0, row_end = 0, column = 0, column_end = 0;
  float amax = 0, smallest = 0;  ///< smallest that is not zero, 0 if all are
  std::int64_t non_zero = 0;
};

/// Codes and scales of an attempt, for inspection; null = not wanted.
struct MorTrace {
  std::uint8_t* codes = nullptr;  ///< one per element; 0 where a block keeps
  float* scales = nullptr;        ///< decode scale per block; 1 where a block keeps
  float* decoded = nullptr;       ///< code / encode scale, before the cast to BF16; x where a block keeps
};

inline void mor_strip(const MorStripArgs& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t j = 0; j < a.columns; ++j) {
      const float x = to_float(a.x[row * a.stride + j]), y = mor_round(x, a.scales[j], a.element);
      if (x != 0) a.errors[j] += mor_error(x, y);
      if (a.out != nullptr) a.out[row * a.out_stride + j] = mor_bf16(y);
    }
  }
}

inline std::vector<MorBlock> mor_blocks(const MorArgs& args) {
  std::vector<MorBlock> blocks;
  for (std::int64_t row = 0; row < args.rows; row += args.block_rows) {
    for (std::int64_t column = 0; column < args.columns; column += args.block_columns) {
      MorBlock block{row, std::min(args.rows, row + args.block_rows), column,
                     std::min(args.columns, column + args.block_columns)};
      std::uint32_t largest = 0, smallest = kInfinityBits;
      for (std::int64_t i = block.row; i < block.row_end; ++i) {
        for (std::int64_t j = block.column; j < block.column_end; ++j) {
          const std::uint32_t magnitude = magnitude_bits(to_float(args.x[i * args.columns + j]));
          largest = std::max(largest, magnitude);
          if (magnitude == 0) continue;
          smallest = std::min(smallest, magnitude);
          ++block.non_zero;
        }
      }
      block.amax = std::bit_cast<float>(largest);
      block.smallest = block.non_zero > 0 ? std::bit_cast<float>(smallest) : 0.0f;
      blocks.push_back(block);
    }
  }
  return blocks;
}

/// Sum of |y - x| / |x| over a block under one format.
inline double mor_block_error(const MorArgs& args, const MorBlock& block, float scale, Element element) {
  double sum = 0;
  for (std::int64_t top = block.row; top < block.row_end; top += kMorStrip) {
    const std::int64_t bottom = std::min(block.row_end, top + kMorStrip);
    for (std::int64_t j = block.column; j < block.column_end; ++j) {
      float column = 0;
      for (std::int64_t i = top; i < bottom; ++i) {
        const float x = to_float(args.x[i * args.columns + j]);
        if (x != 0) column += mor_error(x, mor_round(x, scale, element));
      }
      sum += static_cast<double>(column);
    }
  }
  return sum;
}

/// values: [rows, columns]; choices: one per block, or null.
inline MorResult mor(const MorArgs& args, Bf16* values, std::uint8_t* choices, const MorTrace& trace = {}) {
  MorResult result;
  const std::vector<MorBlock> blocks = mor_blocks(args);
  for (const MorBlock& block : blocks) {
    result.non_zero += block.non_zero;
    if (magnitude_bits(block.amax) > magnitude_bits(result.amax)) result.amax = block.amax;
  }
  result.finite = magnitude_bits(result.amax) < kInfinityBits;

  std::vector<MorChoice> chosen(blocks.size(), MorChoice::kKeep);
  std::vector<float> scales(blocks.size(), 1.0f);
  double error = 0;
  const auto scale_of = [&](std::size_t b, MorChoice choice) {
    return mor_scale(args.strategy, blocks[b].amax, result.amax, layout_of(mor_element(choice)).largest);
  };
  const auto error_of = [&](std::size_t b, MorChoice choice) {
    return mor_block_error(args, blocks[b], scale_of(b, choice), mor_element(choice));
  };
  for (std::size_t b = 0; b < blocks.size() && result.finite; ++b) {
    MorChoice choice = MorChoice::kE4M3;
    if (args.mode != MorMode::kTensor)
      choice = mor_by_span(mor_span(blocks[b].amax, blocks[b].smallest), args.mode, args.e2m3);
    if (args.mode == MorMode::kQuantError && choice == MorChoice::kE5M2)
      choice = mor_by_error(error_of(b, MorChoice::kE4M3), error_of(b, MorChoice::kE5M2));
    chosen[b] = choice;
    if (choice == MorChoice::kKeep) continue;
    scales[b] = scale_of(b, choice);
    error += error_of(b, choice);
  }
  result.error = result.non_zero > 0 ? error / static_cast<double>(result.non_zero) : 0.0;
  const bool falls_back = !result.finite || (args.mode == MorMode::kTensor && result.error > args.threshold);
  if (args.mode == MorMode::kTensor && !falls_back) result.tensor = MorChoice::kE4M3;

  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const MorBlock& block = blocks[b];
    const MorChoice outcome = falls_back ? MorChoice::kKeep : chosen[b];
    const auto index = static_cast<std::size_t>(outcome);
    ++result.blocks[index];
    result.elements[index] += (block.row_end - block.row) * (block.column_end - block.column);
    if (choices != nullptr) choices[b] = static_cast<std::uint8_t>(outcome);
    if (trace.scales != nullptr) trace.scales[b] = 1.0f / scales[b];
    for (std::int64_t i = block.row; i < block.row_end; ++i) {
      for (std::int64_t j = block.column; j < block.column_end; ++j) {
        const std::int64_t at = i * args.columns + j;
        const float x = to_float(args.x[at]);
        const bool tried = chosen[b] != MorChoice::kKeep;
        const Element element = mor_element(chosen[b]);
        const float y = tried ? mor_round(x, scales[b], element) : x;
        values[at] = outcome == MorChoice::kKeep ? args.x[at] : mor_bf16(y);
        if (trace.codes != nullptr)
          trace.codes[at] = tried ? encode(x * scales[b], element) : std::uint8_t{0};
        if (trace.decoded != nullptr) trace.decoded[at] = outcome == MorChoice::kKeep ? x : y;
      }
    }
  }
  return result;
}

}  // namespace tenon::kernels::reference
