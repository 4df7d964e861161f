// SHA-256 of a file, for plugins.lock: A/B runs use it to prove the difference.
#pragma once

#include <filesystem>
#include <string>

namespace tenon::plugin {

/// 64 lower-case hexadecimal digits; throws Error(kRun) when the file cannot be read.
std::string file_sha256(const std::filesystem::path& file);

}  // namespace tenon::plugin
