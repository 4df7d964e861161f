// One use of a tensor by a product: its quantizers, prepared for each number of rows that calls may have, and
// the random stream of its rounding. Works only through the device family `tenon.device.quant/1`.
#pragma once

#include "amax.hpp"
#include "memory.hpp"
#include "plan.hpp"

#include <tenon/ops/quant.hpp>

#include <memory>
#include <vector>

namespace tenon::quantized {

/// One operand of a product.
struct Side {
  TensorView values;        ///< bf16 [rows, columns], rows padded to match the product's other operand
  ScaledMatrix stored;      ///< the same as codes and scales, for products that read those; else empty
  float scale = 1;          ///< of the whole matrix; becomes part of the product's alpha
  TensorView block_scales;  ///< f32 [blocks, blocks] under by_block(), else empty
  std::int64_t across = 1;  ///< extent of a block in the dimension that is not summed over
};

/// Identity of a site, the same for all of its uses.
struct SiteName {
  std::string layer, reason;
  int site = 0;
};

class OperandUse {
 public:
  OperandUse(const SiteInfo& info, SiteHost& host, Use use, const OperandPlan& plan);

  /// Makes the quantizer of a matrix [rows, columns]; once per number of rows, when the site is built.
  void prepare(QuantOps& ops, std::int64_t rows, std::int64_t columns, DType input);

  const OperandPlan& plan() const { return plan_; }
  bool quantized() const { return plan_.quantized(); }
  /// Returns the rows of the values of a matrix with `rows` rows.
  std::int64_t padded(std::int64_t rows) const;
  std::size_t code_bytes(std::int64_t rows) const { return find(rows).code_bytes(); }
  /// Describes the last prepared operand to products of codes.
  ScaledOperand scaled() const { return {spec_.element, spec_.scale, spec_.block_rows, spec_.block_columns}; }
  /// Maximum over all prepared quantizers.
  std::size_t scratch_bytes() const { return scratch_; }
  /// Returns the scales of the blocks: f32 under by_block(), else bytes.
  TensorView cut_scales(Cutter& cutter, std::int64_t rows) const;

  /// Rounds x into `out` and returns the matrix' scale, NaN if x is not finite. `history` and `stats` may be
  /// null. Reports the operand if the call has a sink.
  float run(const SiteCall& call, const SiteName& name, TensorView x, const QuantizeOutput& out,
            TensorView scratch, AmaxHistory* history, QuantizeStats* stats);
  /// Decodes codes that run() stored for a matrix with `rows` rows.
  void decode(std::int64_t rows, TensorView codes, TensorView scales, TensorView values) {
    find(rows).decode(codes, scales, values);
  }

 private:
  struct Prepared {
    std::int64_t rows;
    std::unique_ptr<QuantizeKernel> kernel;
  };
  QuantizeKernel& find(std::int64_t rows) const;
  QuantizeDraws draws(const SiteCall& call) const;

  Use use_;
  OperandPlan plan_;
  QuantizeSpec spec_;  ///< its rows are those of the last prepared matrix
  RandomKey key_;
  std::int64_t origin_row_ = 0, origin_column_ = 0;
  Communicator* group_;
  Device* device_;
  std::string layer_;
  std::vector<Prepared> prepared_;
  std::size_t scratch_ = 0;
  HostStage input_here_, scales_here_;  ///< for reports, which use host memory
};

}  // namespace tenon::quantized
