// Data set `hdf5` (contract dataset/1): datasets in HDF5 files as inputs and targets, contiguous or chunked,
// compressed or not. The library converts types and byte orders, and serves one caller at a time.
#pragma once

#include "arrays.hpp"

namespace tenon::npy {

class Hdf5 final : public Arrays {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::texts("inputs", nullptr)
          .mandatory()
          .doc_text(
              "fields that models read: \"name=file.h5:/dataset\" each; without \":...\" the dataset /name"),
      option::texts("targets", "[]").doc_text("fields that losses compare with, likewise"),
      option::texts("val_inputs", "[]")
          .doc_text("what to validate on, in place of a held-out share; the same names as in inputs"),
      option::texts("val_targets", "[]").doc_text("the same for targets"),
      types_option(),
      shapes_option(),
      standardise_option(),
      classes_option(),
      batch_option("16"),
      order_option(),
      val_fraction_option("0.1"),
      split_option(),
  };
  static constexpr ComponentInfo kInfo{.id = "hdf5",
                                       .summary = "datasets in HDF5 files, one field per dataset",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Hdf5(const Options& options) : Arrays("data.hdf5", "file.h5:/dataset", options) {}

 private:
  std::unique_ptr<ArrayFile> open_array(FileSystem& files, const std::string& name,
                                        const std::string& text) const override;
};

}  // namespace tenon::npy
