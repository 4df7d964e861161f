// Fields from "name=file" lists. Integers that are narrowed, and targets with classes, are checked once, when
// the files are opened.
#include "arrays.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace tenon::npy {

// Mean and standard deviation of real numbers, and their removal. NaN values count as missing: they are left
// out and stay as they are.

/// Mean and sum of squared distances from it, updated value by value (Welford 1962); in float64 a large mean
/// costs no accuracy.
class Moments {
 public:
  /// dtype: f32 or f64.
  void add(DType dtype, std::span<const std::byte> values);
  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }
  /// Returns the population deviation: the squares are divided by the number of values. 0 for none.
  double deviation() const { return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_)); }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

/// Each value v becomes (v - offset) / scale.
void standardise(DType dtype, std::span<std::byte> values, double offset, double scale);

// Statistics in float64 for every type of value.

namespace {

/// Calls visit(value) for each value; if `values` is writable, the result replaces the value.
template <typename T, typename Byte, typename Visit>
void each(std::span<Byte> values, Visit visit) {
  for (std::size_t at = 0; at < values.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, values.data() + at, sizeof value);
    const T changed = static_cast<T>(visit(static_cast<double>(value)));
    if constexpr (!std::is_const_v<Byte>) std::memcpy(values.data() + at, &changed, sizeof changed);
  }
}

}  // namespace

void Moments::add(DType dtype, std::span<const std::byte> values) {
  const auto take = [this](double value) {
    if (std::isnan(value)) return value;
    ++count_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
    return value;
  };
  dtype == DType::kF64 ? each<double>(values, take) : each<float>(values, take);
}

void standardise(DType dtype, std::span<std::byte> values, double offset, double scale) {
  const auto change = [&](double value) { return (value - offset) / scale; };
  dtype == DType::kF64 ? each<double>(values, change) : each<float>(values, change);
}

namespace {

constexpr std::int64_t kCheckedAtOnce = 16384;  ///< elements

bool is_whole(DType dtype) {
  return dtype != DType::kF32 && dtype != DType::kF64;
}

/// Returns the range of values of an integer field.
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

}  // namespace

Shape Arrays::parse_shape(const std::string& text) const {
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
  fail_config(fmt::format("{}: shapes: expected extents such as 1x16x16 (at most {}), found '{}'", owner_,
                          kMaxRank - 1, text));
}

DType Arrays::parse_type(const std::string& text) const {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    if (dtype_name(dtype) == text) return dtype;
  }
  fail_config(fmt::format("{}: types: expected f32, f64, i32, i64 or u8, found '{}'", owner_, text));
}

std::vector<Arrays::Pair> Arrays::pairs(const Options& options, std::string_view option,
                                        const char* value) const {
  std::vector<Pair> found;
  for (const std::string_view entry : options.texts(option)) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == entry.size()) {
      fail_config(fmt::format("{}: {}: expected \"name={}\", found \"{}\"", owner_, option, value, entry));
    }
    Pair pair{std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))};
    for (const Pair& other : found) {
      if (other.name == pair.name)
        fail_config(fmt::format("{}: {}: '{}' stands there twice", owner_, option, pair.name));
    }
    found.push_back(std::move(pair));
  }
  return found;
}

Arrays::Arrays(std::string owner, const char* example, const Options& options)
    : IndexedDataset(owner, options),
      owner_(std::move(owner)),
      inputs_(pairs(options, "inputs", example)),
      targets_(pairs(options, "targets", example)),
      val_inputs_(pairs(options, "val_inputs", example)),
      val_targets_(pairs(options, "val_targets", example)),
      types_(pairs(options, "types", "f32")),
      shapes_(pairs(options, "shapes", "1x16x16")),
      classes_(options.integer("classes")) {
  for (const std::string_view name : options.texts("standardise")) standardised_.emplace_back(name);
  if (inputs_.empty())
    fail_config(fmt::format("{}: inputs: expected at least one \"name={}\", found none", owner_, example));
  for (const Pair& input : inputs_) {
    for (const Pair& target : targets_) {
      if (input.name == target.name)
        fail_config(fmt::format("{}: '{}' is both an input and a target", owner_, input.name));
    }
  }
  check_same_names();
}

