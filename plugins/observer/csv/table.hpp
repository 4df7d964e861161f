// A table of metrics in RFC 4180 form: fields with a comma, a quote or a line break are quoted, quotes in
// them doubled. Lines end with LF, as most tools write and all read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::csv {

/// Appends one field; the caller writes commas and line ends.
void append_field(std::string& out, std::string_view text);
/// Appends the shortest text that reads back to the same double; "nan", "inf", "-inf".
void append_number(std::string& out, double value);
void append_number(std::string& out, std::int64_t value);

/// Returns the header and the rows whose first field is a step not beyond `last_step`. A torn or foreign row
/// ends the kept text; `whole` tells whether there was none. Returns "" when `text` does not begin with
/// `header`.
std::string keep_rows(std::string_view text, std::string_view header, std::int64_t last_step, bool& whole);

}  // namespace tenon::csv
