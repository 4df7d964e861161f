// Transform `cast`: the floating-point tensors of a model in another type, each value rounded once.
#pragma once

#include "common.hpp"

#include <tenon/plugin.hpp>

namespace tenon::transform_basic {

class Cast final : public TransformBase {
 public:
  static constexpr auto kTypes = option::choice<DType>(
      {{"f64", DType::kF64}, {"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}});
  static constexpr OptionSpec kOptions[] = {
      option::text("dtype", nullptr)
          .mandatory()
          .one_of(kTypes)
          .doc_text(
              "type of every floating-point tensor of the result; complex numbers, integers and booleans "
              "stay as they are"),
      option::text("through", nullptr)
          .one_of(kTypes)
          .doc_text(
              "type that values are rounded to first; absent: none. A run begins with rounded weights by "
              "dtype = \"f32\" and through = \"bf16\""),
  };
  static constexpr ComponentInfo kInfo{
      .id = "cast", .summary = "another type for floating-point tensors", .options = kOptions};

  explicit Cast(const Options& options);
  TransformedModel describe(std::span<StoredModel* const> sources) override;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override;

 private:
  void convert(StoredModel& source, const StoredTensor& tensor, TensorWriter& out) const;

  DType dtype_, through_;
};

}  // namespace tenon::transform_basic
