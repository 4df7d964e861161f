// CRC-32C by tables of eight bytes at a time, or by the SSE4.2 instruction where the processor has it.
// Both give the same value; the instruction is chosen by processor features alone. It takes three cycles and
// can begin in each, so long inputs go as three lanes side by side.
#include "store/crc32c.hpp"

#include <tenon/files.hpp>

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tenon::crc {

namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78u;

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: effect of byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? kReflectedPolynomial : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xffu];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

#if defined(__x86_64__)
constexpr std::size_t kLane = 1024;

// advance[k][b]: what kLane zero bytes make of a register that holds b in its byte k.
constexpr std::array<std::array<std::uint32_t, 256>, 4> make_advance() {
  std::array<std::array<std::uint32_t, 256>, 4> advance{};
  for (std::size_t k = 0; k < advance.size(); ++k) {
    for (std::uint32_t bit = 1; bit < 256; bit *= 2) {
      std::uint32_t state = bit << (8 * k);
      for (std::size_t i = 0; i < kLane; ++i) state = (state >> 8) ^ kTables[0][state & 0xffu];
      // The register is linear: all bytes below this bit are there already.
      for (std::uint32_t below = 0; below < bit; ++below) advance[k][bit + below] = advance[k][below] ^ state;
    }
  }
  return advance;
}

constexpr auto kAdvance = make_advance();

std::uint64_t advance(std::uint64_t state) noexcept {
  return kAdvance[0][state & 0xffu] ^ kAdvance[1][(state >> 8) & 0xffu] ^ kAdvance[2][(state >> 16) & 0xffu] ^
         kAdvance[3][(state >> 24) & 0xffu];
}

std::uint64_t word_at(const std::byte* data) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t extend_sse42(std::uint32_t crc, const std::byte* data,
                                                             std::size_t size) noexcept {
  std::uint64_t state = ~crc;
  for (; size >= 3 * kLane; size -= 3 * kLane, data += 3 * kLane) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      state = _mm_crc32_u64(state, word_at(data + i));
      second = _mm_crc32_u64(second, word_at(data + kLane + i));
      third = _mm_crc32_u64(third, word_at(data + 2 * kLane + i));
    }
    state = advance(advance(state) ^ second) ^ third;
  }
  for (; size >= 8; size -= 8, data += 8) state = _mm_crc32_u64(state, word_at(data));
  auto narrow = static_cast<std::uint32_t>(state);
  for (; size > 0; --size, ++data) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(*data));
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t extend_by_table(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t size = bytes.size();
  crc = ~crc;
  for (; size >= 8; size -= 8, data += 8) {
    const std::uint32_t low = crc ^ (std::uint32_t{data[0]} | std::uint32_t{data[1]} << 8 |
                                     std::uint32_t{data[2]} << 16 | std::uint32_t{data[3]} << 24);
    crc = kTables[7][low & 0xffu] ^ kTables[6][(low >> 8) & 0xffu] ^ kTables[5][(low >> 16) & 0xffu] ^
          kTables[4][low >> 24] ^ kTables[3][data[4]] ^ kTables[2][data[5]] ^ kTables[1][data[6]] ^
          kTables[0][data[7]];
  }
  for (; size > 0; --size, ++data) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xffu];
  return ~crc;
}

bool instruction_available() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") != 0;
#else
  return false;
#endif
}

std::uint32_t extend_by_instruction(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
  return extend_sse42(crc, bytes.data(), bytes.size());
#else
  return extend_by_table(crc, bytes);
#endif
}

}  // namespace tenon::crc

TENON_ABI_BEGIN

std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return crc::instruction_available() ? crc::extend_by_instruction(crc, bytes)
                                      : crc::extend_by_table(crc, bytes);
}

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  return crc32c_extend(0, bytes);
}

std::uint32_t crc32c_masked(std::uint32_t crc) noexcept {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

TENON_ABI_END
