// Optimizer `lamb` (You et al., ICLR 2020, Algorithm 2): Adam's step, rescaled per tensor to the size of its
// weights:
//   m <- beta1 m + (1 - beta1) g          v <- beta2 v + (1 - beta2) g^2
//   r = m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + eps) + decay w
//   w <- w - lr phi(|w|) / |r| r          phi(z) = z within norm_range; the ratio is 1 where |w| or |r| is 0
// Norms cover whole tensors: the squares of a sharded tensor are summed over the mesh.
// Two passes per tensor, the first for the moments and both norms, the second for the weights. The passes are
// loops over host memory, or formulas on a device whose memory the host cannot access. Norms are summed in
// f64; on the host in blocks of fixed size that are then added in order, so that they do not depend on the
// number of threads.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tenon::lamb {

class Lamb final : public OptimizerBase, public OptimizerBinding {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-3").at_least(0).doc_text("learning rate before the schedule"),
      option::reals("betas", "[0.9, 0.999]")
          .between(0, 0.9999999)
          .doc_text("decay rates of the first and second moments"),
      option::real("eps", "1e-6").at_least(0).doc_text("added to the root of the second moment"),
      option::real("weight_decay", "0.01")
          .at_least(0)
          .doc_text("this times the weight is added to the direction; not for biases and norms"),
      option::reals("norm_range", nullptr)
          .at_least(0)
          .doc_text("bounds to which phi clamps the norm of the weights; absent: none"),
      option::reals("trust_range", nullptr)
          .at_least(0)
          .doc_text("bounds to which the trust ratio phi(|w|) / |r| is clamped; absent: none"),
      option::boolean("adapt_undecayed", "true")
          .doc_text("use the trust ratio for tensors without weight decay (biases, norms) too"),
  };
  static constexpr ComponentInfo kInfo{.id = "lamb",
                                       .summary = "Adam with a trust ratio per tensor",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Lamb(const Options& options);
  std::span<const StateSlot> slots() const override;
  bool elementwise() const override { return false; }
  void bind(const OptimizerSetup& setup) override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

 private:
  struct Range {
    double low = 0, high = 0;
    bool given = false;
    double clamp(double value) const;
  };
  static Range range(const Options& options, const char* name);
  /// Runs on the device, with its own summation order.
  void update(FormulaOps& formulas, const UpdateContext& context, const ParameterSlice& slice);
  /// Returns the rate times the trust ratio, from this rank's squares.
  double scaled_rate(const UpdateContext& context, const ParameterSlice& slice, double squares[2]) const;
  template <typename T>
  void update(const UpdateContext& context, const ParameterSlice& slice);
  /// Sums the squares of a sharded tensor over the mesh.
  void join(int parameter, double squares[2]) const;

  double beta1_, beta2_, eps_, decay_;
  Range norm_range_, trust_range_;
  bool adapt_undecayed_;
  OptimizerSetup setup_;
  std::vector<double> partial_;  ///< squares of weights and directions, two per block
};

namespace {

constexpr StateSlot kSlots[] = {{"exp_avg"}, {"exp_avg_sq"}};
constexpr std::int64_t kBlock = 4096;

/// Size of both sums of all blocks, [weights, directions].
std::size_t partial_size(std::int64_t elements) {
  return 2 * ((elements + kBlock - 1) / kBlock);
}

}  // namespace

double Lamb::Range::clamp(double value) const {
  return given ? std::clamp(value, low, high) : value;
}

Lamb::Range Lamb::range(const Options& options, const char* name) {
  if (!options.has(name)) return {};
  const std::span<const double> bounds = options.reals(name);
  if (bounds.size() != 2 || bounds[0] > bounds[1]) {
    fail_config("optimizer lamb: option '" + std::string(name) +
                "' must hold the lowest and the highest value, such as [0, 10], found " +
                std::to_string(bounds.size()) + (bounds.size() == 2 ? " that descend" : " numbers"));
  }
  return {bounds[0], bounds[1], true};
}

Lamb::Lamb(const Options& options)
    : OptimizerBase(options),
      eps_(options.real("eps")),
      decay_(options.real("weight_decay")),
      norm_range_(range(options, "norm_range")),
      trust_range_(range(options, "trust_range")),
      adapt_undecayed_(options.boolean("adapt_undecayed")) {
  const std::span<const double> betas = options.reals("betas");
  if (betas.size() != 2) {
    fail_config("optimizer lamb: option 'betas' must hold two numbers such as [0.9, 0.999], found " +
                std::to_string(betas.size()));
  }
  beta1_ = betas[0];
  beta2_ = betas[1];
}

std::span<const StateSlot> Lamb::slots() const {
  return kSlots;
}

void* Lamb::query(std::string_view interface_id) {
  return interface_id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
}

void Lamb::bind(const OptimizerSetup& setup) {
  setup_ = setup;
  for (const ParameterInfo& info : setup.parameters) {
    const std::int64_t reals = info.local.elements() * (dtype_is_complex(info.spec.dtype) ? 2 : 1);
    partial_.resize(std::max(partial_.size(), partial_size(reals)));
  }
}

void Lamb::join(int parameter, double squares[2]) const {
  if (setup_.mesh == nullptr || parameter < 0) return;
  const std::size_t index = parameter;
  if (setup_.parameters[index].spec.sharding.empty()) return;  // every rank holds the whole tensor
  if (setup_.first_holder[index] == 0) squares[0] = squares[1] = 0;
  setup_.mesh->all_reduce({squares, {2}, DType::kF64, MemorySpace::kHost}, ReduceOp::kSum);
}

