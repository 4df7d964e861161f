// Optimizer `ademamix` (Pagliardini et al., arXiv 2409.03137): AdamW with a second, slow average of
// gradients.
//   m <- beta1 m + (1 - beta1) g      s <- beta3(t) s + (1 - beta3(t)) g      v <- beta2 v + (1 - beta2) g g
//   w <- w (1 - lr decay) - lr (m / (1 - beta1^t) + alpha(t) s) / (sqrt(v / (1 - beta2^t)) + eps)
// alpha rises linearly over `warmup` updates; beta3 rises from beta1 so that the half-life of the slow
// average grows linearly. With alpha = 0 it is AdamW.
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/update_rule.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace {

constexpr tenon::StateSlot kSlots[] = {{"fast"}, {"slow"}, {"square"}};
constexpr tenon::RowStateSlot kRowSlots[] = {{"fast", 0}, {"slow", 0}, {"square", 0}};

struct Rule {
  static constexpr int kTensors = 5, kSums = 0;  // weights, gradients, fast, slow, square
  double scale = 0, keep = 0, fast_rest = 0, slow_rest = 0, beta2 = 0, square_rest = 0;
  double fast_rate = 0, slow_rate = 0, root_correction = 0, eps = 0;

  template <class F>
  constexpr void write(F& f) const {
    const auto by = f.constant(scale), kept = f.constant(keep), of_fast = f.constant(fast_rest),
               of_slow = f.constant(slow_rest), square_kept = f.constant(beta2),
               of_square = f.constant(square_rest), fast_size = f.constant(fast_rate),
               slow_size = f.constant(slow_rate), correction = f.constant(root_correction),
               least = f.constant(eps);
    const auto g = by * f.load(1);
    const auto decayed = kept * f.load(0);
    const auto fast_before = f.load(2), slow_before = f.load(3);
    const auto fast = fast_before + of_fast * (g - fast_before);
    const auto slow = slow_before + of_slow * (g - slow_before);
    const auto square = of_square * g * g;
    const auto v = square_kept * f.load(4) + square;
    f.store(2, fast);
    f.store(3, slow);
    f.store(4, v);
    const auto denominator = sqrt(v) / correction + least;
    const auto quick = fast_size * fast;
    const auto patient = slow_size * slow;
    const auto direction = quick + patient;
    f.store(0, decayed - direction / denominator);
  }
};

class AdEMAMix final : public tenon::OptimizerBase,
                       public tenon::RowOptimizer,
                       public tenon::OptimizerBinding {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::real("lr", "1e-3").at_least(0).doc_text("learning rate before the schedule"),
      tenon::option::reals("betas", "[0.9, 0.999, 0.9999]")
          .length(3)
          .between(1e-6, 0.9999999)
          .doc_text("decay rates of the fast average, of squares, and of the slow average"),
      tenon::option::real("alpha", "5").at_least(0).doc_text("weight of the slow average in a step"),
      tenon::option::integer("warmup", "0")
          .at_least(0)
          .in_unit("updates")
          .doc_text("over which alpha and the slow decay rate rise; 0: from the first on as given"),
      tenon::option::real("eps", "1e-8").at_least(0).doc_text("added to the root of the squares"),
      tenon::option::real("weight_decay", "0").at_least(0).doc_text("decoupled; not for biases and norms"),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "ademamix", .summary = "AdamW with a second, slow average of gradients", .options = kOptions};

  explicit AdEMAMix(const tenon::Options& options)
      : OptimizerBase(options),
        alpha_(options.real("alpha")),
        eps_(options.real("eps")),
        decay_(options.real("weight_decay")),
        warmup_(static_cast<double>(options.integer("warmup"))) {
    const std::span<const double> betas = options.reals("betas");
    beta1_ = betas[0], beta2_ = betas[1], beta3_ = betas[2];
  }

  std::span<const tenon::StateSlot> slots() const override { return kSlots; }
  std::span<const tenon::RowStateSlot> row_slots() const override { return kRowSlots; }

  void bind(const tenon::OptimizerSetup& setup) override {
    undecayed_.assign(setup.parameters.size(), false);
    for (const tenon::ParameterInfo& info : setup.parameters)
      undecayed_[static_cast<std::size_t>(info.index)] = !info.spec.decay;
  }

  void step(const tenon::UpdateContext& context, const tenon::ParameterSlice& slice) override {
    tenon::update_slice(*context.device, slice, rule(context, slice.decay));
  }

  void step_rows(const tenon::UpdateContext& context, tenon::RowTable& weights,
                 std::span<tenon::RowTable* const> state, const tenon::RowGradient& gradient) override {
    const auto index = static_cast<std::size_t>(gradient.parameter);
    const bool decay = index >= undecayed_.size() || !undecayed_[index];
    tenon::update_rows(*context.device, weights, state, gradient, rule(context, decay));
  }

  void* query(std::string_view id) override {
    if (id == tenon::RowOptimizer::kId) return static_cast<tenon::RowOptimizer*>(this);
    return id == tenon::OptimizerBinding::kId ? static_cast<tenon::OptimizerBinding*>(this) : nullptr;
  }

 private:
  Rule rule(const tenon::UpdateContext& context, bool decay) const {
    const auto t = static_cast<double>(context.count);
    const double done = warmup_ > 0 ? std::min(t / warmup_, 1.0) : 1.0;
    const double from = std::log(beta1_), to = std::log(beta3_);
    const double slow = std::min(std::exp(from * to / ((1 - done) * to + done * from)), beta3_);
    return {.scale = context.gradient_scale,
            .keep = 1.0 - context.lr * (decay ? decay_ : 0.0),
            .fast_rest = 1.0 - beta1_,
            .slow_rest = 1.0 - slow,
            .beta2 = beta2_,
            .square_rest = 1.0 - beta2_,
            .fast_rate = context.lr / (1.0 - std::pow(beta1_, t)),
            .slow_rate = context.lr * alpha_ * done,
            .root_correction = std::sqrt(1.0 - std::pow(beta2_, t)),
            .eps = eps_};
  }

  double beta1_ = 0, beta2_ = 0, beta3_ = 0, alpha_, eps_, decay_, warmup_;
  std::vector<bool> undecayed_;  // by parameter
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "author.ademamix",
                               .version = "0.1.0",
                               .summary = "AdEMAMix optimizer",
                               .vendor = "author"},
             AdEMAMix)
