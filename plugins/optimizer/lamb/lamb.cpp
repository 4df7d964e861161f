// Optimizer `lamb` (You et al., ICLR 2020, Algorithm 2): Adam's step, rescaled per tensor to the size of its
// weights:
//   m <- beta1 m + (1 - beta1) g          v <- beta2 v + (1 - beta2) g^2
//   r = m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + eps) + decay w
//   w <- w - lr phi(|w|) / |r| r          phi(z) = z within norm_range; the ratio is 1 where |w| or |r| is 0
// Norms cover whole tensors: the squares of a sharded tensor are summed over the mesh.
// Two passes per tensor, the first for the moments and both norms, the second for the weights:
// LambMomentsRule and LambWeightsRule of <tenon/sdk/update_rules.hpp>, which the device evaluates. Norms are
// summed in f64, in an order of the device's that does not depend on the number of threads.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace tenon::lamb {

class Lamb final : public OptimizerBase, public OptimizerBinding, private IdentitiesOf<Lamb> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-3").at_least(0).doc_text("learning rate before the schedule"),
      option::reals("betas", "[0.9, 0.999]")
          .length(2)
          .between(0, 0.9999999)
          .doc_text("decay rates of the first and second moments"),
      option::real("eps", "1e-6").at_least(0).doc_text("added to the root of the second moment"),
      option::real("weight_decay", "0.01")
          .at_least(0)
          .doc_text("this times the weight is added to the direction; not for biases and norms"),
      option::reals("norm_range", nullptr)
          .length(2)
          .at_least(0)
          .doc_text("bounds to which phi clamps the norm of the weights; absent: none"),
      option::reals("trust_range", nullptr)
          .length(2)
          .at_least(0)
          .doc_text("bounds to which the trust ratio phi(|w|) / |r| is clamped; absent: none"),
      option::boolean("adapt_undecayed", "true")
          .doc_text("use the trust ratio for tensors without weight decay (biases, norms) too"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "lamb", .summary = "Adam with a trust ratio per tensor", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "ranges that hold every norm and every ratio clamp nothing",
       .options = "lr = 0.01\nnorm_range = [0.0, 1e300]\ntrust_range = [0.0, 1e300]",
       .other = "type = 'lamb'\nlr = 0.01"},
      {.why = "with a trust ratio of 1 and without decay it is Adam",
       .options = "lr = 0.01\nweight_decay = 0.0\ntrust_range = [1.0, 1.0]",
       .other = "type = 'adamw'\nlr = 0.01\neps = 1e-6\nweight_decay = 0.0",
       .given = "precision.type = 'fp64'",
       .within = 1e-9},
  };

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
  void update(const RuleEvaluator& evaluate, const UpdateContext& context, const ParameterSlice& slice) const;
  /// Returns the rate times the trust ratio, from this rank's squares.
  double scaled_rate(const UpdateContext& context, const ParameterSlice& slice, double squares[2]) const;
  /// Sums the squares of a sharded tensor over the mesh.
  void join(int parameter, double squares[2]) const;

  double beta1_, beta2_, eps_, decay_;
  Range norm_range_, trust_range_;
  bool adapt_undecayed_;
  OptimizerSetup setup_;
};

namespace {

constexpr StateSlot kSlots[] = {{"exp_avg"}, {"exp_avg_sq"}};

}  // namespace

double Lamb::Range::clamp(double value) const {
  return given ? std::clamp(value, low, high) : value;
}

Lamb::Range Lamb::range(const Options& options, const char* name) {
  if (!options.has(name)) return {};
  const std::span<const double> bounds = options.reals(name);
  if (bounds[0] > bounds[1]) {
    fail_config("optimizer lamb: option '" + std::string(name) +
                "' must hold the lowest and the highest value, such as [0, 10], found two that descend");
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
  beta1_ = betas[0];
  beta2_ = betas[1];
}

std::span<const StateSlot> Lamb::slots() const {
  return kSlots;
}

void* Lamb::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  return interface_id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
}

void Lamb::bind(const OptimizerSetup& setup) {
  setup_ = setup;
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

void Lamb::update(const RuleEvaluator& evaluate, const UpdateContext& context,
                  const ParameterSlice& slice) const {
  const TensorView tensors[] = {flat_reals(slice.weights), flat_reals(slice.gradients),
                                flat_reals(slice.state[0]), flat_reals(slice.state[1])};
  const auto count = static_cast<double>(context.count);
  const LambDirection direction{.mean_correction = 1 - std::pow(beta1_, count),
                                .square_correction = 1 - std::pow(beta2_, count),
                                .eps = eps_,
                                .decay = slice.decay ? decay_ : 0.0};
  double squares[2];
  evaluate(
      LambMomentsRule{
          .grad_scale = context.gradient_scale, .beta1 = beta1_, .beta2 = beta2_, .direction = direction},
      tensors, squares);
  evaluate(LambWeightsRule{.direction = direction, .rate = scaled_rate(context, slice, squares)}, tensors);
}

void Lamb::step(const UpdateContext& context, const ParameterSlice& slice) {
  switch (slice.weights.dtype) {
    case DType::kF32:
    case DType::kC64:
    case DType::kF64:
    case DType::kC128:
      return with_rule_evaluator(*context.device, slice,
                                 [&](const RuleEvaluator& evaluate, const ParameterSlice& here) {
                                   update(evaluate, context, here);
                                 });
    default:
      fail_run("optimizer lamb updates f32, f64, c64 and c128, found " +
               std::string(dtype_name(slice.weights.dtype)));
  }
}

}  // namespace tenon::lamb

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.lamb", .version = "0.1.0", .summary = "LAMB optimizer"},
             tenon::lamb::Lamb)
