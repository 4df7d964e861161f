// Data set `npy` (contract dataset/1): arrays in .npy files as inputs and targets, one field per file.
// Samples are read from the file as they are asked for; the operating system's page cache is the only copy.
#pragma once

#include <tenon/indexed_dataset.hpp>
#include <tenon/npy.hpp>
#include <tenon/plugin.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::npy {

class Npy final : public IndexedDataset {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::texts("inputs", nullptr).mandatory().doc_text("fields that models read: \"name=file\" each"),
      option::texts("targets", "[]").doc_text("fields that losses compare with: \"name=file\" each"),
      option::texts("val_inputs", "[]")
          .doc_text("files to validate on, in place of a held-out share; the same names as in inputs"),
      option::texts("val_targets", "[]").doc_text("the same for targets"),
      option::texts("types", "[]")
          .doc_text("types other than the files': \"name=f32\" each (f32, f64, i32, i64, u8)"),
      option::texts("shapes", "[]").doc_text("sample shapes other than the files': \"name=1x16x16\" each"),
      option::texts("standardise", "[]")
          .doc_text("real fields that are given less the mean of all values trained on, over their standard "
                    "deviation"),
      option::integer("classes", "0")
          .between(0, 2147483647)
          .doc_text("every whole-numbered target must be -1 (ignored) or lie below; 0 = no classes"),
      batch_option("16"),
      order_option(),
      val_fraction_option("0.1"),
      split_option(),
  };
  static constexpr ComponentInfo kInfo{.id = "npy",
                                       .summary = "arrays in NumPy's .npy files, one field per file",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Npy(const Options& options);

 private:
  struct Pair {
    std::string name, value;
  };
  /// One field of a split.
  struct Array {
    std::string name;
    NpyFile file;
    DType dtype;  ///< as the field has it
    Shape shape;
    bool target;
    double offset = 0, scale = 1;  ///< of `standardise`: a value v of the field stands for offset + scale v
  };

  static std::vector<Pair> pairs(const Options& options, std::string_view option, const char* value);
  IndexedContent load() override;
  void opened(DataInfo& info) override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;
  /// Sample `index` as its field has it, but for `standardise`.
  void read_sample(const Array& array, std::int64_t index, std::byte* out) const;
  std::vector<Array> open_all(FileSystem& files, const std::vector<Pair>& inputs,
                              const std::vector<Pair>& targets) const;
  void apply_types_and_shapes(std::vector<Array>& arrays) const;
  void check_values(const Array& array) const;
  void check_standardised() const;
  void check_same_names() const;
  void check_val_arrays() const;

  std::vector<Pair> inputs_, targets_, val_inputs_, val_targets_, types_, shapes_;
  std::vector<std::string> standardised_;
  std::int64_t classes_;
  std::vector<Array> arrays_, val_arrays_;
};

}  // namespace tenon::npy
