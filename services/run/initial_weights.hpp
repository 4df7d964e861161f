// [init]: the weights that a run begins with, read from a checkpoint of another run. A run that is resumed
// has its own and does not read them again.
#pragma once

#include "config/run_schema.hpp"
#include "record/run_files.hpp"

#include <tenon/device.hpp>
#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/parameter.hpp>
#include <tenon/registry.hpp>

#include <string>
#include <vector>

namespace tenon::train {

/// Fills this rank's part of `live`; what stays drawn by the rules of `init` is left as it is. Every byte is
/// checked as it is read. Throws Error(kConfig) that lists every parameter that is missing, extra, or of
/// another shape or type.
LoadedWeights load_initial_weights(const config::InitSettings& init, ParameterSet& live, Device& device,
                                   Registry& registry, Host& host, FileSystem& files);

/// Name here of a parameter that is called `there` in the other run; the first rule that fits decides.
std::string renamed(const std::vector<std::string>& rules, std::string_view there);

}  // namespace tenon::train
