// What a child process is started with, as posix_spawn wants it, and the words for its end.
#pragma once

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::plugin {

/// This process's variables, `more` ("NAME=value") beside or in place of them.
inline std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> result;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(more.begin(), more.end(),
                                      [&](const std::string& setting) { return setting.starts_with(name); });
    if (!replaced) result.emplace_back(text);
  }
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

/// As exec wants them: null-terminated, into `texts`.
inline std::vector<char*> exec_pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// "Killed"; the C library has no words for signals of real time.
inline const char* signal_text(int signal) {
  const char* const text = ::sigdescr_np(signal);
  return text == nullptr ? "a signal without a name" : text;
}

}  // namespace tenon::plugin
