#include "simulate/sample_writer.hpp"

#include <tenon/sdk/npy.hpp>

namespace tenon::simulate {

ArrayMemory::ArrayMemory(std::span<const SimulatedField> fields) {
  for (const SimulatedField& field : fields) {
    memory_.emplace_back(static_cast<std::size_t>(dtype_bytes(field.dtype, field.shape.elements())));
    views_.push_back({memory_.back().data(), field.shape, field.dtype});
  }
}

std::string partial_path(const std::string& path) {
  return path + ".partial";
}

void write_arrays(FileSystem& files, const std::string& path, std::span<const SimulatedField> fields,
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
