// Shared by all loss layers: inputs with the same layout on the model grid, and the final step, output 0 =
// {sum of the rows' losses, number of targets that count}, f64 [2], of all shards on every rank.
#pragma once

#include "common.hpp"

#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>
#include <string_view>
#include <vector>

namespace tenon::nn {

/// Option of the losses that compare with class numbers, as PyTorch defines it.
inline constexpr OptionSpec kLabelSmoothing =
    option::real("label_smoothing", "0")
        .between(0, 1)
        .doc_text("share of the wanted distribution that is spread evenly over all classes");

/// Input 0 holds rows [..., columns], called `rows` in refusals, and input 1 one class number for each. Rows
/// may be sharded over the model grid, their columns not, and a row is on the rank of its number. Returns the
/// layout of the numbers; this rank's rows are those of its shard of input 0.
Layout expect_targets(const InferContext& context, std::string_view rows);

class LossSum {
 public:
  /// Collective. Declares output 0 of the layer. `counted`: the layout of what the ranks count, whose shards
  /// are added up; `rows`: class numbers of this rank at most, 0 for losses without them.
  void infer(InferContext& context, const Layout& counted, std::int64_t rows);
  /// losses: [rows] in f32 or f64, 0 where ignored; targets: i32 [rows], ignored where negative. Collective,
  /// as the other overload.
  void write(TensorView losses, TensorView targets, TensorView output);
  /// The same from the sum and count of this rank's shard.
  void write(double sum, double count, TensorView output);

 private:
  Device* device_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  std::vector<std::int32_t> staging_;     // targets from an accelerator, for the host to count
  std::unique_ptr<LinearMap> all_parts_;  // null where nothing is sharded
};

}  // namespace tenon::nn
