// Layers that are wrong in one way each: y = w x by column with one line changed; losses and metrics.
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/options.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>
#include <tenon/stepwise.hpp>
#include <tenon/tensor_values.hpp>
#include <tenon/transport.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

// The layer that the broken ones are made from, and losses and metrics that are wrong in one way each.

namespace {

using namespace tenon;

double get(const TensorView& view, std::int64_t i) {
  if (view.dtype == DType::kBF16) return static_cast<double>(real_of_bf16(view.as<std::uint16_t>()[i]));
  return view.dtype == DType::kF64 ? view.as<double>()[i] : static_cast<double>(view.as<float>()[i]);
}
void put(const TensorView& view, std::int64_t i, double value) {
  const auto narrow = static_cast<float>(value);
  if (view.dtype == DType::kBF16) {
    view.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(narrow) >> 16);
  } else {
    view.dtype == DType::kF64 ? view.as<double>()[i] = value : view.as<float>()[i] = narrow;
  }
}

/// Correct: y[r, c] = w[c] x[r, c].
class Scaled : public Layer {
 public:
  explicit Scaled(const Options&) {}
  void infer(InferContext& context) override {
    if (context.inputs() != 1 || context.input(0).shape.rank() < 2 ||
        context.input(0).dtype != context.activations())
      fail_config("expected one real input of rows and columns");
    const Shape shape = context.input(0).shape;
    columns_ = shape[shape.rank() - 1];
    ParameterSpec spec;
    spec.name = std::string(context.name()) + "." + weight_name();
    spec.dtype = context.parameters();
    spec.shape = {columns_};
    spec.init = Initializer::kNormal;
    spec.init_scale = 1;
    w_ = context.parameter(spec);
    context.output(context.input(0));
    keep(context);
  }
  void forward(ForwardContext& context) override {
    const TensorView x = context.input(0), w = context.parameter(w_);
    for (std::int64_t i = 0; i < x.elements(); ++i)
      put(context.output(0), i, map(get(x, i), get(w, i % columns_)));
  }
  void backward(BackwardContext& context) override {
    const TensorView dy = context.output_gradient(0), w = context.parameter(w_);
    const GradientSink dw = context.gradient(w_);
    for (std::int64_t c = 0; c < columns_ && !adds_weights(dw.accumulate); ++c) put(dw.view, c, 0);
    // x is read before anything is written that may share its memory.
    for (std::int64_t i = 0; i < dy.elements(); ++i) {
      const double change = get(dy, i) * input_of(context, i) * weight_factor(dy.elements() / columns_);
      put(dw.view, i % columns_, get(dw.view, i % columns_) + change);
    }
    const GradientSink dx = context.input_gradient(0);
    for (std::int64_t i = 0; i < dy.elements() && !dx.view.empty(); ++i) {
      const double before = adds_inputs(dx.accumulate) ? get(dx.view, i) : 0;
      put(dx.view, i, before + get(dy, i) * input_factor(get(w, i % columns_)));
    }
  }
  void* query(std::string_view) override { return nullptr; }

 protected:
  virtual std::string weight_name() { return "w"; }
  virtual void keep(InferContext& context) { context.keep_input(0); }
  virtual double map(double x, double w) { return x * w; }
  virtual double input_of(BackwardContext& context, std::int64_t i) { return get(context.input(0), i); }
  virtual double input_factor(double w) { return w; }
  virtual double weight_factor(std::int64_t) { return 1; }
  virtual bool adds_weights(bool accumulate) { return accumulate; }
  virtual bool adds_inputs(bool accumulate) { return accumulate; }

 protected:
  ParameterRef w_;
  std::int64_t columns_ = 0;
};

/// Correct: the sum over samples of (x[b, target] - 1)^2 / 2.
class Picked : public Layer, public LossLayer {
 public:
  explicit Picked(const Options&) {}
  void infer(InferContext& context) override {
    if (context.inputs() != 2 || context.input(0).shape.rank() != 2 ||
        context.input(1).dtype != DType::kI32 || context.input(0).dtype != context.activations() ||
        context.input(1).shape.rank() != 1)
      fail_config("expected x [batch, columns] and a target per sample");
    columns_ = context.input(0).shape[1];
    context.output({{2}, DType::kF64});
    context.keep_input(0);
    context.keep_input(1);
  }
  void forward(ForwardContext& context) override {
    double* const result = context.output(0).as<double>();
    result[0] = result[1] = 0;
    for (std::int64_t b = 0; b < context.input(1).elements(); ++b) {
      const std::int64_t i = picked(context, b);
      if (i < 0) continue;
      const double rest = get(context.input(0), i) - 1;
      result[0] += rest * rest / 2;
      result[1] += 1;
    }
  }
  void backward(BackwardContext& context) override {
    const GradientSink dx = context.input_gradient(0);
    if (dx.view.empty()) return;
    for (std::int64_t i = 0; i < dx.view.elements() && !dx.accumulate; ++i) put(dx.view, i, 0);
    for (std::int64_t b = 0; b < context.input(1).elements(); ++b) {
      const std::int64_t i = picked(context, b);
      if (i >= 0) put(dx.view, i, get(dx.view, i) + seed() * (get(context.input(0), i) - 1));
    }
  }
  void* query(std::string_view id) override { return id == kId ? static_cast<LossLayer*>(this) : nullptr; }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return "loss"; }

 protected:
  virtual double seed() const { return seed_; }
  virtual std::int64_t of_padding() const { return -1; }

 private:
  /// Element of x that the target of a sample selects; negative = none.
  std::int64_t picked(RunContext& context, std::int64_t b) const {
    const std::int64_t target = context.input(1).as<std::int32_t>()[b];
    if (target < 0) return of_padding() < 0 ? -1 : b * columns_ + of_padding();
    return b * columns_ + target % columns_;
  }
  std::int64_t columns_ = 1;
  double seed_ = 1;
};

