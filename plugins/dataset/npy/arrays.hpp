// Data sets `npy` and `hdf5` (contract dataset/1): arrays in files as inputs and targets, one field per
// array.
#pragma once

#include <tenon/files.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>
#include <tenon/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::npy {

/// An array of at least one dimension and one element; the first extent counts samples.
class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  /// Name in messages, and the file that holds the array.
  virtual const std::string& path() const = 0;
  virtual const std::string& file() const { return path(); }
  /// f32, f64, i32, i64, u8 or bool: the narrowest that holds every element.
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;
  std::int64_t samples() const { return shape()[0]; }
  Shape sample_shape() const { return Shape(shape().extents().subspan(1)); }
  std::int64_t elements_per_sample() const { return sample_shape().elements(); }
  /// Reads samples [first, first + count) as `dtype`, in C order: real numbers stay real. Throws FileError or
  /// Error(kRun) when the file can no longer be read. Thread-safe.
  virtual void read(std::int64_t first, std::int64_t count, DType dtype, std::byte* out) const = 0;
};

/// Base of the data sets of arrays in files: one field per array, whose first extent counts samples;
/// requested types, shapes and classes; standardised values. Samples are read on request.
class Arrays : public IndexedDataset {
 protected:
  /// `owner` begins messages: "data.npy"; `example` is what inputs name: "file.npy".
  Arrays(std::string owner, const char* example, const Options& options);

  /// All options of a data set. The texts say what `inputs`, `targets` and `val_inputs` hold.
  static constexpr std::array<OptionSpec, 12> array_options(const char* inputs, const char* targets,
                                                            const char* val_inputs) {
    return {
        option::named_paths("inputs", nullptr).mandatory().doc_text(inputs),
        option::named_paths("targets", "[]").doc_text(targets),
        option::named_paths("val_inputs", "[]").doc_text(val_inputs),
        option::named_paths("val_targets", "[]").doc_text("the same for targets"),
        option::texts("types", "[]")
            .doc_text("types other than the files': \"name=f32\" each (f32, f64, i32, i64, u8)"),
        option::texts("shapes", "[]").doc_text("sample shapes other than the files': \"name=1x16x16\" each"),
        option::texts("standardise", "[]")
            .doc_text("real fields to standardise by the mean and standard deviation of the training values"),
        option::integer("classes", "0")
            .between(0, 2147483647)
            .doc_text(
                "number of classes: every integer target must be -1 (ignored) or below it; 0 = no classes"),
        batch_option("16"),
        order_option(),
        val_fraction_option("0.1"),
        split_option(),
    };
  }

 private:
  struct Pair {
    std::string name, value;
  };
  /// One field of a split.
  struct Array {
    std::string name;
    std::unique_ptr<ArrayFile> file;
    DType dtype;  ///< of the field
    Shape shape;
    bool target;
    double offset = 0, scale = 1;  ///< of `standardise`: a value v of the field stands for offset + scale v
  };

  /// The array of field `name` that `text` names, opened and checked.
  virtual std::unique_ptr<ArrayFile> open_array(FileSystem& files, const std::string& name,
                                                const std::string& text) const = 0;

  std::vector<Pair> pairs(const Options& options, std::string_view option, const char* value) const;
  IndexedContent load() override;
  void opened(DataInfo& info) override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;
  std::vector<Array> open_all(FileSystem& files, const std::vector<Pair>& inputs,
                              const std::vector<Pair>& targets) const;
  DType parse_type(const std::string& text) const;
  Shape parse_shape(const std::string& text) const;
  void apply_types_and_shapes(std::vector<Array>& arrays) const;
  void check_values(const Array& array) const;
  void check_standardised() const;
  void check_same_names() const;
  void check_val_arrays() const;

  std::string owner_;
  std::vector<Pair> inputs_, targets_, val_inputs_, val_targets_, types_, shapes_;
  std::vector<std::string> standardised_;
  std::int64_t classes_;
  std::vector<Array> arrays_, val_arrays_;
};

/// Data set `npy` (contract dataset/1): arrays in .npy files as inputs and targets, one field per file. The
/// operating system's page cache is the only copy.
class Npy final : public Arrays {
 public:
  static constexpr auto kOptions = array_options(
      "fields that models read: \"name=file\" each", "fields that losses compare with: \"name=file\" each",
      "files to validate on, in place of a held-out share; the same names as in inputs");
  static constexpr ComponentInfo kInfo{
      .id = "npy", .summary = "arrays in NumPy's .npy files, one field per file", .options = kOptions};

  explicit Npy(const Options& options) : Arrays("data.npy", "file.npy", options) {}

 private:
  std::unique_ptr<ArrayFile> open_array(FileSystem& files, const std::string& name,
                                        const std::string& text) const override;
};

/// Data set `hdf5` (contract dataset/1): datasets in HDF5 files as inputs and targets, contiguous or chunked,
/// compressed or not. The library converts types and byte orders, and serves one caller at a time.
class Hdf5 final : public Arrays {
 public:
  static constexpr auto kOptions = array_options(
      "fields that models read: \"name=file.h5:/dataset\" each; without \":...\" the dataset /name",
      "fields that losses compare with, likewise",
      "what to validate on, in place of a held-out share; the same names as in inputs");
  static constexpr ComponentInfo kInfo{
      .id = "hdf5", .summary = "datasets in HDF5 files, one field per dataset", .options = kOptions};

  explicit Hdf5(const Options& options) : Arrays("data.hdf5", "file.h5:/dataset", options) {}

 private:
  std::unique_ptr<ArrayFile> open_array(FileSystem& files, const std::string& name,
                                        const std::string& text) const override;
};

}  // namespace tenon::npy
