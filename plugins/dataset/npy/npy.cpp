// Fields from "name=file" lists. Where type and file agree a sample is one read into its place; else it
// passes a small buffer on the stack. Whole numbers that are narrowed, and targets with classes, are checked
// once, when the files are opened.
#include "npy.hpp"

#include "standardise.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

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

bool is_whole(DType dtype) {
  return dtype != DType::kF32 && dtype != DType::kF64;
}

/// The values that a whole-numbered field can hold.
std::pair<std::int64_t, std::int64_t> range_of(DType dtype) {
  switch (dtype) {
    case DType::kI32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case DType::kU8:
      return {0, 255};
    case DType::kBool:
      return {0, 1};
    default:
      return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  }
}

Shape parse_shape(const std::string& text) {
  std::vector<std::int64_t> extents;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t extent = 0;
    const auto [after, code] = std::from_chars(at, end, extent);
    if (code != std::errc() || extent < 1 || extents.size() + 1 == static_cast<std::size_t>(kMaxRank)) break;
    extents.push_back(extent);
    if (after == end) return Shape(std::span<const std::int64_t>(extents));
    if (*after != 'x') break;
    at = after + 1;
  }
  fail_config(fmt::format("data.npy: shapes: expected extents such as 1x16x16 (at most {}), found '{}'",
                          kMaxRank - 1, text));
}

DType parse_type(const std::string& text) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    if (dtype_name(dtype) == text) return dtype;
  }
  fail_config(fmt::format("data.npy: types: expected f32, f64, i32, i64 or u8, found '{}'", text));
}

}  // namespace

std::vector<Npy::Pair> Npy::pairs(const Options& options, std::string_view option, const char* value) {
  std::vector<Pair> found;
  for (const std::string_view entry : options.texts(option)) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == entry.size()) {
      fail_config(fmt::format("data.npy: {}: expected \"name={}\", found \"{}\"", option, value, entry));
    }
    Pair pair{std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))};
    for (const Pair& other : found) {
      if (other.name == pair.name)
        fail_config(fmt::format("data.npy: {}: '{}' stands there twice", option, pair.name));
    }
    found.push_back(std::move(pair));
  }
  return found;
}

Npy::Npy(const Options& options)
    : IndexedDataset("data.npy", options),
      inputs_(pairs(options, "inputs", "file.npy")),
      targets_(pairs(options, "targets", "file.npy")),
      val_inputs_(pairs(options, "val_inputs", "file.npy")),
      val_targets_(pairs(options, "val_targets", "file.npy")),
      types_(pairs(options, "types", "f32")),
      shapes_(pairs(options, "shapes", "1x16x16")),
      classes_(options.integer("classes")) {
  for (const std::string_view name : options.texts("standardise")) standardised_.emplace_back(name);
  if (inputs_.empty()) fail_config("data.npy: inputs: expected at least one \"name=file.npy\", found none");
  for (const Pair& input : inputs_) {
    for (const Pair& target : targets_) {
      if (input.name == target.name)
        fail_config(fmt::format("data.npy: '{}' is both an input and a target", input.name));
    }
  }
  check_same_names();
}

void Npy::check_same_names() const {
  if (val_inputs_.empty() && val_targets_.empty()) return;
  const auto names = [](const std::vector<Pair>& list) {
    std::string text;
    for (const Pair& pair : list) text += (text.empty() ? "" : ", ") + pair.name;
    return text.empty() ? std::string("none") : text;
  };
  for (const auto& [option, list, val] :
       {std::tuple("inputs", &inputs_, &val_inputs_), {"targets", &targets_, &val_targets_}}) {
    if (names(*list) == names(*val)) continue;
    fail_config(fmt::format("data.npy: val_{}: expected the names of {} in their order ({}), found {}",
                            option, option, names(*list), names(*val)));
  }
}

std::vector<Npy::Array> Npy::open_all(FileSystem& files, const std::vector<Pair>& inputs,
                                      const std::vector<Pair>& targets) const {
  std::vector<Array> arrays;
  for (const auto* list : {&inputs, &targets}) {
    for (const Pair& pair : *list) {
      NpyFile file(files, resolve_data_path(pair.value), "data file", kFileTypes);
      const DType dtype = file.dtype();
      const Shape shape = file.sample_shape();
      arrays.push_back({pair.name, std::move(file), dtype, shape, list == &targets});
      const NpyFile& first = arrays.front().file;
      if (arrays.back().file.samples() != first.samples()) {
        fail_config(fmt::format("data files '{}' and '{}': expected one number of samples, found {} and {}",
                                first.path(), arrays.back().file.path(), first.samples(),
                                arrays.back().file.samples()));
      }
    }
  }
  apply_types_and_shapes(arrays);
  for (const Array& array : arrays) check_values(array);
  return arrays;
}

