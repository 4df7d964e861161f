// Facts about element types: one table, in the order of the enum, that every function reads.
#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <fmt/format.h>

#include <limits>
#include <vector>

TENON_ABI_BEGIN

namespace {

enum class Family : std::uint8_t { kReal, kComplex, kInteger };

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  int bits;
  Family family;
};

constexpr DTypeFacts kFacts[] = {
    {DType::kF32, "f32", 32, Family::kReal},       {DType::kF64, "f64", 64, Family::kReal},
    {DType::kBF16, "bf16", 16, Family::kReal},     {DType::kF16, "f16", 16, Family::kReal},
    {DType::kC64, "c64", 64, Family::kComplex},    {DType::kC128, "c128", 128, Family::kComplex},
    {DType::kI8, "i8", 8, Family::kInteger},       {DType::kU8, "u8", 8, Family::kInteger},
    {DType::kI16, "i16", 16, Family::kInteger},    {DType::kU16, "u16", 16, Family::kInteger},
    {DType::kI32, "i32", 32, Family::kInteger},    {DType::kU32, "u32", 32, Family::kInteger},
    {DType::kI64, "i64", 64, Family::kInteger},    {DType::kU64, "u64", 64, Family::kInteger},
    {DType::kBool, "bool", 8, Family::kInteger},   {DType::kF8E4M3, "f8_e4m3", 8, Family::kReal},
    {DType::kF8E5M2, "f8_e5m2", 8, Family::kReal}, {DType::kF8E8M0, "f8_e8m0", 8, Family::kReal},
    {DType::kF4E2M1, "f4_e2m1", 4, Family::kReal}, {DType::kF6E2M3, "f6_e2m3", 6, Family::kReal},
    {DType::kF6E3M2, "f6_e3m2", 6, Family::kReal},
};

constexpr bool table_follows_enum() {
  for (std::size_t i = 0; i < std::size(kFacts); ++i) {
    if (static_cast<std::size_t>(kFacts[i].dtype) != i) return false;
  }
  return std::size(kFacts) == static_cast<std::size_t>(DType::kF6E3M2) + 1;
}
static_assert(table_follows_enum());

constexpr DTypeFacts kUnknown{DType::kF32, "unknown", 0, Family::kInteger};

// A value outside the enum can arrive from a file or a plugin; it must not index past the table.
const DTypeFacts& facts(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < std::size(kFacts) ? kFacts[index] : kUnknown;
}

}  // namespace

int dtype_bits(DType dtype) noexcept {
  return facts(dtype).bits;
}

std::int64_t dtype_bytes(DType dtype, std::int64_t elements) noexcept {
  const std::int64_t bits = facts(dtype).bits;
  std::int64_t total = 0;
  if (bits % 8 == 0) {
    return __builtin_mul_overflow(elements, bits / 8, &total) ? std::numeric_limits<std::int64_t>::max()
                                                              : total;
  }
  // 8 elements of b bits are b bytes: multiplying whole groups first keeps the product in range.
  if (__builtin_mul_overflow(elements / 8, bits, &total)) return std::numeric_limits<std::int64_t>::max();
  return total + ((elements % 8) * bits + 7) / 8;
}

std::string_view dtype_name(DType dtype) noexcept {
  return facts(dtype).name;
}

DType dtype_from_name(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DTypeFacts& entry : kFacts) {
    if (entry.name == name) return entry.dtype;
    known.push_back(entry.name);
  }
  fail_config(fmt::format("unknown element type '{}'; expected one of {}", name, fmt::join(known, ", ")));
}

bool dtype_is_real(DType dtype) noexcept {
  return facts(dtype).family == Family::kReal;
}
bool dtype_is_complex(DType dtype) noexcept {
  return facts(dtype).family == Family::kComplex;
}

TENON_ABI_END
