// The speed at which a trained language model goes on with a text, and what it keeps for that. Serves
// reproduce.
#pragma once

#include "reproduce/decoding.hpp"

#include <cstdint>
#include <string>

namespace tenon::cli {

/// On the newest checkpoint of a run, with a context of that many tokens: reads a text up to `tokens` places
/// before its end and draws these. Throws Error(kConfig) where the model is no language model.
reproduce::Decoding measure_decoding(const std::string& run, std::int64_t context, std::int64_t tokens);

}  // namespace tenon::cli
