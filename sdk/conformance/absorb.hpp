// A loss of any values with one parameter per value: ends the graphs of the kit, and stands before layers
// that read losses.
#pragma once

#include "base/at.hpp"

#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/testing/tensors.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::conformance {

/// Per sample (s - 1)^2 / 2 with s = sum over values i of w_i x the mean of the sample's elements of i.
class Absorb final : public Layer, public LossLayer {
 public:
  static constexpr OptionSpec kOptions[] = {option::text("metric", "\"loss\"")};
  static constexpr ComponentInfo kInfo{
      .id = "conformance_absorb", .summary = "a loss of any values", .options = kOptions};
  explicit Absorb(const Options& options) : Absorb(options.text("metric")) {}
  explicit Absorb(std::string_view metric) : metric_(metric) {}

  void infer(InferContext& context) override {
    device_ = &context.device();
    values_ = context.inputs();
    samples_ = context.input(0).shape.rank() == 0 ? 1 : context.input(0).shape[0];
    for (int i = 0; i < values_; ++i) context.keep_input(i);
    ParameterSpec spec;
    spec.name = std::string(context.name()) + ".w";
    spec.dtype = context.parameters();
    spec.shape = {values_};
    spec.init = Initializer::kConstant;
    spec.init_scale = 0.5;
    w_ = context.parameter(spec);
    context.output({{2}, DType::kF64});
  }
  void forward(ForwardContext& context) override {
    double sum = 0, counted = 0;
    for (const double s : scores(context)) {
      if (!(s - s == 0)) continue;  // padding
      sum += (s - 1) * (s - 1) / 2;
      counted += 1;
    }
    testing::write(*device_, context.output(0), std::vector<double>{sum, counted});
  }
  void backward(BackwardContext& context) override {
    const std::vector<double> s = scores(context), w = testing::read(*device_, context.parameter(w_));
    const GradientSink dw_sink = context.gradient(w_);
    std::vector<double> dw(w.size(), 0.0);
    if (dw_sink.accumulate) dw = testing::read(*device_, dw_sink.view);
    for (int i = 0; i < values_; ++i) {
      const std::vector<double> means = sample_means(context.input(i));
      const std::int64_t size = context.input(i).elements() / static_cast<std::int64_t>(means.size());
      const GradientSink sink = context.input_gradient(i);
      std::vector<double> dx(sink.view.empty() ? 0 : static_cast<std::size_t>(sink.view.elements()), 0.0);
      if (sink.accumulate && !dx.empty()) dx = testing::read(*device_, sink.view);
      for (std::size_t b = 0; b < s.size(); ++b) {
        if (!(s[b] - s[b] == 0)) continue;
        const double pull = seed_ * (s[b] - 1);
        const std::size_t row = means.size() == s.size() ? b : 0;
        base::at(dw, i) += pull * means[row];
        for (std::size_t j = 0; j < static_cast<std::size_t>(size) && !dx.empty(); ++j)
          dx[row * static_cast<std::size_t>(size) + j] += pull * base::at(w, i) / static_cast<double>(size);
      }
      if (!dx.empty()) testing::write(*device_, sink.view, dx);
    }
    if (!dw_sink.view.empty()) testing::write(*device_, dw_sink.view, dw);
  }
  void* query(std::string_view id) override { return id == kId ? static_cast<LossLayer*>(this) : nullptr; }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  /// One mean per sample, or one for the whole tensor where its first extent is not the batch.
  std::vector<double> sample_means(const TensorView& view) const {
    const std::vector<double> all = testing::read(*device_, view);
    const bool by_sample = view.shape.rank() > 0 && view.shape[0] == samples_;
    std::vector<double> means(by_sample ? static_cast<std::size_t>(samples_) : 1, 0.0);
    const std::size_t size = all.size() / means.size();
    const double scale = (dtype_is_real(view.dtype) ? 1.0 : 1.0 / 64) / static_cast<double>(size);
    for (std::size_t i = 0; i < all.size(); ++i) means[i / size] += all[i] * scale;
    return means;
  }
  std::vector<double> scores(RunContext& context) const {
    const std::vector<double> w = testing::read(*device_, context.parameter(w_));
    std::vector<double> s(samples_, 0.0);
    for (int i = 0; i < values_; ++i) {
      const std::vector<double> means = sample_means(context.input(i));
      for (std::size_t b = 0; b < s.size(); ++b)
        s[b] += base::at(w, i) * means[means.size() == s.size() ? b : 0];
    }
    return s;
  }

  std::string metric_;
  Device* device_ = nullptr;
  int values_ = 0;
  std::int64_t samples_ = 0;
  double seed_ = 0;
  ParameterRef w_;
};

}  // namespace tenon::conformance
