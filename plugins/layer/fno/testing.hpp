// For tests of this folder: graphs in one precision, on one kernel choice.
#pragma once

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace tenon::testing {

using Integer = std::int64_t;
using Integers = std::vector<Integer>;

struct Setting {
  const char *precision, *kernels;
  double bound;  ///< of results against recorded float64 numbers
};
/// A few hundred roundings at most; PyTorch's own float32 loses 2e-7 (tests/reference/spectral.json).
inline constexpr Setting kSettings[] = {
    {"fp64", "reference", 1e-12}, {"fp32", "reference", 2e-6}, {"fp32", "auto", 2e-6}};

class Graphs {
 public:
  explicit Graphs(const Setting& setting, int threads = 1)
      : bench_("cpu", setting.kernels, threads),
        precision_(bench_.make_component<Precision>(setting.precision, "")) {}

  std::unique_ptr<LayerHarness> make(std::vector<NodeSpec> nodes, const std::vector<std::string>& pulled,
                                     std::vector<TestField> fields) {
    return std::make_unique<LayerHarness>(HarnessSpec{.layers = &*bench_.layers,
                                                      .device = &*bench_.device,
                                                      .host = &bench_.host,
                                                      .precision = &*precision_},
                                          std::move(nodes), pulled, std::move(fields));
  }
  /// The refusal of an invalid graph; "" where it is accepted.
  std::string refusal(std::vector<NodeSpec> nodes, std::vector<TestField> fields) {
    try {
      make(std::move(nodes), {"n"}, std::move(fields));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  Bench bench_;
  Made<Precision> precision_;
};

inline TestField real_field(const std::string& name, const Shape& shape) {
  return {name, shape, DType::kF64, normals(shape.elements(), name)};
}

/// A layer "n" that reads "x".
inline NodeSpec layer(std::string type, std::vector<NamedOption> options) {
  return {"n", std::move(type), {"x"}, std::move(options)};
}

}  // namespace tenon::testing
