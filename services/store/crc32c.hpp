// The two implementations of crc32c() of <tenon/files.hpp>, apart so that a test can compare them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenon::crc {

std::uint32_t extend_by_table(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
/// Needs instruction_available().
std::uint32_t extend_by_instruction(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
bool instruction_available() noexcept;

}  // namespace tenon::crc
