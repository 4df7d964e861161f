// Parts of <tenon/files.hpp>'s functions that the store, run folders and tests use. Folders may be elsewhere:
// runs, attempts and generations are moved to other disks and linked back. crc32c() has two implementations,
// apart so that a test can compare them.
#pragma once

#include <tenon/files.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tenon {

/// Whether `entry` of `folder` is a folder, or a symbolic link that leads to one.
bool is_folder(FileSystem& files, const std::string& folder, const DirectoryEntry& entry);

}  // namespace tenon

namespace tenon::crc {

std::uint32_t extend_by_table(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
/// Needs instruction_available().
std::uint32_t extend_by_instruction(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
bool instruction_available() noexcept;

}  // namespace tenon::crc
