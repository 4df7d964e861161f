// One operand of one product: the format that it tolerates, decided anew in every call, and its values in
// BF16. Works through the device families `tenon.device.mor/1` and `tenon.device.quant/1`.
#pragma once

#include "settings.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/sdk/ops/mor.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::mor {

/// Index of a choice in counts: those of MorChoice, then NVFP4.
inline constexpr int kChoices = 5;
inline constexpr int kNvfp4 = 4;
inline constexpr const char* kChoiceNames[kChoices] = {"bf16", "e4m3", "e5m2", "e2m3", "nvfp4"};
inline constexpr const char* kFormatNames[kChoices] = {"mor:bf16", "mor:e4m3", "mor:e5m2", "mor:e2m3",
                                                       "mor:nvfp4"};

struct Verdict {
  int choice = 0;  ///< of the whole operand; in block modes the most frequent one by elements
  std::int64_t units[kChoices] = {};  ///< tensors (1), or elements in block modes
  MorDecision decision;
  double fp4_error = 0;
};

/// Returns a readable reason, "error 0.0512 > 0.045".
std::string reason_of(const Settings& settings, const Verdict& verdict);

class Operand {
 public:
  /// runs_down: the product sums over the operand's rows. square: NVFP4 blocks of 16x16 (weights).
  Operand(MorOps& mor, QuantOps& quant, Elementwise& elementwise, const Settings& settings, bool runs_down,
          bool square);

  /// Called once per number of rows that calls may have.
  void prepare(std::int64_t rows, std::int64_t columns, DType input);

  std::int64_t blocks() const { return blocks_; }  ///< of the largest prepared matrix
  std::int64_t block_rows() const { return spec_.block_rows; }
  std::int64_t block_columns() const { return spec_.block_columns; }
  std::size_t scratch_bytes() const { return scratch_; }

  /// values: bf16, the shape of x; choices: u8 [blocks of x].
  Verdict run(TensorView x, TensorView values, TensorView choices, TensorView scratch);
  /// Returns the blocks of a matrix with `rows` rows.
  std::int64_t blocks_of(std::int64_t rows) { return find(rows).mor->blocks(); }

 private:
  struct Prepared {
    std::int64_t rows;
    std::unique_ptr<MorKernel> mor;
    std::unique_ptr<QuantizeKernel> fp4;
  };
  Prepared& find(std::int64_t rows);

  MorOps& mor_;
  QuantOps& quant_;
  Elementwise& elementwise_;
  const Settings& settings_;
  bool runs_down_, square_;
  MorSpec spec_;
  std::vector<Prepared> prepared_;
  std::int64_t blocks_ = 0;
  std::size_t scratch_ = 0;
};

}  // namespace tenon::mor
