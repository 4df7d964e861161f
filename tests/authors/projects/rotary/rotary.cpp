// Layer `rotary_pairs` (Su et al., arXiv 2104.09864): rotates pairs of the channels of each head by an angle
// that grows with the position, so that products of queries and keys depend on distances.
//   y[t, i]     = x[t, i] cos(t w_i) - x[t, i + d/2] sin(t w_i)        w_i = base^(-2 i / d), i < d/2
//   y[t, i+d/2] = x[t, i] sin(t w_i) + x[t, i + d/2] cos(t w_i)        d: channels of a head
// The gradient is rotated back: dx is the rotation of dy by the opposite angle.
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/bf16.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kRowBlock = 64;  // of one thread's block

class Rotary final : public tenon::Layer {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("heads", nullptr).mandatory().between(1, 65536).doc_text("that share the width"),
      tenon::option::real("base", "10000")
          .between(1.0001, 1e12)
          .doc_text("the slowest pair turns once in about 2 pi base positions"),
  };
  static constexpr tenon::PortSpec kPorts[] = {
      tenon::port::input("x", "[batch, time, width]").of("activations"),
      tenon::port::output("y", "[batch, time, width]").of("activations"),
  };
  static constexpr tenon::ComponentInfo kInfo{.id = "rotary_pairs",
                                              .summary = "rotation of pairs of channels by the position",
                                              .options = kOptions,
                                              .capabilities = TENON_CAP_HOST,
                                              .ports = kPorts};

  explicit Rotary(const tenon::Options& options)
      : heads_(options.integer("heads")), base_(options.real("base")) {}

  void infer(tenon::InferContext& context) override {
    const tenon::ValueSpec x = context.input(0);
    if (x.shape[2] % (2 * heads_) != 0) {
      tenon::fail_config("layer rotary_pairs '" + std::string(context.name()) +
                         "': expected a width that is a multiple "
                         "of 2 x " +
                         std::to_string(heads_) + " heads, found " + x.shape.text());
    }
    time_ = x.shape[1];
    pairs_ = x.shape[2] / heads_ / 2;
    for (std::int64_t t = 0; t < time_; ++t) {
      for (std::int64_t i = 0; i < pairs_; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(base_, -static_cast<double>(i) / static_cast<double>(pairs_));
        cos_.push_back(std::cos(angle));
        sin_.push_back(std::sin(angle));
      }
    }
    context.output(x);
  }

  void forward(tenon::ForwardContext& context) override {
    rotate(context.input(0), {context.output(0), false}, 1);
  }
  void backward(tenon::BackwardContext& context) override {
    rotate(context.output_gradient(0), context.input_gradient(0), -1);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  void rotate(tenon::TensorView from, const tenon::GradientSink& to, int direction) const {
    if (from.empty() || to.view.empty()) return;
    switch (from.dtype) {
      case tenon::DType::kF64:
        return rotate_as<double, double>(from, to, direction);
      case tenon::DType::kBF16:
        return rotate_as<tenon::Bf16, float>(from, to, direction);
      default:
        return rotate_as<float, float>(from, to, direction);
    }
  }

  /// Value: of activations; Real: of arithmetic.
  template <typename Value, typename Real>
  void rotate_as(tenon::TensorView from, const tenon::GradientSink& to, int direction) const {
    const Value* const x = from.as<Value>();
    Value* const y = to.view.as<Value>();
    const auto give = [&](std::int64_t at, Real value) {
      y[at] = Value(to.accumulate ? Real(y[at]) + value : value);
    };
    const std::int64_t rows = from.elements() / (2 * pairs_);  // [batch, time, heads], pairs within
    tenon::parallel_for(rows, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t first = row * 2 * pairs_, angle = row / heads_ % time_ * pairs_;
        for (std::int64_t i = 0; i < pairs_; ++i) {
          const Real c = Real(cos_[static_cast<std::size_t>(angle + i)]);
          const Real s = Real(direction * sin_[static_cast<std::size_t>(angle + i)]);
          const Real low = Real(x[first + i]), high = Real(x[first + pairs_ + i]);
          give(first + i, low * c - high * s);
          give(first + pairs_ + i, low * s + high * c);
        }
      }
    });
  }

  std::int64_t heads_, time_ = 0, pairs_ = 0;
  double base_;
  std::vector<double> cos_, sin_;  // [time, pairs]
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "author.rotary",
                               .version = "0.1.0",
                               .summary = "rotary positions",
                               .vendor = "author"},
             Rotary)
