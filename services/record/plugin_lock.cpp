// Text of plugins.lock.
#include "record/plugin_lock.hpp"

#include "base/json_writer.hpp"

#include <algorithm>
#include <string_view>

namespace tenon {

void write_plugin_lock(FileSystem& files, const std::string& folder, std::vector<LockedPlugin> plugins) {
  std::ranges::sort(plugins, {}, &LockedPlugin::id);
  std::string text = "# Plugins that this run loaded.\n";
  const auto line = [&](std::string_view key, std::string_view value) {
    text += key;
    text += " = ";
    append_json_text(text, value);  // every JSON string is a TOML basic string of the same value
    text += '\n';
  };
  for (const LockedPlugin& plugin : plugins) {
    text += "\n[[plugin]]\n";
    line("id", plugin.id);
    line("version", plugin.version);
    line("file", plugin.file);
    line("sha256", plugin.sha256);
    line("abi", plugin.abi);
  }
  write_text_atomically(files, folder + "/plugins.lock", text);
}

}  // namespace tenon
