// Kernels that lay out operands for products of codes (scaled.hpp).
#include "scaled.hpp"

#include <tenon/kernels/cuda/quant_products.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

constexpr const char* kScaledProduct = "scaled product";

bool begins_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

/// Whether codes are stored as products read them, apart from where they begin.
bool lies_so(const ScaledSide& side) {
  return !side.extents.down && side.extents.inner == side.extents.padded;
}

const void* lay_out_scales(Queue& queue, const ScaledSide& side, const TensorView& scales, void* room) {
  if (side.kind == ScaleKind::kTensor) return nullptr;
  if (side.kind == ScaleKind::kRows) {
    if (begins_aligned(scales.data)) return scales.data;
    queue.copy(scales.data, MemorySpace::kCuda, room, MemorySpace::kCuda, scales.bytes());
    return room;
  }
  const ScaledOperand& stored = side.operand;
  bodies::LayOutScales body;
  body.of = side.extents;
  body.block = side.block();
  body.stored_inner = side.extents.down ? stored.block_rows : stored.block_columns;
  body.stored_outer = side.extents.down ? stored.block_columns : stored.block_rows;
  body.scales = scales.as<std::uint8_t>();
  body.tiles = static_cast<std::uint8_t*>(room);
  queue.launch(kScaledProduct, grid_for(body.bytes()), body);
  return room;
}

}  // namespace

LaidOut lay_out(Queue& queue, const ScaledSide& side, const ScaledMatrix& matrix, void* room) {
  auto* const codes = static_cast<std::uint8_t*>(room);
  const std::int64_t behind = whole_lines(side.code_bytes());
  const LaidOut result{matrix.codes.data, lay_out_scales(queue, side, matrix.scales, codes + behind)};
  if (lies_so(side) && begins_aligned(matrix.codes.data)) return result;
  const bodies::LayOutCodes body{side.extents, matrix.codes.as<std::uint8_t>(), codes};
  queue.launch(kScaledProduct, Grid{body.squares(), bodies::kThreads, bodies::LayOutCodes::kShared}, body);
  return {codes, result.scales};
}

void read_laid_out(Queue& queue, const ScaledSide& side, const LaidOut& from, void* values) {
  bodies::ReadLaidOut body;
  body.of = side.extents;
  body.element = static_cast<kernels::Element>(side.operand.element);
  body.scaling = static_cast<kernels::Scaling>(side.operand.scale);
  body.block = side.block();
  body.laid_out = static_cast<const std::uint8_t*>(from.codes);
  body.tiles = static_cast<const std::uint8_t*>(from.scales);
  body.values = static_cast<kernels::Bf16*>(values);
  queue.launch(kScaledProduct, grid_for(side.extents.outer * side.extents.padded), body);
}

void scale_rows(Queue& queue, const ScaledSides& sides, const LaidOut& a, const LaidOut& b, float* c) {
  const auto scaling = [](const ScaledSide& side, const LaidOut& from) {
    return side.kind == ScaleKind::kRows ? bodies::LineScaling(static_cast<const float*>(from.scales), 1, 1)
                                         : bodies::LineScaling();
  };
  bodies::ScaleProduct body;
  body.p = body.c = c;
  body.rows = sides.a.extents.outer, body.columns = sides.b.extents.outer;
  body.of_rows = scaling(sides.a, a), body.of_columns = scaling(sides.b, b);
  body.accumulate = false;
  queue.launch(kScaledProduct, grid_for(body.rows * body.runs()), body);
}

}  // namespace tenon::cuda
