// Reports on how number formats change operands. A site reports each operand of a product in slots that an
// observer asked for; in all others SiteCall::numerics is null and nothing is measured.
#pragma once

#include <tenon/ops/quant.hpp>

#include <cstdint>
#include <string_view>

TENON_ABI_BEGIN

/// One operand of one product. Views and texts are valid during the call.
struct OperandNumerics {
  std::string_view layer;    ///< "h.3.mlp.c_fc"
  int site = 0;              ///< within the layer
  std::string_view gemm;     ///< "fprop", "dgrad" or "wgrad"
  std::string_view operand;  ///< "x", "w" or "dy"
  std::string_view format;   ///< of the policy: "bf16", "mxfp8_e4m3", ...
  std::string_view reason;   ///< why this one: "recipe", "kept: last layers", "error 0.051 > 0.045", ...
  std::int64_t slot = 0;
  int micro = 0;
  std::int64_t first_row = 0;
  QuantizeStats stats;
  TensorView input;    ///< the operand before rounding (host memory)
  TensorView scales;   ///< decode scales of the blocks as the format stores them, or empty
  TensorView choices;  ///< u8 per block, as its policy numbers them, or empty
  std::int64_t block_rows = 0, block_columns = 0;
};

class NumericsSink {
 public:
  virtual ~NumericsSink();
  virtual void add(const OperandNumerics& operand) = 0;
};

/// Offered through Observer::query(NumericsObserver::kId).
class NumericsObserver {
 public:
  static constexpr const char* kId = "tenon.observer.numerics/1";
  virtual ~NumericsObserver();
  /// Asked once per slot, before it runs. A slot that no observer asks for costs nothing.
  virtual bool numerics(std::int64_t slot) = 0;
  /// Called in the order of products; micro-batch 0 only.
  virtual void on_operand(const OperandNumerics& operand) = 0;
};

TENON_ABI_END
