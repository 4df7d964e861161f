// Layer `hidden_match`: the distance of a student's states from a teacher's, position by position, with a
// trained projection where the widths differ. The teacher's states are constants.
#pragma once

#include "common.hpp"
#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"
#include "losses.hpp"

#include <tenon/sdk/ops/divergence.hpp>

namespace tenon::nn {

class HiddenMatch final : public layer_common::Loss {
 public:
  static constexpr auto kLosses =
      option::choice<StateDistance>({{"mse", StateDistance::kMse},
                                     {"normalised_mse", StateDistance::kNormalisedMse},
                                     {"cosine", StateDistance::kCosine}});
  static constexpr OptionSpec kOptions[] = {
      option::text("loss", "\"mse\"")
          .one_of(kLosses)
          .doc_text("of each row y and the teacher's t; mse: mean of (y - t)^2; normalised_mse: |y - t|^2 / "
                    "|t|^2; cosine: 1 - cosine of y and t"),
      option::boolean("project", "false")
          .doc_text("y is a trained product of the student's state, without a bias; needed where the widths "
                    "differ"),
      layer_common::init_scale("standard deviation of the projection's normal initial weights; absent: "
                               "1 / sqrt(width of the student)"),
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("student", "[batch, ..., width]").of("activations"),
      port::input("teacher", "[batch, ..., width]").of("activations"),
      port::input("targets", "[...]").of("i32").doc_text("one per row; negative ones do not count"),
      port::output("loss", "[2]").of("f64").doc_text("sum over rows that count, and their number")};
  static constexpr ComponentInfo kInfo{.id = "hidden_match",
                                       .summary = "distance of states from a teacher's",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit HiddenMatch(const Options& options)
      : Loss(options),
        options_(options),
        form_(options.choice("loss", kLosses)),
        projects_(options.boolean("project")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  void infer_projection(InferContext& context, const Layout& counted);
  /// What is compared with the teacher's states.
  TensorView states(RunContext& context) const;

  const Options& options_;
  StateDistance form_;
  bool projects_;
  std::int64_t rows_ = 0;
  DType type_ = DType::kF32;  ///< of losses
  StateDistanceOps* distance_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ParameterRef weight_;
  GradientSum weight_sum_;
  SiteRef site_;
  SavedRef projected_, statistics_;
  WorkspaceRef losses_, gradient_;
  LossSum sum_;
};

}  // namespace tenon::nn