class IgnoresSeed final : public Picked {
 public:
  static constexpr ComponentInfo kInfo{.id = "ignores_seed", .summary = "no loss scale"};
  using Picked::Picked;
  double seed() const override { return 1; }
};

class CountsPadding final : public Picked {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_padding", .summary = "-1 is the first class"};
  using Picked::Picked;
  std::int64_t of_padding() const override { return 0; }
};

/// The mean over all batches so far.
class NeverForgets final : public Layer, public MetricLayer {
 public:
  static constexpr ComponentInfo kInfo{.id = "never_forgets", .summary = "begin() does nothing"};
  explicit NeverForgets(const Options&) {}
  void infer(InferContext& context) override {
    if (context.inputs() != 1) fail_config("expected one input");
  }
  void forward(ForwardContext& context) override {
    if (context.training()) return;
    for (std::int64_t i = 0; i < context.input(0).elements(); ++i) {
      sum_ += get(context.input(0), i) * get(context.input(0), i) * static_cast<double>(i);
      count_ += 1;
    }
  }
  void backward(BackwardContext&) override {}
  void* query(std::string_view id) override { return id == kId ? static_cast<MetricLayer*>(this) : nullptr; }
  void begin() override {}
  void finish(Communicator*, MetricReport& report) override { report.value("mean", sum_ / count_); }

 private:
  double sum_ = 0, count_ = 0;
};

using namespace tenon;

/// Blocks of rows add to the gradient of w in the order in which their threads end.
class SumsAsThreadsEnd final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "sums_as_threads_end", .summary = "a gradient under a mutex"};
  using Scaled::Scaled;
  void backward(BackwardContext& context) override {
    const TensorView dy = context.output_gradient(0);
    const GradientSink sink = context.gradient(w_);
    std::array<double, 64> sums{};
    std::mutex mutex;
    parallel_for(dy.elements() / columns_, 64, [&](std::int64_t begin, std::int64_t end) {
      std::array<double, 64> part{};
      for (std::int64_t i = begin * columns_; i < end * columns_; ++i)
        part[i % columns_] += get(dy, i) * input_of(context, i);
      const std::lock_guard lock(mutex);
      for (std::int64_t c = 0; c < columns_; ++c) sums[c] += part[c];
    });
    for (std::int64_t c = 0; c < columns_; ++c) sums[c] += sink.accumulate ? get(sink.view, c) : 0;
    Scaled::backward(context);
    for (std::int64_t c = 0; c < columns_; ++c) put(sink.view, c, sums[c]);
  }
};

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
    kept().resize(context.input(0).elements());
    for (std::size_t i = 0; i < kept().size(); ++i)
      kept()[i] = get(context.input(0), static_cast<std::int64_t>(i));
  }
  double input_of(BackwardContext&, std::int64_t i) override { return kept()[i]; }

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

/// The sum of a position and the one before it is no value of one position.
class LooksBack final : public Scaled, public PositionwiseLayer {
 public:
  static constexpr ComponentInfo kInfo{.id = "looks_back", .summary = "as if it were by positions"};
  using Scaled::Scaled;
  void forward(ForwardContext& context) override {
    Scaled::forward(context);
    const TensorView y = context.output(0);
    const std::int64_t time = y.shape[1], width = y.elements() / (y.shape[0] * time);
    for (std::int64_t i = y.elements(); i-- > 0;) {
      if (i / width % time > 0) put(y, i, get(y, i) + get(y, i - width));
    }
  }
  void* query(std::string_view id) override {
    return id == PositionwiseLayer::kId ? static_cast<PositionwiseLayer*>(this) : nullptr;
  }
};

/// Adds the number of the position, which step() counts from its pass instead of its sequence.
class StepsFromZero final : public Scaled, public StepwiseLayer {
 public:
  static constexpr ComponentInfo kInfo{.id = "steps_from_zero", .summary = "forgets where a row begins"};
  using Scaled::Scaled;
  void forward(ForwardContext& context) override {
    Scaled::forward(context);
    const TensorView y = context.output(0);
    const std::int64_t time = y.shape[1], width = y.elements() / (y.shape[0] * time);
    for (std::int64_t i = 0; i < y.elements(); ++i)
      put(y, i, get(y, i) + static_cast<double>(i / width % time));
  }
  std::int64_t infer_step(InferContext&, std::int64_t) override { return 0; }
  void step(ForwardContext& context, const Steps&) override { forward(context); }
  void* query(std::string_view id) override {
    return id == StepwiseLayer::kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }
};

class NeverWritten final : public Scaled {
 public:
  static constexpr ComponentInfo kInfo{.id = "never_written", .summary = "a member without a value"};
  explicit NeverWritten(const Options& options) : Scaled(options) {}
  double map(double x, double w) override { return x * w + shift_; }

 private:
  double shift_;  // NOLINT(cppcoreguidelines-pro-type-member-init): it is what is wrong
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.layer", .version = "1.0.0", .summary = "wrong layers"}, IgnoresInput,
             IgnoresParameter, CountsLayers, WorksInPlace, AddsUp, AlwaysAdds, KeepsInAStatic, DropsAlways,
             DrawsFromZero, TrustsShapes, WrongInputGradient, WrongWeightGradient, NeverAddsToWeights,
             NeverAddsToInputs, SumsAsThreadsEnd, ReadsWhatIsGone, HalfPrecision, IgnoresSeed, CountsPadding,
             NeverForgets, LooksBack, StepsFromZero, NeverWritten)
