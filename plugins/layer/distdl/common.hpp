// What layers of this plugin share: refusals, lists of one number or one per dimension.
#pragma once

#include <tenon/layer.hpp>
#include <tenon/linear_map.hpp>
#include <tenon/plugin.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::distdl {

inline constexpr std::uint64_t kOnHost = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC;

/// Throws Error(kConfig): "layer 'conv1': <what>".
[[noreturn]] void refuse(const InferContext& context, const std::string& what);
/// The only input, an activation.
ValueSpec expect_one_activation(const InferContext& context);

/// Sums what ranks along some axes of the grid hold of a parameter's gradient, in its sink. What lay there
/// before counts once.
class GradientSum {
 public:
  GradientSum() = default;
  /// Collective. `axes`: over which each rank has terms of its own; none: nothing is summed.
  GradientSum(InferContext& context, const Shape& shape, std::vector<int> axes);
  /// Before this rank adds its terms with accumulate = true.
  void open(const GradientSink& sink) const;
  void close(const GradientSink& sink);

 private:
  Shape shape_;
  bool first_ = true;  ///< of the ranks that share the gradient, the one that keeps what lay there
  std::unique_ptr<LinearMap> sum_;
};

}  // namespace tenon::distdl