double Lamb::scaled_rate(const UpdateContext& context, const ParameterSlice& slice, double squares[2]) const {
  join(slice.parameter, squares);
  const double weight_norm = norm_range_.clamp(std::sqrt(squares[0])), direction_norm = std::sqrt(squares[1]);
  const bool adapt = (slice.decay || adapt_undecayed_) && weight_norm > 0 && direction_norm > 0;
  return context.lr * (adapt ? trust_range_.clamp(weight_norm / direction_norm) : 1.0);
}

void Lamb::update(FormulaOps& formulas, const UpdateContext& context, const ParameterSlice& slice) {
  const TensorView tensors[] = {flat_reals(slice.weights), flat_reals(slice.gradients),
                                flat_reals(slice.state[0]), flat_reals(slice.state[1])};
  const double mean_correction = 1 - std::pow(beta1_, static_cast<double>(context.count));
  const double square_correction = 1 - std::pow(beta2_, static_cast<double>(context.count));
  const double decay = slice.decay ? decay_ : 0.0;
  const auto direction = [&](Formula::Value w, Formula::Value m, Formula::Value v) {
    return m / mean_correction / (sqrt(v / square_correction) + eps_) + decay * w;
  };

  Formula moments;
  const auto w = moments.load(0), g = moments.load(1) * context.gradient_scale;
  const auto m = beta1_ * moments.load(2) + (1 - beta1_) * g;
  const auto v = beta2_ * moments.load(3) + (1 - beta2_) * (g * g);
  moments.store(2, m);
  moments.store(3, v);
  const auto r = direction(w, m, v);
  moments.sum(0, w, w);
  moments.sum(1, r, r);
  double squares[2];
  formulas.evaluate(moments, tensors, squares);

  Formula weights;
  const auto old = weights.load(0);
  const auto along = direction(old, weights.load(2), weights.load(3));
  weights.store(0, old - scaled_rate(context, slice, squares) * along);
  formulas.evaluate(weights, tensors, {});
}

template <typename T>
void Lamb::update(const UpdateContext& context, const ParameterSlice& slice) {
  const TensorView weights = flat_reals(slice.weights);
  const std::int64_t count = weights.elements();
  T* const w = weights.as<T>();
  const T* const g = flat_reals(slice.gradients).as<T>();
  T* const m = flat_reals(slice.state[0]).as<T>();
  T* const v = flat_reals(slice.state[1]).as<T>();
  const T beta1 = static_cast<T>(beta1_), beta2 = static_cast<T>(beta2_), eps = static_cast<T>(eps_);
  const T rest1 = static_cast<T>(1 - beta1_), rest2 = static_cast<T>(1 - beta2_);
  const T scale = static_cast<T>(context.gradient_scale);
  const T decay = static_cast<T>(slice.decay ? decay_ : 0.0);
  const T mean_correction = static_cast<T>(1 - std::pow(beta1_, static_cast<double>(context.count)));
  const T square_correction = static_cast<T>(1 - std::pow(beta2_, static_cast<double>(context.count)));
  const auto direction = [&](std::int64_t i) {
    return m[i] / mean_correction / (std::sqrt(v[i] / square_correction) + eps) + decay * w[i];
  };

  partial_.resize(std::max(partial_.size(), partial_size(count)));
  double* const partial = partial_.data();
  parallel_for(count, kBlock, [&](std::int64_t begin, std::int64_t end) {
    double of_weights = 0, of_directions = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const T gradient = g[i] * scale;
      m[i] = beta1 * m[i] + rest1 * gradient;
      v[i] = beta2 * v[i] + rest2 * (gradient * gradient);
      const double wide_w = static_cast<double>(w[i]), wide_r = static_cast<double>(direction(i));
      of_weights += wide_w * wide_w;
      of_directions += wide_r * wide_r;
    }
    partial[2 * (begin / kBlock)] = of_weights;
    partial[2 * (begin / kBlock) + 1] = of_directions;
  });
  double squares[2] = {0, 0};
  for (std::size_t block = 0; block < partial_size(count); block += 2) {
    squares[0] += partial[block];
    squares[1] += partial[block + 1];
  }
  const T rate = static_cast<T>(scaled_rate(context, slice, squares));
  parallel_for(count, kBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) w[i] -= rate * direction(i);
  });
}

void Lamb::step(const UpdateContext& context, const ParameterSlice& slice) {
  FormulaOps* const formulas = formulas_of(*context.device);
  switch (slice.weights.dtype) {
    case DType::kF32:
    case DType::kC64:
      if (formulas != nullptr) return update(*formulas, context, slice);
      return update_on_host(*context.device, slice,
                            [&](const ParameterSlice& here) { update<float>(context, here); });
    case DType::kF64:
    case DType::kC128:
      if (formulas != nullptr) return update(*formulas, context, slice);
      return update_on_host(*context.device, slice,
                            [&](const ParameterSlice& here) { update<double>(context, here); });
    default:
      fail_run("optimizer lamb updates f32, f64, c64 and c128, found " +
               std::string(dtype_name(slice.weights.dtype)));
  }
}

}  // namespace tenon::lamb

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.lamb", .version = "0.1.0", .summary = "LAMB optimizer"},
             tenon::lamb::Lamb)
