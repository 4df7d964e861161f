// Fixed-order arithmetic of fixed_order.hpp: one generic loop per operation, one traits type per storage
// format.
#include <tenon/sdk/fixed_order.hpp>

#include <tenon/error.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

TENON_ABI_BEGIN

namespace {

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kTileBytes = 8192;

// A format is stored as Stored and combined as Value.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored x) { return x; }
  static Stored store(Value x) { return x; }
};

struct BFloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
  static Stored store(Value x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto rounded = static_cast<Stored>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    const auto quiet_nan = static_cast<Stored>((bits >> 16) | 0x40u);
    return (bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded;
  }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored x) {
    const std::uint32_t sign = std::uint32_t{x & 0x8000u} << 16;
    const std::uint32_t body = x & 0x7fffu;
    if (body >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (body & 0x3ffu) << 13);
    // Placing the fields 13 bits up and scaling by 2^112 rebiases normals and makes subnormals exact.
    const float magnitude = std::bit_cast<float>(body << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  static Stored store(Value x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto sign = static_cast<Stored>((bits >> 16) & 0x8000u);
    const std::uint32_t body = bits & 0x7fffffffu;
    if (body > 0x7f800000u) return static_cast<Stored>(sign | 0x7e00u | ((body >> 13) & 0x3ffu));
    if (body >= 0x477ff000u) return static_cast<Stored>(sign | 0x7c00u);  // rounds to 2^16 or beyond
    if (body < 0x38800000u) {
      // Below 2^-14: adding 0.5 lets the FPU round to a multiple of 2^-24, which is half of an ulp of 0.5
      // ... 1.
      const float shifted = std::bit_cast<float>(body) + 0.5f;
      return static_cast<Stored>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    return static_cast<Stored>(sign | ((body - 0x38000000u + 0xfffu + ((body >> 13) & 1u)) >> 13));
  }
};

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Wrapping = std::make_unsigned_t<std::common_type_t<T, int>>;
      return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
    } else {
      return a + b;
    }
  }
};
// `!(b <= a)` also holds when b is NaN; `a != a` keeps one that is there already.
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return a != a || b <= a ? a : b;  // NOLINT(misc-redundant-expression)
  }
};
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return a != a || b >= a ? a : b;  // NOLINT(misc-redundant-expression)
  }
};

template <typename Format, typename Op>
void combine(void* accumulator, const void* part, std::int64_t elements) {
  using Stored = typename Format::Stored;
  auto* __restrict a = static_cast<Stored*>(accumulator);
  const auto* __restrict b = static_cast<const Stored*>(part);
  for (std::int64_t i = 0; i < elements; ++i) {
    a[i] = Format::store(Op::apply(Format::load(a[i]), Format::load(b[i])));
  }
}

using Combine = void (*)(void*, const void*, std::int64_t);

struct Row {
  DType dtype;
  Combine sum, max, min;
  int scalars = 1;  // per element: a complex number is two
};

template <typename Format>
constexpr Row row(DType dtype) {
  return {dtype, combine<Format, Sum>, combine<Format, Max>, combine<Format, Min>};
}

constexpr Row kRows[] = {
    row<Plain<float>>(DType::kF32),
    row<Plain<double>>(DType::kF64),
    row<BFloat16>(DType::kBF16),
    row<Float16>(DType::kF16),
    {DType::kC64, combine<Plain<float>, Sum>, nullptr, nullptr, 2},
    {DType::kC128, combine<Plain<double>, Sum>, nullptr, nullptr, 2},
    row<Plain<std::int8_t>>(DType::kI8),
    row<Plain<std::uint8_t>>(DType::kU8),
    row<Plain<std::int16_t>>(DType::kI16),
    row<Plain<std::uint16_t>>(DType::kU16),
    row<Plain<std::int32_t>>(DType::kI32),
    row<Plain<std::uint32_t>>(DType::kU32),
    row<Plain<std::int64_t>>(DType::kI64),
    row<Plain<std::uint64_t>>(DType::kU64),
    {DType::kBool, nullptr, combine<Plain<std::uint8_t>, Max>, combine<Plain<std::uint8_t>, Min>},
};

struct Kernel {
  Combine combine = nullptr;
  int scalars = 1;
};

Kernel find_kernel(DType dtype, ReduceOp op) {
  for (const Row& r : kRows) {
    if (r.dtype != dtype) continue;
    return {op == ReduceOp::kSum ? r.sum : op == ReduceOp::kMax ? r.max : r.min, r.scalars};
  }
  return {};
}

Kernel require_kernel(DType dtype, ReduceOp op) {
  const Kernel kernel = find_kernel(dtype, op);
  if (kernel.combine) return kernel;
  const char* name = op == ReduceOp::kSum ? "sum" : op == ReduceOp::kMax ? "max" : "min";
  const char* advice = dtype == DType::kBool     ? "use max (or) or min (and)"
                       : dtype_is_complex(dtype) ? "complex numbers only have sum"
                                                 : "reduce in f32 or bf16; this type only travels";
  fail_run(std::string("no reduction ") + name + " of " + std::string(dtype_name(dtype)) + ": " + advice);
}

}  // namespace

ElementRange ring_chunk(std::int64_t elements, DType dtype, int chunk, int members) noexcept {
  const std::int64_t bits = std::max(1, dtype_bits(dtype));
  // 6-bit codes fill whole bytes only in groups of four; 4 lines of 3 hold 256 of them.
  const std::int64_t per_line = bits == 6 ? 256 : std::max<std::int64_t>(1, kLineBytes * 8 / bits);
  const std::int64_t lines = elements / per_line + (elements % per_line != 0);
  // chunk * lines / members without overflow: whole part and remainder apart.
  const auto border = [&](std::int64_t c) {
    const std::int64_t line = lines / members * c + lines % members * c / members;
    return std::min(elements, line * per_line);
  };
  return {border(chunk), border(std::int64_t{chunk} + 1)};
}

void check_reducible(DType dtype, ReduceOp op) {
  static_cast<void>(require_kernel(dtype, op));
}

void combine_hop(void* accumulator, const void* part, std::int64_t elements, DType dtype, ReduceOp op) {
  const Kernel kernel = require_kernel(dtype, op);
  kernel.combine(accumulator, part, elements * kernel.scalars);
}

void reduce_in_order(std::span<const void* const> inputs, void* out, std::int64_t elements, DType dtype,
                     ReduceOp op) {
  const Kernel kernel = require_kernel(dtype, op);
  if (inputs.empty() || elements <= 0) return;
  const std::int64_t element_bytes = dtype_bits(dtype) / 8;
  const std::int64_t per_tile = kTileBytes / element_bytes;
  // The tile is read to the end before `out` is written, which is why `out` may be an input.
  alignas(64) std::byte tile[kTileBytes];
  for (std::int64_t begin = 0; begin < elements; begin += per_tile) {
    const std::int64_t count = std::min(per_tile, elements - begin);
    const std::int64_t offset = begin * element_bytes;
    const std::size_t bytes = count * element_bytes;
    std::memcpy(tile, static_cast<const std::byte*>(inputs[0]) + offset, bytes);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      kernel.combine(tile, static_cast<const std::byte*>(inputs[i]) + offset, count * kernel.scalars);
    }
    std::memcpy(static_cast<std::byte*>(out) + offset, tile, bytes);
  }
}

TENON_ABI_END
