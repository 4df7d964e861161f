// Links to folders. Runs, attempts and generations are moved to other disks and linked back.
#pragma once

#include <tenon/files.hpp>

#include <string>

namespace tenon {

/// Whether `entry` of `folder` is a folder, or a symbolic link that leads to one.
bool is_folder(FileSystem& files, const std::string& folder, const DirectoryEntry& entry);

}  // namespace tenon
