// Learning of merges from text (Sennrich et al. 2016, over bytes): the pair of neighbours that is most
// frequent inside of pieces becomes a token, again and again. Among pairs of equal frequency the one whose
// bytes are smaller comes first, left token before right one, so a result depends on the texts' pieces alone.
#pragma once

#include "tokenizer_json.hpp"

#include <span>
#include <string>
#include <string_view>

namespace tenon::bpe {

/// Ids: 0 to 255 the bytes, then the learned tokens in their order, then the special ones. No learned token
/// has the bytes of a special one. Throws Error(kConfig) for a target that is no vocabulary, and Error(kRun)
/// where the texts have too few pairs that occur twice.
Description learn(std::span<const std::string_view> texts, const TokenizerTarget& target,
                  const std::string& pattern);

}  // namespace tenon::bpe
