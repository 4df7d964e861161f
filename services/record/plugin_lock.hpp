// plugins.lock: which plugin files a run had loaded, as TOML. It records; nothing here loads or compares
// plugins.
#pragma once

#include <tenon/files.hpp>

#include <string>
#include <vector>

namespace tenon {

struct LockedPlugin {
  std::string id;       ///< "tenon.sync_basic"
  std::string version;  ///< "0.1.0"
  std::string file;     ///< "" when linked into the program
  std::string sha256;   ///< of the file
  std::string abi;      ///< what must match: "epoch 0, x86_64, libstdc++, ..."
};

/// Writes `folder`/plugins.lock atomically, sorted by id.
void write_plugin_lock(FileSystem& files, const std::string& folder, std::vector<LockedPlugin> plugins);

}  // namespace tenon
