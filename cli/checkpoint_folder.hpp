// A folder of Hugging Face: config.json beside model.safetensors, or beside model.safetensors.index.json with
// its shards. Reads settings and headers, and checks that they agree; single tensors are read on request.
// Serves `tenon import`.
#pragma once

#include "store/safetensors.hpp"

#include <tenon/config.hpp>
#include <tenon/files.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

/// File by tensor. Throws Error(kConfig) for text that is no index, and for files outside its folder.
std::map<std::string, std::string> parse_weights_index(std::string_view text, const std::string& label);

/// config.json as a value, with infinity, which JSON has no word for, as {"__float__": "Infinity"}. Throws
/// Error(kConfig) for text that is no JSON otherwise.
Value parse_settings(std::string_view text, const std::string& label);

class CheckpointFolder {
 public:
  struct Tensor {
    std::size_t file;
    const SafetensorsEntry* entry;
  };

  /// Throws Error(kConfig) that says what is missing or contradicts itself; Error(kRun) for damaged weights.
  CheckpointFolder(FileSystem& files, std::string folder);

  const std::string& folder() const { return folder_; }
  const Value& settings() const { return settings_; }
  /// The one of `architectures`.
  const std::string& architecture() const { return architecture_; }
  std::size_t files() const { return readers_.size(); }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  /// Rows [row, row + rows) of a tensor; a scalar has one.
  void read(const std::string& tensor, std::int64_t row, std::span<std::byte> out) const;

 private:
  void read_settings(FileSystem& files);
  /// Names of weights files; `index` is filled where there is one.
  std::vector<std::string> find_weights(FileSystem& files, std::map<std::string, std::string>& index) const;
  void open_weights(FileSystem& files);

  std::string folder_, architecture_;
  Value settings_;
  std::vector<SafetensorsReader> readers_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace tenon::cli
