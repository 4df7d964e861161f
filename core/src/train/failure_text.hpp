// What answers to failures have in common.
#pragma once

#include <tenon/checkpoint.hpp>
#include <tenon/recovery.hpp>

#include <cstdint>
#include <string_view>

namespace tenon::train {

/// "roll_back"
std::string_view action_name(FailureAction action);
/// Samples that a checkpoint's run had seen; 0 where it does not say.
std::int64_t samples_of(const CheckpointReader& reader);

}  // namespace tenon::train
