// Precisions without quantized operands: `fp32`, `fp64` (tests and exact studies) and `bf16` (activations and
// their gradients in bfloat16; weights, their gradients and statistics in float32). They leave every site to
// the core's plain product, which converts a weight once per version. No loss scale: bfloat16 has the
// exponents of float32.
#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/state.hpp>

namespace tenon::plain {

class Plain : public Precision, protected ComponentIdentities {
 public:
  DType activations() const final { return activations_; }
  DType parameters() const final { return parameters_; }
  std::unique_ptr<LinearSite> bind(const SiteInfo&, SiteHost&) final { return nullptr; }
  double loss_scale() const final { return 1.0; }
  /// Refuses an update that would spread NaN or infinity; the core decides whether the run ends.
  bool after_backward(const BackwardStats& stats) final { return !stats.found_non_finite; }
  void state(StateVisitor&) final {}
  void* query(std::string_view id) final {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }

 protected:
  Plain(DType activations, DType parameters) : activations_(activations), parameters_(parameters) {}

 private:
  DType activations_, parameters_;
};

/// Both round: sums of products of some thousand terms lose up to 1e-5 of a weight in float32. From the
/// second step on weights differ, and more units at the kinks of their activations take the other side.
constexpr double kFloatLoss = 1e-3;
constexpr const char* kOneStep =
    "run.steps = 1\noptimizer.type = 'sgd'\noptimizer.lr = 0.01\nsync = {type = 'ddp', communication = "
    "'gradient'}";

class Fp32 final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "fp32", .summary = "everything in float32"};
  static constexpr Identity kIdentities[] = {{.why = "a step in float32 is near that in float64",
                                              .options = "",
                                              .other = "type = 'fp64'",
                                              .given = kOneStep,
                                              .within = kFloatLoss}};
  explicit Fp32(const Options&) : Plain(DType::kF32, DType::kF32) {}

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

class Fp64 final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "fp64",
                                       .summary = "everything in float64, for tests and exact studies"};
  static constexpr Identity kIdentities[] = {{.why = "a step in float64 is near that in float32",
                                              .options = "",
                                              .other = "type = 'fp32'",
                                              .given = kOneStep,
                                              .within = kFloatLoss}};
  explicit Fp64(const Options&) : Plain(DType::kF64, DType::kF64) {}

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

class Bf16 final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "bf16",
                                       .summary = "activations in bfloat16, master weights in float32"};
  static constexpr Identity kIdentities[] = {
      {.why = "operands of which none may lose anything stay in bfloat16",
       .options = "",
       .other = "type = 'mor'\nthreshold = 0.0"}};
  explicit Bf16(const Options&) : Plain(DType::kBF16, DType::kF32) {}

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

}  // namespace tenon::plain

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_plain",
                               .version = "0.1.0",
                               .summary = "float32, float64 and bfloat16 without quantized operands"},
             tenon::plain::Fp32, tenon::plain::Fp64, tenon::plain::Bf16)