void Arrays::check_same_names() const {
  if (val_inputs_.empty() && val_targets_.empty()) return;
  const auto names = [](const std::vector<Pair>& list) {
    std::vector<std::string_view> all;
    for (const Pair& pair : list) all.push_back(pair.name);
    return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
  };
  for (const auto& [option, list, val] :
       {std::tuple("inputs", &inputs_, &val_inputs_), {"targets", &targets_, &val_targets_}}) {
    if (names(*list) == names(*val)) continue;
    fail_config(fmt::format("{}: val_{}: expected the names of {} in their order ({}), found {}", owner_,
                            option, option, names(*list), names(*val)));
  }
}

std::vector<Arrays::Array> Arrays::open_all(FileSystem& files, const std::vector<Pair>& inputs,
                                            const std::vector<Pair>& targets) const {
  std::vector<Array> arrays;
  for (const auto* list : {&inputs, &targets}) {
    for (const Pair& pair : *list) {
      std::unique_ptr<ArrayFile> file = open_array(files, pair.name, pair.value);
      const DType dtype = file->dtype();
      const Shape shape = file->sample_shape();
      arrays.push_back({pair.name, std::move(file), dtype, shape, list == &targets});
      const ArrayFile& first = *arrays.front().file;
      if (arrays.back().file->samples() != first.samples()) {
        fail_config(fmt::format("data files '{}' and '{}': expected one number of samples, found {} and {}",
                                first.path(), arrays.back().file->path(), first.samples(),
                                arrays.back().file->samples()));
      }
    }
  }
  apply_types_and_shapes(arrays);
  for (const Array& array : arrays) check_values(array);
  return arrays;
}

void Arrays::apply_types_and_shapes(std::vector<Array>& arrays) const {
  const auto find = [&](const char* option, const std::string& name) -> Array& {
    for (Array& array : arrays) {
      if (array.name == name) return array;
    }
    fail_config(fmt::format("{}: {}: there is no field '{}'", owner_, option, name));
  };
  for (const Pair& pair : types_) {
    Array& array = find("types", pair.name);
    array.dtype = parse_type(pair.value);
    if (!is_whole(array.file->dtype()) && is_whole(array.dtype)) {
      fail_config(fmt::format(
          "data file '{}': its elements are {} and cannot become {} without loss; round them before "
          "they are written",
          array.file->path(), dtype_name(array.file->dtype()), pair.value));
    }
  }
  for (const Pair& pair : shapes_) {
    Array& array = find("shapes", pair.name);
    array.shape = parse_shape(pair.value);
    if (array.shape.elements() != array.file->elements_per_sample()) {
      fail_config(fmt::format(
          "data file '{}': a sample of shape {} has {} elements; shapes asks for {}, which has {}",
          array.file->path(), array.file->sample_shape().text(), array.file->elements_per_sample(),
          pair.value, array.shape.elements()));
    }
  }
}

void Arrays::check_values(const Array& array) const {
  const DType stored = array.file->dtype();
  if (!is_whole(stored)) return;
  const bool has_classes = array.target && is_whole(array.dtype) && classes_ > 0;
  const auto [low, high] =
      has_classes ? std::pair<std::int64_t, std::int64_t>(-1, classes_ - 1) : range_of(array.dtype);
  const auto [stored_low, stored_high] = range_of(stored);
  // A bool may be any byte on disk.
  if (is_whole(array.dtype) && stored != DType::kBool && low <= stored_low && stored_high <= high) return;
  if (!is_whole(array.dtype) && stored != DType::kBool) return;
  const std::int64_t elements = array.file->elements_per_sample(), samples = array.file->samples();
  const std::int64_t at_once = std::max<std::int64_t>(1, kCheckedAtOnce / elements);
  std::vector<std::int64_t> values(at_once * elements);
  for (std::int64_t first = 0; first < samples; first += at_once) {
    const std::int64_t now = std::min(at_once, samples - first);
    array.file->read(first, now, DType::kI64, reinterpret_cast<std::byte*>(values.data()));
    for (std::int64_t i = 0; i < now * elements; ++i) {
      const std::int64_t value = values[i], at = first * elements + i;
      if (stored == DType::kBool && value > 1) {
        fail_config(fmt::format("data file '{}': element {} of type bool has the byte {}; expected 0 or 1",
                                array.file->path(), at, value));
      }
      if (!is_whole(array.dtype) || (low <= value && value <= high)) continue;
      fail_config(
          has_classes
              ? fmt::format("data file '{}': target {} at element {} is neither -1 (ignored) nor one of "
                            "the {} classes; set classes to their number",
                            array.file->path(), value, at, classes_)
              : fmt::format("data file '{}': {} at element {} does not fit into {}", array.file->path(),
                            value, at, dtype_name(array.dtype)));
    }
  }
}

