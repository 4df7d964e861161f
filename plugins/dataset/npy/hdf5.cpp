// HDF5 through its C interface. The library's own error output is silenced; its first reason becomes part of
// our message.
#include "arrays.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <array>
#include <mutex>
#include <utility>

namespace tenon::npy {
namespace {

/// Not every build of the library is thread-safe.
std::recursive_mutex& library() {
  static std::recursive_mutex mutex;
  return mutex;
}

/// Owns a handle and closes it.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  explicit Handle(hid_t id) : id_(id) {}
  ~Handle() {
    if (id_ < 0) return;
    const std::lock_guard lock(library());
    Close(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle& operator=(Handle&&) = delete;
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }

 private:
  hid_t id_;
};

using File = Handle<H5Fclose>;
using Dataset = Handle<H5Dclose>;
using Space = Handle<H5Sclose>;
using Type = Handle<H5Tclose>;

/// Returns the library's first, innermost error text, which is the most specific.
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

/// Silences error output for this thread; a thread-safe build keeps this setting per thread.
void keep_silent() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::int64_t size_of(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_size : 0;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  fail_config(fmt::format("data file '{}': {}", path, what));
}

/// Returns the narrowest dtype that holds all elements of a stored type.
DType dtype_of(const std::string& path, hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  const std::size_t bytes = H5Tget_size(type);
  if (kind == H5T_FLOAT && bytes <= 8) return bytes <= 4 ? DType::kF32 : DType::kF64;
  if (kind == H5T_INTEGER && bytes <= 8) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (!is_signed && bytes == 1) return DType::kU8;
    if (bytes < 4 || (is_signed && bytes == 4)) return DType::kI32;
    if (bytes < 8 || is_signed) return DType::kI64;
    refuse(path, "its elements are whole numbers of 64 bits without a sign, expected a sign or fewer bits");
  }
  refuse(path, kind == H5T_ENUM || kind == H5T_COMPOUND || kind == H5T_STRING
                   ? "its elements are names, records or text, expected numbers"
                   : "its elements are no numbers of at most 64 bits");
}

hid_t memory_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return H5T_NATIVE_FLOAT;
    case DType::kF64:
      return H5T_NATIVE_DOUBLE;
    case DType::kI32:
      return H5T_NATIVE_INT32;
    case DType::kI64:
      return H5T_NATIVE_INT64;
    default:
      return H5T_NATIVE_UINT8;
  }
}

class Hdf5Array final : public ArrayFile {
 public:
  Hdf5Array(std::string file, const std::string& dataset)
      : file_(std::move(file)), path_(file_ + ":" + dataset), data_(open(dataset)) {
    const std::lock_guard lock(library());
    const Space space(H5Dget_space(data_.get()));
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 1) refuse(path_, "it is a single value, expected an array whose first extent counts samples");
    if (rank > kMaxRank)
      refuse(path_, fmt::format("it has {} dimensions, expected at most {}", rank, kMaxRank));
    std::array<hsize_t, kMaxRank> extents{};
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    std::array<std::int64_t, kMaxRank> shape{};
    for (int d = 0; d < rank; ++d) {
      shape[d] = static_cast<std::int64_t>(extents[d]);
      if (extents[d] == 0) refuse(path_, "it has no elements");
    }
    shape_ = Shape(std::span<const std::int64_t>(shape.data(), rank));
    size_ = size_of(file_);
    const Type type(H5Dget_type(data_.get()));
    dtype_ = dtype_of(path_, type.get());
  }
  const std::string& path() const override { return path_; }
  const std::string& file() const override { return file_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }

  void read(std::int64_t first, std::int64_t count, DType dtype, std::byte* out) const override {
    std::array<hsize_t, kMaxRank> begin{}, extents{};
    for (int d = 0; d < shape_.rank(); ++d) extents[d] = static_cast<hsize_t>(shape_[d]);
    begin[0] = static_cast<hsize_t>(first), extents[0] = static_cast<hsize_t>(count);
    const std::lock_guard lock(library());
    keep_silent();
    // The library returns zeros beyond the end of the file.
    if (size_of(file_) < size_) fail_run(fmt::format("data file '{}' has shrunk while it was read", path_));
    const Space where(H5Dget_space(data_.get())),
        block(H5Screate_simple(shape_.rank(), extents.data(), nullptr));
    if (H5Sselect_hyperslab(where.get(), H5S_SELECT_SET, begin.data(), nullptr, extents.data(), nullptr) <
            0 ||
        H5Dread(data_.get(), memory_type(dtype), block.get(), where.get(), H5P_DEFAULT, out) < 0) {
      fail_run(fmt::format("data file '{}': samples {} to {} cannot be read: {}", path_, first,
                           first + count - 1, reason()));
    }
  }

 private:
  Dataset open(const std::string& dataset) const {
    const std::lock_guard lock(library());
    keep_silent();
    const File opened(H5Fopen(file_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    if (!opened.valid()) refuse(file_, fmt::format("expected an HDF5 file: {}", reason()));
    Dataset data(H5Dopen2(opened.get(), dataset.c_str(), H5P_DEFAULT));
    if (!data.valid()) refuse(file_, fmt::format("it has no dataset '{}': {}", dataset, reason()));
    return data;  // keeps its file open
  }

  std::string file_, path_;
  Dataset data_;
  std::int64_t size_ = 0;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

}  // namespace

std::unique_ptr<ArrayFile> Hdf5::open_array(FileSystem&, const std::string& name,
                                            const std::string& text) const {
  const std::size_t colon = text.rfind(":/");
  if (colon == std::string::npos) return std::make_unique<Hdf5Array>(text, "/" + name);
  return std::make_unique<Hdf5Array>(text.substr(0, colon), text.substr(colon + 1));
}

}  // namespace tenon::npy
