// Record of the run that saved a checkpoint: its shape and its data, in meta entries that are compared before
// a run continues.
#pragma once

#include <tenon/checkpoint.hpp>
#include <tenon/dataset.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

// The shape of the run that saved a checkpoint: its planned length, and how it dealt samples. A run of
// another shape goes on from it where that is exact, or is refused with the reason, before anything is
// written.

struct RunShape {
  std::int64_t steps = 0;     ///< planned slots
  std::int64_t batch = 1;     ///< samples of a micro-batch of one replica
  std::int64_t replicas = 1;  ///< micro-batch m of replica r of K is samples (m K + r) batch ... + batch
};

/// Adds the entries "run/...". The state's hash does not cover them.
void record_shape(const RunShape& shape, std::vector<MetaBlock>& meta);

/// Counters::position of a replica, which may be one that the run that saved did not have. Checkpoints of
/// versions that counted micro-batches are read as those of a run of this shape: check_position says whether.
std::int64_t saved_position(const CheckpointReader& reader, std::int64_t replica, const RunShape& now);

/// Throws Error(kConfig), with the number of samples that would be read twice or not at all, where a run of
/// the shape `now` cannot go on exactly after what was read.
void check_position(const CheckpointReader& reader, const RunShape& now, const std::string& folder);

/// Learning rate of a slot in a run of `steps` slots.
using PlannedRate = std::function<double(std::int64_t slot, std::int64_t steps)>;
/// Where the rates of slots that are done, or that of the next one, would be others in a run of now.steps
/// slots: throws Error(kConfig) with two of them, or returns the sentence for the log if `extend`. "" where
/// nothing changes.
std::string check_rates(const CheckpointReader& reader, const RunShape& now, const PlannedRate& rate,
                        const std::string& folder, bool extend);

/// Sum and number of the losses since the last line of train/loss that one of `ranks` ranks takes over from a
/// run of another number of ranks.
std::pair<double, double> saved_losses(const CheckpointReader& reader, int rank, int ranks);

// Record of the data that a checkpoint was trained on: a meta entry "data/<i>" per file with its SHA-256 and
// path, compared before a run continues. The state's hash does not cover it: equal data may be elsewhere.

/// Adds the entries of `sources` to `meta`.
void record_data(std::span<const DataSource> sources, std::vector<MetaBlock>& meta);

/// Throws Error(kConfig) with both checksums and the file when the generation was trained on other bytes.
/// Paths may differ. A generation without entries passes.
void check_data(const CheckpointReader& reader, std::span<const DataSource> sources,
                const std::string& folder);

}  // namespace tenon::train
