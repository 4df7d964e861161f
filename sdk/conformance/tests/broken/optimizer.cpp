// Optimizers that are wrong in one way each: momentum with one line changed.
#include <tenon/optimizer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

namespace {

using namespace tenon;

constexpr OptionSpec kLr[] = {option::real("lr", "1e-2").doc_text("rate")};
constexpr StateSlot kSlots[] = {{"momentum"}};

/// Correct: b <- b / 2 + g; w <- w - lr b.
class Momentum : public OptimizerBase {
 public:
  explicit Momentum(const Options& options) : OptimizerBase(options) {}
  std::span<const StateSlot> slots() const override { return kSlots; }
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    slice.weights.dtype == DType::kF64 ? update<double>(context, slice) : update<float>(context, slice);
  }

 protected:
  virtual double change(const UpdateContext& context, double gradient, double& momentum) {
    momentum = momentum / 2 + gradient * context.gradient_scale;
    return context.lr * momentum;
  }
  virtual std::int64_t elements(const ParameterSlice& slice) { return slice.weights.elements(); }

 private:
  template <typename T>
  void update(const UpdateContext& context, const ParameterSlice& slice) {
    for (std::int64_t i = 0; i < elements(slice); ++i) {
      double momentum = static_cast<double>(slice.state[0].as<T>()[i]);
      T& w = slice.weights.as<T>()[i];
      w = static_cast<T>(static_cast<double>(w) - change(context, slice.gradients.as<T>()[i], momentum));
      slice.state[0].as<T>()[i] = static_cast<T>(momentum);
    }
  }
};

class DoesNothing final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{.id = "does_nothing", .summary = "no step at all", .options = kLr};
  using Momentum::Momentum;
  void step(const UpdateContext&, const ParameterSlice&) override {}
};

class Climbs final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{.id = "climbs", .summary = "the wrong sign", .options = kLr};
  using Momentum::Momentum;
  double change(const UpdateContext& context, double gradient, double& momentum) override {
    return -Momentum::change(context, gradient, momentum);
  }
};

class OwnRate final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{.id = "own_rate", .summary = "ignores the schedule", .options = kLr};
  using Momentum::Momentum;
  double change(const UpdateContext& context, double gradient, double& momentum) override {
    UpdateContext own = context;
    own.lr = base_lr();
    return Momentum::change(own, gradient, momentum);
  }
};

class CountsItself final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "counts_itself", .summary = "a count that is not saved", .options = kLr};
  using Momentum::Momentum;
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    UpdateContext later = context;
    later.lr /= ++steps_;
    Momentum::step(later, slice);
  }

 private:
  int steps_ = 0;
};

class NormOfTheSlice final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "norm_of_the_slice", .summary = "says that it is elementwise", .options = kLr};
  using Momentum::Momentum;
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    UpdateContext scaled = context;
    scaled.lr /= 1 + std::sqrt(static_cast<double>(slice.weights.elements()));
    Momentum::step(scaled, slice);
  }
};

class ForgetsTheScale final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "forgets_the_scale", .summary = "gradients as they come", .options = kLr};
  using Momentum::Momentum;
  double change(const UpdateContext& context, double gradient, double& momentum) override {
    UpdateContext unscaled = context;
    unscaled.gradient_scale = 1;
    return Momentum::change(unscaled, gradient, momentum);
  }
};

class RoundsToFloat final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "rounds_to_float", .summary = "f64 in name only", .options = kLr};
  using Momentum::Momentum;
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    Momentum::step(context, slice);
    if (slice.weights.dtype != DType::kF64) return;
    for (double& w : slice.weights.span<double>()) w = static_cast<double>(static_cast<float>(w));
  }
};

class DividesByTheNorm final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "divides_by_the_norm", .summary = "0 / 0 for a zero gradient", .options = kLr};
  using Momentum::Momentum;
  double change(const UpdateContext& context, double gradient, double& momentum) override {
    const double change = Momentum::change(context, gradient, momentum);
    return change / std::abs(gradient);
  }
};

class RoundsUpToVectors final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "rounds_up_to_vectors", .summary = "eight at a time, also the last ones", .options = kLr};
  using Momentum::Momentum;
  std::int64_t elements(const ParameterSlice& slice) override {
    return (slice.weights.elements() + 7) / 8 * 8;
  }
};

class SharesItsBuffer final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "shares_its_buffer", .summary = "static momentum", .options = kLr};
  using Momentum::Momentum;
  double change(const UpdateContext& context, double gradient, double& momentum) override {
    static double shared = 0;
    momentum = shared = shared / 2 + gradient * context.gradient_scale;
    return context.lr * shared;
  }
};

