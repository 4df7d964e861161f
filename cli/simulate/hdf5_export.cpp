// HDF5 through its C interface; every call is checked, and messages include the library's own.
#include "simulate/hdf5_export.hpp"

#include "simulate/sample_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <hdf5.h>

#include <utility>
#include <vector>

namespace tenon::simulate {
namespace {

constexpr const char* kDigest = "digest";

std::string reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        auto& said = *static_cast<std::string*>(out);
        if (said.empty() && error->desc != nullptr) said = error->desc;
        return 0;
      },
      &text);
  return text.empty() ? "the library gives no reason" : text;
}

/// A handle that is closed automatically.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  explicit Handle(hid_t id) : id_(id) {}
  ~Handle() {
    if (id_ >= 0) Close(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  hid_t get() const { return id_; }

 private:
  hid_t id_;
};
using Hdf5File = Handle<H5Fclose>;
using Dataset = Handle<H5Dclose>;
using Dataspace = Handle<H5Sclose>;
using Datatype = Handle<H5Tclose>;
using Creation = Handle<H5Pclose>;
using Mark = Handle<H5Aclose>;

hid_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return H5T_IEEE_F32LE;
    case DType::kF64:
      return H5T_IEEE_F64LE;
    case DType::kI32:
      return H5T_STD_I32LE;
    case DType::kI64:
      return H5T_STD_I64LE;
    default:
      return H5T_STD_U8LE;
  }
}

