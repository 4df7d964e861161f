// What all loss layers share: inputs that lie alike on the model grid, and the tail, output 0 = {sum of the
// rows' losses, number of targets that count}, f64 [2], of all parts on every rank.
#pragma once

#include "common.hpp"

#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>
#include <string_view>
#include <vector>

namespace tenon::nn {

/// Of the losses that compare with class numbers, as PyTorch defines it.
inline constexpr OptionSpec kLabelSmoothing =
    option::real("label_smoothing", "0")
        .between(0, 1)
        .doc_text("share of the wanted distribution that is spread evenly over all classes");

/// Input 0 holds rows [..., columns], called `rows` in refusals, and input 1 one class number for each. Rows
/// may be cut over the model grid, their columns not, and a row lies where its number does. Returns the
/// layout of the numbers; this rank's rows are those of its part of input 0.
Layout expect_targets(const InferContext& context, std::string_view rows);

class LossSum {
 public:
  /// Collective. Declares output 0 of the layer. `counted`: the layout of what the ranks count, whose parts
  /// are added up; `rows`: class numbers of this rank at most, 0 for losses without them.
  void infer(InferContext& context, const Layout& counted, std::int64_t rows);
  /// losses: [rows] in f32 or f64, 0 where ignored; targets: i32 [rows], ignored where negative.
  /// Collective, as the other one.
  void write(TensorView losses, TensorView targets, TensorView output);
  /// Of this rank's part.
  void write(double sum, double count, TensorView output);

 private:
  Device* device_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  std::vector<std::int32_t> staging_;     // targets of an accelerator, where the host counts them
  std::unique_ptr<LinearMap> all_parts_;  // null where nothing is cut
};

}  // namespace tenon::nn
