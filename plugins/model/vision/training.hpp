// A model on given batches, stepped by SGD with momentum. For the tests of this folder.
#pragma once

#include <tenon/model.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

namespace tenon::testing {

inline DataInfo image_data(const Shape& image, std::int64_t classes) {
  DataInfo data;
  data.fields = {{"image", DType::kF32, image}, {"label", DType::kI32, {}}};
  data.attributes = {{"classes", classes}};
  return data;
}

inline std::int64_t trained_elements(const Executor& executor) {
  std::int64_t total = 0;
  for (const ParameterInfo& info : executor.parameters()) {
    if (info.spec.role == Role::kParameter) total += info.local.elements();
  }
  return total;
}

class ImageTrainer {
 public:
  ImageTrainer(const std::string& model, const std::string& options, const std::string& precision,
               const std::string& kernels, std::vector<TestField> batch, bool keep_values = true)
      : bench_("cpu", kernels, 1),
        precision_(bench_.make_component<Precision>(precision, "")),
        optimizer_(bench_.make_component<Optimizer>("sgd", "momentum = 0.9")),
        harness_(
            {.layers = &*bench_.layers,
             .device = &*bench_.device,
             .host = &bench_.host,
             .precision = &*precision_,
             .keep_values = keep_values},
            bench_.make_component<Model>(model, options)->build(image_data(sample_shape(batch[0]), 10)).nodes,
            {}, batch),
        momentum_(make_parameter_set("momentum", harness_.executor().parameters(), *bench_.device,
                                     SetContents::kDense)) {}

  LayerHarness& harness() { return harness_; }

  /// Mean loss of the batch, with gradients of it.
  double differentiate() {
    const double sum = harness_.forward(), count = harness_.executor().losses().back().count;
    harness_.backward(1.0 / count, true);
    return sum / count;
  }
  void update(double lr) {
    ++count_;
    for (const ParameterInfo& info : harness_.executor().parameters()) {
      const TensorView gradient = harness_.gradients().tensor(info.index);
      if (gradient.empty()) continue;
      const TensorView state[] = {momentum_->tensor(info.index)};
      optimizer_->step(
          {.lr = lr, .count = count_, .device = &*bench_.device},
          {.weights = harness_.weights().tensor(info.index), .gradients = gradient, .state = state});
    }
    harness_.executor().publish(harness_.weights());
    harness_.weights().touch(-1);
  }

 private:
  static Shape sample_shape(const TestField& images) { return Shape(images.shape.extents().subspan(1)); }

  Bench bench_;
  Made<Precision> precision_;
  Made<Optimizer> optimizer_;
  LayerHarness harness_;
  std::unique_ptr<ParameterSet> momentum_;
  std::int64_t count_ = 0;
};

/// Images of noise around one pattern per class.
inline std::vector<TestField> patterns(std::int64_t batch, const Shape& image, std::string_view purpose) {
  const std::int64_t pixels = image.elements();
  const auto labels = integers(batch, 10, std::string(purpose) + " labels"),
             noise = normals(batch * pixels, std::string(purpose) + " noise"),
             shapes = normals(10 * pixels, "patterns");
  std::vector<double> values(noise.size());
  for (std::int64_t i = 0; i < batch * pixels; ++i) {
    const auto label = static_cast<std::int64_t>(labels[i / pixels]);
    values[i] = shapes[label * pixels + i % pixels] + 0.5 * noise[i];
  }
  std::vector<std::int64_t> extents{batch};
  extents.insert(extents.end(), image.extents().begin(), image.extents().end());
  return {{"image", Shape(extents), DType::kF64, values}, {"label", {batch}, DType::kI32, labels}};
}

}  // namespace tenon::testing
