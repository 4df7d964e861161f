// Products of codes and block scales (family ScaledProducts): those that this device could have, the layout
// of their operands, and the two ways to compute them: cuBLASLt on GPUs, and, emulated, the same laid-out
// operands read back as values and multiplied by the kernels of this tree.
#pragma once

#include "queue.hpp"

#include <tenon/kernels/cuda/scaled.hpp>
#include <tenon/ops/quant.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace tenon::cuda {

/// Scales of one operand, as the units read them.
enum class ScaleKind : std::uint8_t {
  kTensor,   ///< none: alpha has it
  kRows,     ///< f32 per row of the laid-out operand
  kPower,    ///< E8M0 per 32 elements
  kTwoLevel  ///< E4M3 per 16 elements
};

/// One operand of a product, laid out [outer, padded] with its scales in tiles, in the caller's memory.
struct ScaledSide {
  ScaledOperand operand;
  ScaleKind kind = ScaleKind::kTensor;
  kernels::cuda::ScaledExtents extents;

  bool tiled() const { return kind == ScaleKind::kPower || kind == ScaleKind::kTwoLevel; }
  int block() const { return kind == ScaleKind::kPower ? 32 : 16; }
  std::int64_t code_bytes() const { return extents.outer * extents.stride(); }
  /// Bytes of tiles, or of f32 per row.
  std::int64_t scale_bytes() const;
  std::int64_t bytes() const;  ///< of both, a multiple of kLine
  /// Sizes as the quantizer stored them.
  std::int64_t stored_code_bytes() const;
  std::int64_t stored_scales() const;
  static constexpr std::int64_t kLine = 256;
};

/// Bytes rounded up to the alignment of parts of the caller's memory.
constexpr std::int64_t whole_lines(std::int64_t bytes) {
  return (bytes + ScaledSide::kLine - 1) / ScaledSide::kLine * ScaledSide::kLine;
}

struct ScaledSides {
  ScaledSide a, b;
};

/// "" = Blackwell's units read this structure and these formats; else the reason.
std::string scaled_refusal(const ScaledProductSpec& spec);
/// For a spec without a refusal.
ScaledSides sides_of(const ScaledProductSpec& spec);
/// Refuses views that do not match.
void check_scaled(const ScaledProductSpec& spec, const ScaledSides& sides, const ScaledMatrix& a,
                  const ScaledMatrix& b, const TensorView& c, const TensorView& bias,
                  const TensorView& scratch, std::size_t scratch_bytes);

/// Addresses of a laid-out operand: the quantizer's own codes if they have this layout already.
struct LaidOut {
  const void *codes = nullptr, *scales = nullptr;  ///< no scales: null
};
/// `room` has side.bytes() and begins at a multiple of ScaledSide::kLine.
LaidOut lay_out(Queue& queue, const ScaledSide& side, const ScaledMatrix& matrix, void* room);
/// bf16 [outer, padded]; kRows: without the scales of rows.
void read_laid_out(Queue& queue, const ScaledSide& side, const LaidOut& from, void* values);
/// c[i, j] *= scale of a's row i * scale of b's row j; either may have none.
void scale_rows(Queue& queue, const ScaledSides& sides, const LaidOut& a, const LaidOut& b, float* c);

/// `memory` from the next multiple of ScaledSide::kLine on.
std::byte* lined_up(const TensorView& memory);

/// A product by this tree's own kernels, for specs that scaled_refusal() accepts.
std::unique_ptr<ScaledProduct> make_own_scaled(Queue& queue, const ScaledProductSpec& spec);

// Products of codes and block scales by cuBLASLt. Only in the build for GPUs.

/// One per device, with a handle of its own.
class ScaledLibrary {
 public:
  /// Null, and why, where the library is absent or does not start.
  static std::unique_ptr<ScaledLibrary> open(Queue& queue, std::string& reason);
  ~ScaledLibrary();
  ScaledLibrary(const ScaledLibrary&) = delete;
  ScaledLibrary& operator=(const ScaledLibrary&) = delete;

  /// "" = a GPU of this architecture (90 for sm_90) has units for this kind; else the reason.
  static std::string absent_units(ScaleKind kind, int architecture);

  /// For a spec that scaled_refusal() accepts, on a GPU of `architecture`, 0 = the queue's. Null, and why, in
  /// the library's words where it was asked.
  std::unique_ptr<ScaledProduct> product(const ScaledProductSpec& spec, std::string& reason,
                                         int architecture = 0);

  struct State;

 private:
  explicit ScaledLibrary(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tenon::cuda
