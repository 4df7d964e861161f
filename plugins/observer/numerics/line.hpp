// A line of numerics.jsonl: one operand of one product as a JSON object. README.md lists the keys.
#pragma once

#include <tenon/numerics.hpp>

#include <string>
#include <string_view>

namespace tenon::numerics {

/// Appends a line with its newline. `blocks` adds the largest magnitude of every block.
void append_line(std::string& out, const OperandNumerics& operand, bool blocks);

/// Returns the complete lines whose step is not beyond `last_step`. A torn or foreign line ends the kept
/// text; `whole` tells whether there was none.
std::string keep_lines(std::string_view text, std::int64_t last_step, bool& whole);

/// Returns 16 hexadecimal digits, the first half of xxh3-128 over the operand's bytes: equal bits have equal
/// digits.
std::string operand_hash(const TensorView& input);

}  // namespace tenon::numerics
