// A plugin of two components. Layer `swish_gate` (Shazeer, arXiv 2002.05202) joins two branches:
//   y = a s(a) b, s(a) = 1 / (1 + exp(-a))       da = dy b s(a) (1 + a (1 - s(a)))       db = dy a s(a)
// Schedule `cosine_floor` rises linearly over `warmup` slots, then falls along half a cosine to `floor` of
// the rate.
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/bf16.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace {

class SwishGate final : public tenon::Layer {
 public:
  static constexpr tenon::PortSpec kPorts[] = {
      tenon::port::input("gate", "[...]").of("activations"),
      tenon::port::input("value", "[...]").of("activations"),
      tenon::port::output("y", "[...]").of("activations"),
  };
  static constexpr tenon::ComponentInfo kInfo{.id = "swish_gate",
                                              .summary = "product of a value and a swish of another",
                                              .capabilities = TENON_CAP_HOST,
                                              .ports = kPorts};

  explicit SwishGate(const tenon::Options&) {}

  void infer(tenon::InferContext& context) override {
    const tenon::ValueSpec a = context.input(0), b = context.input(1);
    if (!(a.shape == b.shape)) {
      tenon::fail_config("layer swish_gate '" + std::string(context.name()) +
                         "': expected equal shapes, found " + a.shape.text() + " and " + b.shape.text());
    }
    context.keep_input(0);
    context.keep_input(1);
    context.output(a);
  }

  void forward(tenon::ForwardContext& context) override {
    by_type(context.input(0).dtype, [&]<typename Value, typename Real>() {
      const Value *a = context.input(0).as<Value>(), *b = context.input(1).as<Value>();
      Value* const y = context.output(0).as<Value>();
      each(context.output(0).elements(),
           [&](std::int64_t i) { y[i] = Value(Real(a[i]) * sigmoid(Real(a[i])) * Real(b[i])); });
    });
  }

  void backward(tenon::BackwardContext& context) override {
    by_type(context.input(0).dtype, [&]<typename Value, typename Real>() {
      const Value *a = context.input(0).as<Value>(), *b = context.input(1).as<Value>();
      const Value* const dy = context.output_gradient(0).as<Value>();
      const tenon::GradientSink da = context.input_gradient(0), db = context.input_gradient(1);
      each(context.input(0).elements(), [&](std::int64_t i) {
        const Real x = Real(a[i]), s = sigmoid(x);
        give<Value>(da, i, Real(dy[i]) * Real(b[i]) * s * (1 + x * (1 - s)));
        give<Value>(db, i, Real(dy[i]) * x * s);
      });
    });
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  /// Calls use<Value, Real>(): Value of activations, Real of arithmetic.
  template <typename Use>
  static void by_type(tenon::DType dtype, Use use) {
    if (dtype == tenon::DType::kF64) return use.template operator()<double, double>();
    if (dtype == tenon::DType::kBF16) return use.template operator()<tenon::Bf16, float>();
    use.template operator()<float, float>();
  }
  template <typename Real>
  static Real sigmoid(Real x) {
    return 1 / (1 + std::exp(-x));
  }
  template <typename Body>
  static void each(std::int64_t elements, Body body) {
    tenon::parallel_for(elements, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i);
    });
  }
  template <typename Value, typename Real>
  static void give(const tenon::GradientSink& sink, std::int64_t i, Real value) {
    if (sink.view.empty()) return;
    Value& to = sink.view.as<Value>()[i];
    to = Value(sink.accumulate ? Real(to) + value : value);
  }
};

class CosineFloor final : public tenon::Schedule {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("warmup", "0").at_least(0).in_unit("slots").doc_text("of a linear rise from 0"),
      tenon::option::real("floor", "0.1").between(0, 1).doc_text("share of the rate that is left at the end"),
  };
  static constexpr tenon::ComponentInfo kInfo{.id = "cosine_floor",
                                              .summary = "linear rise, then half a cosine down to a floor",
                                              .options = kOptions};

  explicit CosineFloor(const tenon::Options& options)
      : warmup_(static_cast<double>(options.integer("warmup"))), floor_(options.real("floor")) {}

  double rate(const tenon::SchedulePoint& point) const override {
    const auto slot = static_cast<double>(point.slot), steps = static_cast<double>(point.steps);
    if (slot < warmup_) return point.base_lr * (slot + 1) / warmup_;
    const double done = std::clamp((slot - warmup_) / std::max(steps - warmup_, 1.0), 0.0, 1.0);
    return point.base_lr * (floor_ + (1 - floor_) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
  }

 private:
  double warmup_, floor_;
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "author.gates",
                               .version = "0.2.0",
                               .summary = "gated units and their schedule",
                               .vendor = "author"},
             SwishGate, CosineFloor)
