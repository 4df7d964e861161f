// If type and file agree, a sample is one read into place; otherwise it passes through a small stack buffer.
#include "arrays.hpp"

#include <tenon/config.hpp>
#include <tenon/sdk/npy.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenon::npy {
namespace {

constexpr std::int64_t kPiece = 8192;  // bytes on the stack
constexpr DType kFileTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8, DType::kBool};

template <typename From, typename To>
void convert(const std::byte* from, std::byte* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    const To converted = static_cast<To>(value);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof converted), &converted, sizeof converted);
  }
}

template <typename From>
void convert_from(const std::byte* from, DType to_type, std::byte* to, std::int64_t count) {
  switch (to_type) {
    case DType::kF32:
      return convert<From, float>(from, to, count);
    case DType::kF64:
      return convert<From, double>(from, to, count);
    case DType::kI32:
      return convert<From, std::int32_t>(from, to, count);
    case DType::kI64:
      return convert<From, std::int64_t>(from, to, count);
    default:
      return convert<From, std::uint8_t>(from, to, count);
  }
}

void convert_elements(DType from_type, const std::byte* from, DType to_type, std::byte* to,
                      std::int64_t count) {
  switch (from_type) {
    case DType::kF32:
      return convert_from<float>(from, to_type, to, count);
    case DType::kF64:
      return convert_from<double>(from, to_type, to, count);
    case DType::kI32:
      return convert_from<std::int32_t>(from, to_type, to, count);
    case DType::kI64:
      return convert_from<std::int64_t>(from, to_type, to, count);
    default:  // u8, and bool as 0 or 1
      return convert_from<std::uint8_t>(from, to_type, to, count);
  }
}

class NpyArray final : public ArrayFile {
 public:
  NpyArray(FileSystem& files, const std::string& path) : file_(files, path, "data file", kFileTypes) {}
  const std::string& path() const override { return file_.path(); }
  DType dtype() const override { return file_.dtype(); }
  const Shape& shape() const override { return file_.shape(); }

  void read(std::int64_t first_sample, std::int64_t count, DType dtype, std::byte* out) const override {
    const std::int64_t elements = count * elements_per_sample(), first = first_sample * elements_per_sample();
    const std::int64_t width = dtype_bytes(dtype, 1), stored = dtype_bytes(file_.dtype(), 1);
    if (dtype == file_.dtype()) {
      file_.read(first, {out, static_cast<std::size_t>(elements * width)});
      return;
    }
    std::array<std::byte, kPiece> buffer;
    const std::int64_t at_once = kPiece / stored;
    for (std::int64_t done = 0; done < elements; done += at_once) {
      const std::int64_t now = std::min(at_once, elements - done);
      file_.read(first + done, std::span(buffer).first(now * stored));
      convert_elements(file_.dtype(), buffer.data(), dtype, out + done * width, now);
    }
  }

 private:
  NpyFile file_;
};

}  // namespace

std::unique_ptr<ArrayFile> Npy::open_array(FileSystem& files, const std::string&,
                                           const std::string& text) const {
  return std::make_unique<NpyArray>(files, text);
}

}  // namespace tenon::npy