void Npy::apply_types_and_shapes(std::vector<Array>& arrays) const {
  const auto find = [&](const char* option, const std::string& name) -> Array& {
    for (Array& array : arrays) {
      if (array.name == name) return array;
    }
    fail_config(fmt::format("data.npy: {}: there is no field '{}'", option, name));
  };
  for (const Pair& pair : types_) {
    Array& array = find("types", pair.name);
    array.dtype = parse_type(pair.value);
    if (!is_whole(array.file.dtype()) && is_whole(array.dtype)) {
      fail_config(fmt::format(
          "data file '{}': its elements are {} and cannot become {} without loss; round them before "
          "they are written",
          array.file.path(), dtype_name(array.file.dtype()), pair.value));
    }
  }
  for (const Pair& pair : shapes_) {
    Array& array = find("shapes", pair.name);
    array.shape = parse_shape(pair.value);
    if (array.shape.elements() != array.file.elements_per_sample()) {
      fail_config(fmt::format(
          "data file '{}': a sample of shape {} has {} elements; shapes asks for {}, which has {}",
          array.file.path(), array.file.sample_shape().text(), array.file.elements_per_sample(), pair.value,
          array.shape.elements()));
    }
  }
}

void Npy::check_values(const Array& array) const {
  const DType stored = array.file.dtype();
  if (!is_whole(stored)) return;
  const bool has_classes = array.target && is_whole(array.dtype) && classes_ > 0;
  const auto [low, high] =
      has_classes ? std::pair<std::int64_t, std::int64_t>(-1, classes_ - 1) : range_of(array.dtype);
  const auto [stored_low, stored_high] = range_of(stored);
  // A bool may hold any byte on disk.
  if (is_whole(array.dtype) && stored != DType::kBool && low <= stored_low && stored_high <= high) return;
  if (!is_whole(array.dtype) && stored != DType::kBool) return;
  std::vector<std::byte> raw(static_cast<std::size_t>(kPiece * 16));
  std::vector<std::int64_t> values;
  const std::int64_t width = dtype_bytes(stored, 1);
  const std::int64_t count = array.file.samples() * array.file.elements_per_sample();
  const std::int64_t at_once = static_cast<std::int64_t>(raw.size()) / width;
  values.resize(static_cast<std::size_t>(at_once));
  for (std::int64_t first = 0; first < count; first += at_once) {
    const std::int64_t now = std::min(at_once, count - first);
    array.file.read(first, std::span(raw).first(static_cast<std::size_t>(now * width)));
    convert_elements(stored, raw.data(), DType::kI64, reinterpret_cast<std::byte*>(values.data()), now);
    for (std::int64_t i = 0; i < now; ++i) {
      const std::int64_t value = values[static_cast<std::size_t>(i)];
      if (stored == DType::kBool && value > 1) {
        fail_config(fmt::format("data file '{}': element {} of type bool has the byte {}; expected 0 or 1",
                                array.file.path(), first + i, value));
      }
      if (!is_whole(array.dtype) || (low <= value && value <= high)) continue;
      fail_config(
          has_classes
              ? fmt::format("data file '{}': target {} at element {} is neither -1 (ignored) nor one of "
                            "the {} classes; set classes to their number",
                            array.file.path(), value, first + i, classes_)
              : fmt::format("data file '{}': {} at element {} does not fit into {}", array.file.path(), value,
                            first + i, dtype_name(array.dtype)));
    }
  }
}

void Npy::check_val_arrays() const {
  for (std::size_t i = 0; i < val_arrays_.size(); ++i) {
    const Array &main = arrays_[i], &val = val_arrays_[i];
    if (main.dtype == val.dtype && main.shape == val.shape) continue;
    fail_config(
        fmt::format("data files '{}' and '{}': expected one type and sample shape, found {} {} and {} {}",
                    main.file.path(), val.file.path(), dtype_name(main.dtype), main.shape.text(),
                    dtype_name(val.dtype), val.shape.text()));
  }
}

