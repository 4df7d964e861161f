// Models that are wrong in one way each, and two layers that they are made of.
#include <tenon/layer.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

namespace {

using namespace tenon;

/// y = x in forward; backward passes on half the gradient.
class HalfGradient final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "half_gradient", .summary = "a wrong derivative"};
  explicit HalfGradient(const Options&) {}
  void infer(InferContext& context) override { context.output(context.input(0)); }
  void forward(ForwardContext& context) override { pass(context.input(0), context.output(0), 1, false); }
  void backward(BackwardContext& context) override {
    const GradientSink sink = context.input_gradient(0);
    if (!sink.view.empty()) pass(context.output_gradient(0), sink.view, 0.5, sink.accumulate);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static void pass(const TensorView& from, const TensorView& to, double factor, bool accumulate) {
    from.dtype == DType::kF64 ? pass_as<double>(from, to, factor, accumulate)
                              : pass_as<float>(from, to, factor, accumulate);
  }
  template <typename Real>
  static void pass_as(const TensorView& from, const TensorView& to, double factor, bool accumulate) {
    for (std::int64_t i = 0; i < from.elements(); ++i) {
      const Real value = static_cast<Real>(factor) * from.as<Real>()[i];
      to.as<Real>()[i] = accumulate ? to.as<Real>()[i] + value : value;
    }
  }
};

NodeSpec linear(const char* name, const char* input, std::int64_t features) {
  return {name, "linear", {input}, {{"features", features}}};
}

class Base : public Model {
 public:
  explicit Base(const Options&) {}
  void* query(std::string_view) override { return nullptr; }
};

class Grows final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "grows", .summary = "another graph each time"};
  using Base::Base;
  GraphSpec build(const DataInfo&) override {
    return {{linear("fc1", "x", ++width_), linear("fc2", "fc1", 1), {"loss", "mse", {"fc2", "t"}, {}}}};
  }

 private:
  std::int64_t width_ = 4;
};

class LeavesALooseEnd final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "leaves_a_loose_end", .summary = "a layer that nobody reads"};
  using Base::Base;
  GraphSpec build(const DataInfo&) override {
    return {{linear("fc1", "x", 4), linear("fc2", "x", 1), {"loss", "mse", {"fc2", "t"}, {}}}};
  }
};

class HalvesItsGradient final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "halves_its_gradient", .summary = "a wrong derivative inside"};
  using Base::Base;
  GraphSpec build(const DataInfo&) override {
    return {{linear("fc1", "x", 4),
             {"half", "half_gradient", {"fc1"}, {}},
             linear("fc2", "half", 1),
             {"loss", "mse", {"fc2", "t"}, {}}}};
  }
};

class ForgetsToLook final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_to_look", .summary = "takes the first field unseen"};
  using Base::Base;
  GraphSpec build(const DataInfo& data) override {
    const std::string x = data.fields.at(0).name, t = data.fields.at(1).name;
    return {{linear("fc", x.c_str(), 1), {"loss", "mse", {"fc", t}, {}}}};
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.model", .version = "1.0.0", .summary = "wrong models"}, HalfGradient,
             Grows, LeavesALooseEnd, HalvesItsGradient, ForgetsToLook)
