// One use of a tensor by a product: its quantizers, prepared for each number of rows that calls may have, and
// the random stream of its rounding. Works only through the device family `tenon.device.quant/1`.
// Its scale comes from an amax that ranks agree on, its memory from a block that the site divides.
#pragma once

#include "plan.hpp"

#include <tenon/device.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/site.hpp>
#include <tenon/tensor.hpp>

#include <memory>
#include <vector>

namespace tenon::quantized {

/// Divides a block of memory into sections that begin on cache lines. Without memory it only adds up sizes,
/// so the same function computes how much a call needs and hands it out.
class Cutter {
 public:
  Cutter() = default;
  explicit Cutter(TensorView memory) : memory_(memory) {}

  TensorView take(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, memory_.space};
    const std::size_t bytes = view.bytes();
    if (memory_.data != nullptr && bytes > 0) view.data = memory_.as<std::byte>() + used_;
    used_ += (bytes + kLine - 1) / kLine * kLine;
    return view;
  }
  TensorView bytes(std::size_t count) { return take(DType::kU8, Shape{static_cast<std::int64_t>(count)}); }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t kLine = 64;
  TensorView memory_;
  std::size_t used_ = 0;
};

// The largest magnitude, from which a tensor scale is computed: agreed over the ranks that share a tensor
// and, under delayed scaling, taken from earlier slots.

/// Returns the maximum over the group's ranks; NaN on all ranks if it is not finite on one. A null group
/// means this rank alone.
float agreed(float amax, Communicator* group);

/// History of one tensor of a site, in device memory, as state that the core saves. It has one entry per
/// slot: the maximum over the slot's micro-batches and chunks, so that the scale is the same in all calls of
/// a slot and after a resume.
class AmaxHistory {
 public:
  AmaxHistory(SiteHost& host, std::string_view tensor, const SitePlan& plan);

  /// Records `amax` if it is finite and `training`. Returns the magnitude to compute the scale from: `amax`
  /// itself as long as nothing was recorded before this slot; NaN if `amax` is not finite.
  float scale_amax(float amax, std::int64_t slot, bool training);

 private:
  Device& device_;
  std::int64_t length_;
  float margin_;  ///< 2^margin
  bool latest_;
  TensorView amax_;      ///< f32 [length + 1]; the entry of the current slot is not used for it
  TensorView position_;  ///< i64 [2]: the current slot + 1, its entry
  /// Read in each call, because a resume or a roll-back may have changed the state.
  HostStage amax_here_, position_here_;
};

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
