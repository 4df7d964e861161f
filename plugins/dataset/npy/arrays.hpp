// Base of the data sets of arrays in files: one field per array, whose first extent counts samples; requested
// types, shapes and classes; standardised values. Samples are read on request.
#pragma once

#include "array_file.hpp"

#include <tenon/files.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::npy {

class Arrays : public IndexedDataset {
 public:
  static constexpr OptionSpec types_option() {
    return option::texts("types", "[]")
        .doc_text("types other than the files': \"name=f32\" each (f32, f64, i32, i64, u8)");
  }
  static constexpr OptionSpec shapes_option() {
    return option::texts("shapes", "[]")
        .doc_text("sample shapes other than the files': \"name=1x16x16\" each");
  }
  static constexpr OptionSpec standardise_option() {
    return option::texts("standardise", "[]")
        .doc_text(
            "real fields that are given less the mean of all values trained on, over their standard "
            "deviation");
  }
  static constexpr OptionSpec classes_option() {
    return option::integer("classes", "0")
        .between(0, 2147483647)
        .doc_text("every whole-numbered target must be -1 (ignored) or lie below; 0 = no classes");
  }

 protected:
  /// `owner` begins messages: "data.npy"; `example` is what inputs name: "file.npy".
  Arrays(std::string owner, const char* example, const Options& options);

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

}  // namespace tenon::npy
