// Writes one sample: its arrays in memory, written under a temporary name, then renamed.
#pragma once

#include <tenon/sdk/npy.hpp>
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

inline ArrayMemory::ArrayMemory(std::span<const SimulatedField> fields) {
  for (const SimulatedField& field : fields) {
    memory_.emplace_back(static_cast<std::size_t>(dtype_bytes(field.dtype, field.shape.elements())));
    views_.push_back({memory_.back().data(), field.shape, field.dtype});
  }
}

/// The temporary name of a sample's folder.
inline std::string partial_path(const std::string& path) {
  return path + ".partial";
}

/// Writes the arrays as `path`/NAME.npy: the folder appears whole, or not at all. Leftovers of an earlier
/// attempt are removed first. Throws FileError; then nothing of it is left, if possible.
inline void write_arrays(FileSystem& files, const std::string& path, std::span<const SimulatedField> fields,
                         std::span<const TensorView> arrays) {
  const std::string partial = partial_path(path);
  remove_tree(files, partial);
  try {
    files.make_directories(partial);
    for (std::size_t i = 0; i < fields.size(); ++i)
      write_npy(files, simulation_array_path(partial, fields[i]), arrays[i]);
    files.sync_directory(partial);
    // A folder can only replace an empty one.
    remove_tree(files, path);
    files.rename(partial, path);
    files.sync_directory(parent_path(path));
  } catch (...) {
    try {
      remove_tree(files, partial);
    } catch (const FileError&) {
      // The first failure is the one to report; the next attempt removes it.
    }
    throw;
  }
}

}  // namespace tenon::simulate
