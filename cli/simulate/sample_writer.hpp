// Writes one sample: its arrays in memory, written under a temporary name, then renamed.
#pragma once

#include <tenon/sdk/simulation.hpp>

#include <span>
#include <string>
#include <vector>

namespace tenon::simulate {

/// Arrays for fields, filled with zeros; views into them.
class ArrayMemory {
 public:
  explicit ArrayMemory(std::span<const SimulatedField> fields);
  ArrayMemory(const ArrayMemory&) = delete;
  ArrayMemory& operator=(const ArrayMemory&) = delete;

  std::span<const TensorView> views() const { return views_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TensorView> views_;
};

/// The temporary name of a sample's folder.
std::string partial_path(const std::string& path);

/// Writes the arrays as `path`/NAME.npy: the folder appears whole, or not at all. Leftovers of an earlier
/// attempt are removed first. Throws FileError; then nothing of it is left, if possible.
void write_arrays(FileSystem& files, const std::string& path, std::span<const SimulatedField> fields,
                  std::span<const TensorView> arrays);

}  // namespace tenon::simulate
