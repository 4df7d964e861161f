// The recorded reference numbers as vectors of double, for the tests of every folder. See README.md here.
#pragma once

#include "store/safetensors.hpp"
#include "test_paths.hpp"

#include <tenon/testing/tensors.hpp>

#include <string>
#include <vector>

namespace tenon::testing {

class Recorded {
 public:
  /// name: "layers", "gpt_neo".
  explicit Recorded(const std::string& name)
      : files_(make_posix_files()),
        path_(std::string(TENON_SOURCE_DIR) + "/tests/reference/" + name + ".safetensors"),
        reader_(files_->open(path_), path_) {}

  bool has(const std::string& tensor) const { return reader_.find(tensor) != nullptr; }
  std::vector<double> values(const std::string& tensor) const {
    const SafetensorsEntry& entry = reader_.at(tensor);
    return to_doubles(entry.dtype.value(), reader_.read_all(entry));
  }
  Shape shape(const std::string& tensor) const { return Shape(std::span(reader_.at(tensor).shape)); }
  /// Row `index` of the first dimension.
  std::vector<double> row(const std::string& tensor, std::int64_t index) const {
    const std::vector<double> all = values(tensor);
    const std::int64_t size = static_cast<std::int64_t>(all.size()) / shape(tensor)[0];
    return {all.begin() + index * size, all.begin() + (index + 1) * size};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const SafetensorsEntry& entry : reader_.entries()) result.push_back(entry.name);
    return result;
  }

 private:
  std::unique_ptr<FileSystem> files_;
  std::string path_;
  SafetensorsReader reader_;
};

}  // namespace tenon::testing
