// Transforms for other commands: the check of a file by `tenon check`, and stages of a run that transform.
// The command itself is in command_line.hpp.
#pragma once

#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <string>

namespace tenon::cli {

/// Opens the sources, prints what the result would be, and writes nothing. Throws as `tenon transform` does.
void check_transform(Runtime& runtime, const Config& config, const std::string& path);

/// Makes the model folder `to` as the tables of a configuration say: a stage of a run. Returns its digest.
std::string make_model(Runtime& runtime, const Config& config, const std::string& to);

}  // namespace tenon::cli
