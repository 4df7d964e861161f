// Record of the data that a checkpoint was trained on: a meta entry "data/<i>" per file with its SHA-256 and
// path, compared before a run continues. The state's hash does not cover it: equal data may be elsewhere.
#pragma once

#include <tenon/checkpoint.hpp>
#include <tenon/dataset.hpp>

#include <span>
#include <string>
#include <vector>

namespace tenon::train {

/// Adds the entries of `sources` to `meta`.
void record_data(std::span<const DataSource> sources, std::vector<MetaBlock>& meta);

/// Throws Error(kConfig) with both checksums and the file when the generation was trained on other bytes.
/// Paths may differ. A generation without entries passes.
void check_data(const CheckpointReader& reader, std::span<const DataSource> sources,
                const std::string& folder);

}  // namespace tenon::train
