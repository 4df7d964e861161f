// The precision component that offers a number format, and one matrix put through it on the device `cpu`.
// Serves `tenon quantize`; it knows no format by name.
#pragma once

#include "stored_run.hpp"

#include <tenon/device.hpp>
#include <tenon/precision.hpp>
#include <tenon/registry.hpp>
#include <tenon/sdk/quantizer.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::cli {

/// Choices of the user; empty texts and zeros select the format's default.
struct QuantizeChoice {
  std::string format, scale, rounding, transform;
  std::int64_t block_rows = 0, block_columns = 0;
  std::uint64_t seed = 0;
};

/// Results in host memory.
struct QuantizedMatrix {
  QuantizeShape shape;
  QuantizeReport report;
  std::vector<std::uint8_t> codes;
  std::vector<std::byte> block_scales;  ///< empty: the format has none
  std::vector<float> dequantized;
};

class FormatUser {
 public:
  /// Throws Error(kConfig) that lists all formats if no component offers this one.
  FormatUser(Registry& registry, const std::string& format);

  /// "precision.nvfp4"
  std::string_view component() const { return name_; }
  /// values: [rows, columns]. Errors are those of the component, prefixed with `what`.
  QuantizedMatrix run(const QuantizeChoice& choice, const std::string& what, const std::vector<float>& values,
                      std::int64_t rows, std::int64_t columns);

 private:
  template <typename Interface>
  Component<Interface> make(Registry& registry, const std::string& type);

  OfflineHost host_;
  std::vector<std::unique_ptr<ResolvedOptions>> options_;
  Component<Device> device_;
  Component<Precision> precision_;
  Quantizer* quantizer_ = nullptr;
  std::string name_;
};

}  // namespace tenon::cli
