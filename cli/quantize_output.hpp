// Output of `tenon quantize` for one matrix: a folder of arrays, statistics and a drawing.
#pragma once

#include "quantize_component.hpp"
#include "quantize_input.hpp"

#include <tenon/files.hpp>

#include <span>
#include <string>

namespace tenon::cli {

/// Names of the files in a result's folder; any of them means that a result exists.
std::span<const char* const> quantize_files();
/// Refuses, with Error(kConfig), a folder that contains results.
void refuse_results(FileSystem& files, const std::string& folder);

/// Writes the folder; stats.json comes last, so that a folder with it is whole.
void write_quantized(FileSystem& files, const std::string& folder, const SourceMatrix& matrix,
                     const QuantizedMatrix& result, const std::string& histogram);

/// The six keys of stats.json; a value that is not finite is null.
std::string stats_json(const QuantizeReport& report);

}  // namespace tenon::cli
