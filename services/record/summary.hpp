// summary.json: how a run ended, in one object. Written once, at the end, by rank 0.
#pragma once

#include <tenon/files.hpp>
#include <tenon/runtime.hpp>

#include <string>

namespace tenon {

/// Writes result.folder/summary.json atomically. Numbers that are not finite become null.
void write_summary(FileSystem& files, const RunResult& result);
/// Reads it back; null reads as NaN, and exit_status is derived from the status. Throws Error(kRun) when the
/// file is no summary, FileError when it cannot be read.
RunResult read_summary(FileSystem& files, const std::string& folder);

}  // namespace tenon
