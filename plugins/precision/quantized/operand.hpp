// One use of a tensor by a product: its quantizers, prepared for each number of rows that calls may have, and
// the random stream of its rounding. Works through the device family `tenon.device.quant/1` alone.
#pragma once

#include "amax.hpp"
#include "memory.hpp"
#include "plan.hpp"

#include <tenon/ops/quant.hpp>

#include <memory>
#include <vector>

namespace tenon::quantized {

/// What a product multiplies.
struct Side {
  TensorView values;        ///< bf16 [rows, columns], rows padded where the product's other side is
  ScaledMatrix stored;      ///< the same as codes and scales, for products that take those; else empty
  float scale = 1;          ///< of the whole matrix; goes into the product's alpha
  TensorView block_scales;  ///< f32 [blocks, blocks] under by_block(), else empty
  std::int64_t across = 1;  ///< extent of a block in the dimension that is not summed over
};

/// What is known of a site in all of its uses.
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
  /// Rows of the values of a matrix of `rows` rows.
  std::int64_t padded(std::int64_t rows) const;
  std::size_t code_bytes(std::int64_t rows) const { return find(rows).code_bytes(); }
  /// How products of codes are told of the last prepared.
  ScaledOperand scaled() const { return {spec_.element, spec_.scale, spec_.block_rows, spec_.block_columns}; }
  /// Of all prepared quantizers.
  std::size_t scratch_bytes() const { return scratch_; }
  /// Scales of the blocks: f32 under by_block(), else bytes.
  TensorView cut_scales(Cutter& cutter, std::int64_t rows) const;

  /// Rounds x into `out` and returns the matrix' scale, NaN where x is not finite. `history` may be null.
  /// Reports the operand where somebody listens. `stats` may be null.
  float run(const SiteCall& call, const SiteName& name, TensorView x, const QuantizeOutput& out,
            TensorView scratch, AmaxHistory* history, QuantizeStats* stats);
  /// The values of codes that run() stored for a matrix of `rows` rows.
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
  QuantizeSpec spec_;  ///< rows: of the last prepared
  RandomKey key_;
  std::int64_t origin_row_ = 0, origin_column_ = 0;
  Communicator* group_;
  Device* device_;
  std::string layer_;
  std::vector<Prepared> prepared_;
  std::size_t scratch_ = 0;
  HostStage input_here_, scales_here_;  ///< for reports, which are about host memory
};

}  // namespace tenon::quantized
