// File names of a simulation, and the digest of a sample.
#include <tenon/sdk/npy.hpp>
#include <tenon/sdk/simulation.hpp>

#include <fmt/format.h>

TENON_ABI_BEGIN
namespace {

constexpr DType kFieldTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8};

NpyFile open_array(FileSystem& files, const std::string& folder, const SimulatedField& field) {
  NpyFile file(files, simulation_array_path(folder, field), "simulated array", kFieldTypes);
  if (file.dtype() == field.dtype && file.shape() == field.shape) return file;
  fail_config(
      fmt::format("simulated array '{}': expected {} {}, found {} {}; remove the folder '{}', and `tenon "
                  "simulate` makes it again",
                  file.path(), dtype_name(field.dtype), field.shape.text(), dtype_name(file.dtype()),
                  file.shape().text(), folder));
}

}  // namespace

std::string simulation_manifest_path(const std::string& folder) {
  return folder + "/manifest.json";
}

std::string simulation_sample_folder(const std::string& folder, std::int64_t index) {
  return fmt::format("{}/samples/{:06}", folder, index);
}

std::string simulation_shared_folder(const std::string& folder) {
  return folder + "/shared";
}

std::string simulation_set_path(const std::string& folder, std::string_view set) {
  return fmt::format("{}/sets/{}.json", folder, set);
}

std::string simulation_array_path(const std::string& folder, const SimulatedField& field) {
  return fmt::format("{}/{}.npy", folder, field.name);
}

std::string simulation_digest(std::span<const TensorView> arrays) {
  std::vector<std::byte> all;
  for (const TensorView& array : arrays) all.insert(all.end(), array.raw().begin(), array.raw().end());
  return xxh3_128_of(all);
}

void check_simulation_arrays(FileSystem& files, const std::string& folder,
                             std::span<const SimulatedField> fields) {
  for (const SimulatedField& field : fields) open_array(files, folder, field);
}

void read_simulation_arrays(FileSystem& files, const std::string& folder,
                            std::span<const SimulatedField> fields, std::span<const TensorView> arrays) {
  for (std::size_t i = 0; i < fields.size(); ++i)
    open_array(files, folder, fields[i]).read(0, arrays[i].raw());
}

SimulationManifest read_simulation(FileSystem& files, const std::string& folder) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  const std::string path = simulation_manifest_path(folder);
  if (!files.exists(path)) {
    fail_config(
        fmt::format("there is no simulation in '{}': it has no manifest.json; make one with `tenon simulate "
                    "CONFIG`, where [simulate] folder is this folder",
                    folder));
  }
  return parse_simulation_manifest(read_text(files, path, kLargest), path);
}

TENON_ABI_END
