// The word by which the tasks of a job step recognise each other. Slurm's variables are no secret, so it is
// derived from one that this user's processes share through their home folder.
#pragma once

#include "slurm_step.hpp"

#include <filesystem>
#include <string>

namespace tenon::cli {

/// tenon/job_secret below XDG_STATE_HOME, or below .local/state of HOME. Throws Error(kConfig) where neither
/// is set.
std::filesystem::path job_secret_file(const Variables& variables);

/// 32 hexadecimal digits, equal for all tasks of the step and different for every other step and after every
/// requeue. Makes the file of the secret where there is none; tasks that do so at the same time end up with
/// one. Throws Error(kConfig) when others may read the file, or when it cannot be made or read.
std::string job_token(const Variables& variables, const SlurmStep& step);

}  // namespace tenon::cli
