// Bytes of a data file as shown in a message: short, on one line, printable.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tenon::ctr {

/// Returns at most 40 bytes in quotes; bytes outside printable ASCII become \xNN.
inline std::string shown_text(std::string_view bytes) {
  constexpr std::size_t kMost = 40;
  std::string text = "'";
  for (const char c : bytes.substr(0, kMost)) {
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text + (bytes.size() > kMost ? "'..." : "'");
}

}  // namespace tenon::ctr