/// Divides the step by 1 + |g|; blocks add to the norm in the order in which their threads end.
class SumsAsThreadsEnd final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "sums_as_threads_end", .summary = "a norm under a mutex", .options = kLr};
  using Momentum::Momentum;
  bool elementwise() const override { return false; }
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    UpdateContext scaled = context;
    const double squares = slice.gradients.dtype == DType::kF64
                               ? squares_of(slice.gradients.as<double>(), slice)
                               : squares_of(slice.gradients.as<float>(), slice);
    scaled.lr /= 1 + std::sqrt(squares) * context.gradient_scale;
    Momentum::step(scaled, slice);
  }

 private:
  template <typename T>
  static double squares_of(const T* gradients, const ParameterSlice& slice) {
    double sum = 0;
    std::mutex mutex;
    parallel_for(slice.gradients.elements(), 16384, [&](std::int64_t begin, std::int64_t end) {
      double part = 0;
      for (std::int64_t i = begin; i < end; ++i) part += static_cast<double>(gradients[i]) * gradients[i];
      const std::lock_guard lock(mutex);
      sum += part;
    });
    return sum;
  }
};

constexpr StateSlot kTwins[] = {{"average"}, {"average"}};
class DrawsFromRand final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "draws_from_rand", .summary = "noise that no seed gives", .options = kLr};
  using Momentum::Momentum;
  double change(const UpdateContext& context, double gradient, double& momentum) override {
    return Momentum::change(context, gradient, momentum) * (1 + 1e-3 * (std::rand() % 1000));
  }
};

class TwoOfOneName final : public Momentum {
 public:
  static constexpr ComponentInfo kInfo{.id = "two_of_one_name", .summary = "slots", .options = kLr};
  using Momentum::Momentum;
  std::span<const StateSlot> slots() const override { return kTwins; }
};

/// Correct row updates: w <- w - lr g.
class Rows : public Momentum, public RowOptimizer {
 public:
  using Momentum::Momentum;
  void* query(std::string_view id) override {
    return id == RowOptimizer::kId ? static_cast<RowOptimizer*>(this) : nullptr;
  }
  std::span<const RowStateSlot> row_slots() const override { return {}; }
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const>,
                 const RowGradient& gradient) override {
    move(weights, gradient.ids, gradient.values.as<float>(), -context.lr * context.gradient_scale);
  }

 protected:
  static void move(RowTable& weights, std::span<const std::int64_t> ids, const float* gradients,
                   double factor) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::vector<float> row(weights.width());
      const TensorView view{row.data(), {1, weights.width()}, DType::kF32};
      weights.read(ids.subspan(i, 1), view);
      for (std::size_t j = 0; j < row.size(); ++j)
        row[j] += static_cast<float>(factor * static_cast<double>(gradients[i * row.size() + j]));
      weights.write(ids.subspan(i, 1), view);
    }
  }
};

class DecaysAllRows final : public Rows {
 public:
  static constexpr ComponentInfo kInfo{.id = "decays_all_rows", .summary = "reads the table", .options = kLr};
  using Rows::Rows;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override {
    Rows::step_rows(context, weights, state, gradient);
    std::vector<float> ones(weights.rows() * weights.width(), 1);
    std::vector<std::int64_t> all(weights.rows());
    std::iota(all.begin(), all.end(), 0);
    move(weights, all, ones.data(), -1e-3);
  }
};

class DoesNothingToRows final : public Rows {
 public:
  static constexpr ComponentInfo kInfo{.id = "does_nothing_to_rows", .summary = "no step", .options = kLr};
  using Rows::Rows;
  void step_rows(const UpdateContext&, RowTable&, std::span<RowTable* const>, const RowGradient&) override {}
};

class RowsClimb final : public Rows {
 public:
  static constexpr ComponentInfo kInfo{.id = "rows_climb", .summary = "the wrong sign", .options = kLr};
  using Rows::Rows;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const>,
                 const RowGradient& gradient) override {
    move(weights, gradient.ids, gradient.values.as<float>(), context.lr * context.gradient_scale);
  }
};

/// Applies the sum of a row's gradients once for each read.
class RowsOncePerRead final : public Rows {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "rows_once_per_read", .summary = "a shared table moves twice", .options = kLr};
  using Rows::Rows;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const>,
                 const RowGradient& gradient) override {
    const std::int64_t width = weights.width();
    for (std::size_t i = 0; i < gradient.ids.size(); ++i) {
      for (std::uint32_t read = 0; read < gradient.counts[i]; ++read) {
        move(weights, gradient.ids.subspan(i, 1),
             gradient.values.as<float>() + static_cast<std::int64_t>(i) * width,
             -context.lr * context.gradient_scale);
      }
    }
  }
};

class RowsForgetTheScale final : public Rows {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "rows_forget_the_scale", .summary = "gradients as they come", .options = kLr};
  using Rows::Rows;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const>,
                 const RowGradient& gradient) override {
    move(weights, gradient.ids, gradient.values.as<float>(), -context.lr);
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.optimizer", .version = "1.0.0", .summary = "wrong optimizers"},
             DoesNothing, Climbs, OwnRate, CountsItself, NormOfTheSlice, ForgetsTheScale, RoundsToFloat,
             DividesByTheNorm, RoundsUpToVectors, SharesItsBuffer, SumsAsThreadsEnd, DrawsFromRand,
             TwoOfOneName, DecaysAllRows, DoesNothingToRows, RowsClimb, RowsOncePerRead, RowsForgetTheScale)