void Arrays::check_val_arrays() const {
  for (std::size_t i = 0; i < val_arrays_.size(); ++i) {
    const Array &main = arrays_[i], &val = val_arrays_[i];
    if (main.dtype == val.dtype && main.shape == val.shape) continue;
    fail_config(
        fmt::format("data files '{}' and '{}': expected one type and sample shape, found {} {} and {} {}",
                    main.file->path(), val.file->path(), dtype_name(main.dtype), main.shape.text(),
                    dtype_name(val.dtype), val.shape.text()));
  }
}

IndexedContent Arrays::load() {
  const std::unique_ptr<FileSystem> files = make_posix_files();
  arrays_ = open_all(*files, inputs_, targets_);
  if (!val_inputs_.empty()) val_arrays_ = open_all(*files, val_inputs_, val_targets_);
  check_val_arrays();
  check_standardised();
  IndexedContent content;
  content.samples = arrays_.front().file->samples();
  if (!val_arrays_.empty()) content.val_samples = val_arrays_.front().file->samples();
  for (const Array& array : arrays_) {
    content.fields.push_back({array.name, array.dtype, array.shape});
    content.is_target.push_back(array.target);
  }
  for (const std::vector<Array>* list : {&arrays_, &val_arrays_}) {
    for (const Array& array : *list) {
      const std::string& path = array.file->file();
      if (std::none_of(content.sources.begin(), content.sources.end(),
                       [&](const DataSource& source) { return source.path == path; })) {
        content.sources.push_back({path, sha256_of_file(*files, path)});
      }
    }
  }
  if (classes_ > 0) content.attributes = {{"classes", classes_}};
  return content;
}

void Arrays::check_standardised() const {
  for (const std::string& name : standardised_) {
    std::vector<std::string_view> real;
    bool found = false;
    for (const Array& array : arrays_) {
      if (is_whole(array.dtype)) continue;
      found = found || array.name == name;
      real.push_back(array.name);
    }
    if (!found)
      fail_config(fmt::format(
          "{}: standardise: expected real fields ({}), found '{}'", owner_,
          real.empty() ? "there are none; types makes them so" : fmt::format("{}", fmt::join(real, ", ")),
          name));
  }
}

void Arrays::opened(DataInfo& info) {
  for (const std::string& name : standardised_) {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      Array& array = arrays_[i];
      if (array.name != name) continue;
      std::vector<std::byte> sample(dtype_bytes(array.dtype, array.shape.elements()));
      Moments moments;
      for (std::int64_t s = 0; s < info.train_samples; ++s) {
        array.file->read(train_index(s), 1, array.dtype, sample.data());
        moments.add(array.dtype, sample);
      }
      if (!(moments.deviation() > 0))
        fail_config(fmt::format(
            "data file '{}': standardise: expected values that differ, found mean {} and "
            "standard deviation {} over {} values of {} samples",
            array.file->path(), moments.mean(), moments.deviation(), moments.count(), info.train_samples));
      array.offset = info.fields[i].offset = moments.mean();
      array.scale = info.fields[i].scale = moments.deviation();
      if (val_arrays_.empty()) continue;
      val_arrays_[i].offset = array.offset, val_arrays_[i].scale = array.scale;
    }
  }
}

void Arrays::copy(bool from_val_files, std::int64_t index, std::int64_t row,
                  std::span<const TensorView> fields) const {
  const std::vector<Array>& arrays = from_val_files ? val_arrays_ : arrays_;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Array& array = arrays[i];
    const std::int64_t bytes = dtype_bytes(array.dtype, array.shape.elements());
    std::byte* out = static_cast<std::byte*>(fields[i].data) + row * bytes;
    array.file->read(index, 1, array.dtype, out);
    if (array.offset != 0 || array.scale != 1)
      standardise(array.dtype, {out, static_cast<std::size_t>(bytes)}, array.offset, array.scale);
  }
}

}  // namespace tenon::npy

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.npy",
                               .version = "0.1.0",
                               .summary = "arrays in NumPy's and in HDF5's files as data"},
             tenon::npy::Npy, tenon::npy::Hdf5)
