// Data set `npy` (contract dataset/1): arrays in .npy files as inputs and targets, one field per file. The
// operating system's page cache is the only copy.
#pragma once

#include "arrays.hpp"

namespace tenon::npy {

class Npy final : public Arrays {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::texts("inputs", nullptr).mandatory().doc_text("fields that models read: \"name=file\" each"),
      option::texts("targets", "[]").doc_text("fields that losses compare with: \"name=file\" each"),
      option::texts("val_inputs", "[]")
          .doc_text("files to validate on, in place of a held-out share; the same names as in inputs"),
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
  static constexpr ComponentInfo kInfo{.id = "npy",
                                       .summary = "arrays in NumPy's .npy files, one field per file",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Npy(const Options& options) : Arrays("data.npy", "file.npy", options) {}

 private:
  std::unique_ptr<ArrayFile> open_array(FileSystem& files, const std::string& name,
                                        const std::string& text) const override;
};

}  // namespace tenon::npy
