// The arithmetic of reductions in fixed order (docs/reductions.md): which member owns each chunk, in which
// order its summands enter, and how each dtype is combined. Every transport uses it, so all produce the same
// bits. It moves no bytes between ranks.
#pragma once

#include <tenon/tensor.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <span>

TENON_ABI_BEGIN

/// Chunk `chunk` of `members` of a tensor of `elements`: whole 64-byte lines (counted from the tensor's
/// start), as equal as lines allow; only the last non-empty chunk may end inside a line, and chunks of short
/// tensors are empty.
ElementRange ring_chunk(std::int64_t elements, DType dtype, int chunk, int members) noexcept;

/// The block that ends at `owner` is summed as owner + 1, owner + 2, ..., owner (modulo `members`). Returns
/// the member whose part is at `position` 0 ... members - 1 of that sum.
constexpr int ring_source(int owner, int position, int members) noexcept {
  return (owner + 1 + position) % members;
}

/// Throws Error(kRun) unless `op` is defined on `dtype`: sums of reals, complex numbers and integers
/// (wrapping); max and min of reals (a NaN wins) and integers, and of bool as or / and. Packed and 8-bit
/// floats can only be moved.
void check_reducible(DType dtype, ReduceOp op);

/// accumulator[i] = round(accumulator[i] op part[i]): one hop of the ring. bf16 and f16 are combined in f32
/// and rounded to nearest even once per hop, as a ring that carries them would. The ranges do not overlap.
void combine_hop(void* accumulator, const void* part, std::int64_t elements, DType dtype, ReduceOp op);

/// out = ((inputs[0] op inputs[1]) op inputs[2]) ..., one combine_hop each. `out` may be one of the inputs;
/// otherwise nothing overlaps. Uses 8 KiB of stack and no other memory.
void reduce_in_order(std::span<const void* const> inputs, void* out, std::int64_t elements, DType dtype,
                     ReduceOp op);

TENON_ABI_END