IndexedContent Npy::load() {
  const std::unique_ptr<FileSystem> files = make_posix_files();
  arrays_ = open_all(*files, inputs_, targets_);
  if (!val_inputs_.empty()) val_arrays_ = open_all(*files, val_inputs_, val_targets_);
  check_val_arrays();
  check_standardised();
  IndexedContent content;
  content.samples = arrays_.front().file.samples();
  if (!val_arrays_.empty()) content.val_samples = val_arrays_.front().file.samples();
  for (const Array& array : arrays_) {
    content.fields.push_back({array.name, array.dtype, array.shape});
    content.is_target.push_back(array.target);
  }
  for (const std::vector<Array>* list : {&arrays_, &val_arrays_}) {
    for (const Array& array : *list) {
      const std::string& path = array.file.path();
      if (std::none_of(content.sources.begin(), content.sources.end(),
                       [&](const DataSource& source) { return source.path == path; })) {
        content.sources.push_back({path, sha256_of_file(*files, path)});
      }
    }
  }
  if (classes_ > 0) content.attributes = {{"classes", classes_}};
  return content;
}

void Npy::check_standardised() const {
  for (const std::string& name : standardised_) {
    std::string real;
    bool found = false;
    for (const Array& array : arrays_) {
      if (is_whole(array.dtype)) continue;
      found = found || array.name == name;
      real += (real.empty() ? "" : ", ") + array.name;
    }
    if (!found)
      fail_config(fmt::format("data.npy: standardise: expected real fields ({}), found '{}'",
                              real.empty() ? "there are none; types makes them so" : real, name));
  }
}

void Npy::opened(DataInfo& info) {
  for (const std::string& name : standardised_) {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      Array& array = arrays_[i];
      if (array.name != name) continue;
      std::vector<std::byte> sample(
          static_cast<std::size_t>(dtype_bytes(array.dtype, array.shape.elements())));
      Moments moments;
      for (std::int64_t s = 0; s < info.train_samples; ++s) {
        read_sample(array, train_index(s), sample.data());
        moments.add(array.dtype, sample);
      }
      if (!(moments.deviation() > 0))
        fail_config(fmt::format(
            "data file '{}': standardise: expected values that differ, found mean {} and "
            "standard deviation {} over {} values of {} samples",
            array.file.path(), moments.mean(), moments.deviation(), moments.count(), info.train_samples));
      array.offset = info.fields[i].offset = moments.mean();
      array.scale = info.fields[i].scale = moments.deviation();
      if (val_arrays_.empty()) continue;
      val_arrays_[i].offset = array.offset, val_arrays_[i].scale = array.scale;
    }
  }
}

void Npy::read_sample(const Array& array, std::int64_t index, std::byte* out) const {
  const std::int64_t elements = array.file.elements_per_sample(), first = index * elements;
  const std::int64_t width = dtype_bytes(array.dtype, 1), stored = dtype_bytes(array.file.dtype(), 1);
  if (array.dtype == array.file.dtype()) {
    array.file.read(first, {out, static_cast<std::size_t>(elements * width)});
    return;
  }
  std::array<std::byte, kPiece> buffer;
  const std::int64_t at_once = kPiece / stored;
  for (std::int64_t done = 0; done < elements; done += at_once) {
    const std::int64_t now = std::min(at_once, elements - done);
    array.file.read(first + done, std::span(buffer).first(static_cast<std::size_t>(now * stored)));
    convert_elements(array.file.dtype(), buffer.data(), array.dtype, out + done * width, now);
  }
}

void Npy::copy(bool from_val_files, std::int64_t index, std::int64_t row,
               std::span<const TensorView> fields) const {
  const std::vector<Array>& arrays = from_val_files ? val_arrays_ : arrays_;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Array& array = arrays[i];
    const std::int64_t bytes = dtype_bytes(array.dtype, array.shape.elements());
    std::byte* out = static_cast<std::byte*>(fields[i].data) + row * bytes;
    read_sample(array, index, out);
    if (array.offset != 0 || array.scale != 1)
      standardise(array.dtype, {out, static_cast<std::size_t>(bytes)}, array.offset, array.scale);
  }
}

}  // namespace tenon::npy
