// Layers that are wrong in one way each: y = w x by column with one line changed. layer_losses.hpp has the
// losses and metrics.
#include "layer_losses.hpp"

#include <tenon/plugin.hpp>
#include <tenon/random.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace tenon;

class IgnoresInput final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "ignores_input", .summary = "constant"};
  using Scaled::Scaled;
  double map(double, double w) override { return w; }
};

class IgnoresParameter final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "ignores_parameter", .summary = "a weight for show"};
  using Scaled::Scaled;
  double map(double x, double) override { return x; }
};

class CountsLayers final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_layers", .summary = "names from a static"};
  using Scaled::Scaled;
  std::string weight_name() override {
    static int made = 0;
    return "w" + std::to_string(++made);
  }
};

class WorksInPlace final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "works_in_place", .summary = "x is its scratch memory"};
  using Scaled::Scaled;
  void forward(ForwardContext& context) override {
    Scaled::forward(context);
    const TensorView x = context.input(0);
    for (std::int64_t i = 0; i < x.elements(); ++i) put(x, i, get(context.output(0), i));
  }
};

class AddsUp final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "adds_up", .summary = "a call more, a little more"};
  using Scaled::Scaled;
  double map(double x, double w) override { return x * w + 1e-6 * calls_++; }

 private:
  int calls_ = 0;
};

class AlwaysAdds final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "always_adds", .summary = "to whatever the memory holds"};
  using Scaled::Scaled;
  bool adds_weights(bool) override { return true; }
};

class KeepsInAStatic final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "keeps_in_a_static", .summary = "one memory for all"};
  using Scaled::Scaled;
  void forward(ForwardContext& context) override {
    Scaled::forward(context);
    kept().resize(static_cast<std::size_t>(context.input(0).elements()));
    for (std::size_t i = 0; i < kept().size(); ++i)
      kept()[i] = get(context.input(0), static_cast<std::int64_t>(i));
  }
  double input_of(BackwardContext&, std::int64_t i) override { return kept()[static_cast<std::size_t>(i)]; }

 private:
  static std::vector<double>& kept() {
    static std::vector<double> values;
    return values;
  }
};

class DropsAlways final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "drops_always", .summary = "noise in evaluation"};
  using Scaled::Scaled;
  void forward(ForwardContext& context) override {
    Scaled::forward(context);
    const RandomKey key = context.random("noise");
    for (std::int64_t i = 0; i < context.output(0).elements(); ++i) {
      put(context.output(0), i,
          get(context.output(0), i) *
              random_uniform(key, context.draw_step(), static_cast<std::uint64_t>(i)));
    }
  }
};

class DrawsFromZero final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "draws_from_zero", .summary = "forgets first_element()"};
  using Scaled::Scaled;
  void forward(ForwardContext& context) override {
    Scaled::forward(context);
    if (!context.training()) return;
    const RandomKey key = context.random("noise");
    for (std::int64_t i = 0; i < context.output(0).elements(); ++i) {
      put(context.output(0), i,
          get(context.output(0), i) *
              random_uniform(key, context.draw_step(), static_cast<std::uint64_t>(i)));
    }
  }
};

class TrustsShapes final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "trusts_shapes", .summary = "std::out_of_range for the user"};
  using Scaled::Scaled;
  void infer(InferContext& context) override {
    const Shape shape = context.input(0).shape;
    std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end()).at(1) = 0;
    Scaled::infer(context);
  }
};

class WrongInputGradient final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "wrong_input_gradient", .summary = "off by a thousandth"};
  using Scaled::Scaled;
  double input_factor(double w) override { return 1.001 * w; }
};

class WrongWeightGradient final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "wrong_weight_gradient", .summary = "the mean, not the sum"};
  using Scaled::Scaled;
  double weight_factor(std::int64_t rows) override { return 1 / static_cast<double>(rows); }
};

class NeverAddsToWeights final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "never_adds_to_weights",
                                       .summary = "the last micro-batch stays"};
  using Scaled::Scaled;
  bool adds_weights(bool) override { return false; }
};

class NeverAddsToInputs final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "never_adds_to_inputs", .summary = "overwrites other readers"};
  using Scaled::Scaled;
  bool adds_inputs(bool) override { return false; }
};

class ReadsWhatIsGone final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "reads_what_is_gone", .summary = "no keep_input"};
  using Scaled::Scaled;
  void keep(InferContext&) override {}
};

class HalfPrecision final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "half_precision", .summary = "eleven bits, except in f64"};
  using Scaled::Scaled;
  void forward(ForwardContext& context) override {
    Scaled::forward(context);
    const TensorView y = context.output(0);
    for (std::int64_t i = 0; i < y.elements() && y.dtype == DType::kF32; ++i)
      put(y, i, std::round(get(y, i) * 1024) / 1024);
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.layer", .version = "1.0.0", .summary = "wrong layers"}, IgnoresInput,
             IgnoresParameter, CountsLayers, WorksInPlace, AddsUp, AlwaysAdds, KeepsInAStatic, DropsAlways,
             DrawsFromZero, TrustsShapes, WrongInputGradient, WrongWeightGradient, NeverAddsToWeights,
             NeverAddsToInputs, ReadsWhatIsGone, HalfPrecision, IgnoresSeed, CountsPadding, NeverForgets)
