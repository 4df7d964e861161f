// The tail that all loss layers share: output 0 = {sum of the rows' losses, number of targets that count},
// f64 [2].
#pragma once

#include "common.hpp"

#include <vector>

namespace tenon::nn {

/// Of the losses that compare with class numbers, as PyTorch defines it.
inline constexpr OptionSpec kLabelSmoothing =
    option::real("label_smoothing", "0")
        .between(0, 1)
        .doc_text("share of the wanted distribution that is spread evenly over all classes");

class LossSum {
 public:
  /// Declares output 0 of the layer; `rows` class numbers at most, 0 for losses without them.
  void infer(InferContext& context, std::int64_t rows);
  /// losses: [rows] in f32 or f64, 0 where ignored; targets: i32 [rows], ignored where negative.
  void write(TensorView losses, TensorView targets, TensorView output);
  void write(double sum, double count, TensorView output);

 private:
  Device* device_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  std::vector<std::int32_t> staging_;  // targets of an accelerator, where the host counts them
};

}  // namespace tenon::nn