/// One file that is being written. Error messages name it.
class Writer {
 public:
  explicit Writer(std::string path)
      : path_(std::move(path)), file_(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {
    check(file_.get() >= 0, "create it");
  }

  /// A chunk is the first extent's one; `extents` has at least one.
  hid_t dataset(const std::string& name, DType dtype, const std::vector<hsize_t>& extents) {
    std::vector<hsize_t> chunk = extents;
    chunk[0] = 1;
    const Creation plan(H5Pcreate(H5P_DATASET_CREATE)), links(H5Pcreate(H5P_LINK_CREATE));
    check(H5Pset_create_intermediate_group(links.get(), 1) >= 0 &&
              H5Pset_obj_track_times(plan.get(), false) >= 0,
          "plan a dataset");
    if (extents.size() > 1)
      check(H5Pset_chunk(plan.get(), static_cast<int>(chunk.size()), chunk.data()) >= 0, "plan chunks");
    const Dataspace space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
    const hid_t data = H5Dcreate2(file_.get(), name.c_str(), type_of(dtype), space.get(), links.get(),
                                  plan.get(), H5P_DEFAULT);
    check(data >= 0, "create dataset '" + name + "'");
    return data;
  }

  void write(const Dataset& data, DType dtype, const void* values) {
    check(H5Dwrite(data.get(), type_of(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, "write an array");
  }

  /// Sample `row` of a dataset.
  void write_row(const Dataset& data, hsize_t row, const TensorView& sample) {
    std::vector<hsize_t> begin{row}, extents{1};
    for (const std::int64_t extent : sample.shape.extents()) {
      begin.push_back(0);
      extents.push_back(static_cast<hsize_t>(extent));
    }
    const Dataspace where(H5Dget_space(data.get())),
        block(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
    const bool chosen =
        H5Sselect_hyperslab(where.get(), H5S_SELECT_SET, begin.data(), nullptr, extents.data(), nullptr) >= 0;
    check(chosen && H5Dwrite(data.get(), type_of(sample.dtype), block.get(), where.get(), H5P_DEFAULT,
                             sample.data) >= 0,
          fmt::format("write row {}", row));
  }

  void mark(const char* name, const std::string& text) {
    const Datatype type(H5Tcopy(H5T_C_S1));
    check(H5Tset_size(type.get(), text.size() + 1) >= 0, "plan an attribute");
    const Dataspace space(H5Screate(H5S_SCALAR));
    const Mark mark(H5Acreate2(file_.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
    check(mark.get() >= 0 && H5Awrite(mark.get(), type.get(), text.c_str()) >= 0,
          fmt::format("write attribute '{}'", name));
  }

  void flush() { check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) >= 0, "flush it"); }

 private:
  void check(bool good, const std::string& what) const {
    if (!good) fail_run(fmt::format("HDF5 file '{}': cannot {}: {}", path_, what, reason()));
  }

  std::string path_;
  Hdf5File file_;
};

/// Digest of the whole content: the origin of the samples, their indices, and the digest of each.
std::string digest_of(const SimulationManifest& manifest) {
  std::string text = manifest.config_hash();
  for (const auto& [index, digest] : manifest.finished) text += fmt::format("\n{} {}", index, digest);
  return xxh3_128_of(std::as_bytes(std::span(text)));
}

/// "" if there is no such file or digest.
std::string marked_digest(const std::string& path) {
  const Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  if (file.get() < 0) return "";
  const Mark mark(H5Aopen(file.get(), kDigest, H5P_DEFAULT));
  if (mark.get() < 0) return "";
  const Datatype type(H5Aget_type(mark.get()));
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0) return "";
  std::string text(H5Tget_size(type.get()), '\0');
  if (H5Aread(mark.get(), type.get(), text.data()) < 0) return "";
  return text.substr(0, text.find('\0'));
}

std::vector<hsize_t> extents_of(const Shape& shape, std::vector<hsize_t> extents = {}) {
  for (const std::int64_t extent : shape.extents()) extents.push_back(static_cast<hsize_t>(extent));
  return extents;
}

void write_shared(Writer& out, FileSystem& files, const std::string& folder,
                  const SimulationManifest& manifest) {
  if (manifest.shared.empty()) return;
  const ArrayMemory arrays(manifest.shared);
  read_simulation_arrays(files, simulation_shared_folder(folder), manifest.shared, arrays.views());
  for (std::size_t i = 0; i < manifest.shared.size(); ++i) {
    const SimulatedField& field = manifest.shared[i];
    const Dataset data(out.dataset("/simulation/shared/" + field.name, field.dtype, extents_of(field.shape)));
    out.write(data, field.dtype, arrays.views()[i].data);
  }
}

void write_samples(Writer& out, FileSystem& files, const std::string& folder,
                   const SimulationManifest& manifest) {
  const hsize_t samples = manifest.finished.size();
  const ArrayMemory arrays(manifest.fields);
  std::vector<std::unique_ptr<Dataset>> datasets;
  for (const SimulatedField& field : manifest.fields)
    datasets.push_back(std::make_unique<Dataset>(
        out.dataset("/" + field.name, field.dtype, extents_of(field.shape, {samples}))));
  std::vector<std::int64_t> indices;
  for (const auto& [index, digest] : manifest.finished) {
    read_simulation_arrays(files, simulation_sample_folder(folder, index), manifest.fields, arrays.views());
    for (std::size_t i = 0; i < datasets.size(); ++i)
      out.write_row(*datasets[i], indices.size(), arrays.views()[i]);
    indices.push_back(index);
  }
  const Dataset index(out.dataset("/simulation/index", DType::kI64, {samples}));
  out.write(index, DType::kI64, indices.data());
}

}  // namespace

std::string hdf5_path(const std::string& folder) {
  return folder + "/samples.h5";
}

bool write_hdf5(FileSystem& files, const std::string& folder, const SimulationManifest& manifest) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const std::string path = hdf5_path(folder), partial = partial_path(path), digest = digest_of(manifest);
  if (marked_digest(path) == digest) return false;
  try {
    Writer out(partial);
    write_samples(out, files, folder, manifest);
    write_shared(out, files, folder, manifest);
    out.mark("simulator", manifest.simulator);
    out.mark("version", manifest.plugin + " " + manifest.plugin_version);
    out.mark("config", manifest.config);
    out.mark("seed", std::to_string(manifest.seed));
    out.mark(kDigest, digest);
    out.flush();
  } catch (...) {
    remove_tree(files, partial);
    throw;
  }
  files.rename(partial, path);
  files.sync_directory(folder);
  return true;
}

}  // namespace tenon::simulate
