// The part of a study file about numbers of trainers: [scaling], and samples and points of a size.
#pragma once

#include "reproduce/study_file.hpp"

#include <tenon/config.hpp>

#include <functional>
#include <string>

namespace tenon::reproduce {

/// Reads the table `[scaling]`. Throws Error(kConfig) for keys and types.
Scaling read_scaling(const Value& table);

/// Reports by `say(key, problem)` errors of a study of scaling, and keys that only such a study may have.
void check_scaling(const StudyFile& study,
                   const std::function<void(const std::string& key, const std::string& problem)>& say);

}  // namespace tenon::reproduce
