// A table of metrics as RFC 4180 writes it: fields with a comma, a quote or a line break are quoted, quotes
// in them doubled. Lines end with LF, as most tools write and all read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::csv {

/// Appends one field; the caller writes commas and line ends.
void append_field(std::string& out, std::string_view text);
/// Shortest text that reads back to the same double; "nan", "inf", "-inf".
void append_number(std::string& out, double value);
void append_number(std::string& out, std::int64_t value);

/// Header and rows whose first field is a step not beyond `last_step`. A torn or foreign row ends what is
/// kept; `whole` says whether there was none. Returns "" when `text` does not begin with `header`.
std::string keep_rows(std::string_view text, std::string_view header, std::int64_t last_step, bool& whole);

}  // namespace tenon::csv
