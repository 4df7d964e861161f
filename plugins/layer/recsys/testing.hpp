// Test support of this folder: graphs of one precision and kernel set, and refusals as text.
#pragma once

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing {

struct Setting {
  const char *precision, *kernels;
  std::string name() const { return std::string(precision) + " " + kernels; }
};
inline constexpr Setting kSettings[] = {
    {"fp64", "reference"}, {"fp64", "auto"}, {"fp32", "reference"}, {"fp32", "auto"}};

class Graphs {
 public:
  explicit Graphs(const Setting& setting)
      : bench_("cpu", setting.kernels, 1),
        precision_(bench_.make_component<Precision>(setting.precision, "")) {}

  bool exact() const { return precision_->activations() == DType::kF64; }
  Bench& bench() { return bench_; }
  std::unique_ptr<LayerHarness> make(std::vector<NodeSpec> nodes, const std::vector<std::string>& pulled,
                                     std::vector<TestField> fields, bool keep_values = true) {
    return std::make_unique<LayerHarness>(HarnessSpec{.layers = &*bench_.layers,
                                                      .device = &*bench_.device,
                                                      .host = &bench_.host,
                                                      .precision = &*precision_,
                                                      .keep_values = keep_values},
                                          std::move(nodes), pulled, std::move(fields));
  }

 private:
  Bench bench_;
  Made<Precision> precision_;
};

inline TestField real_field(const std::string& name, const Shape& shape) {
  return {name, shape, DType::kF64, normals(shape.elements(), name)};
}

inline void expect_refused(const std::function<void()>& call, ErrorKind kind, const std::string& says) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected an error that says: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(says));
  }
}

}  // namespace tenon::testing
