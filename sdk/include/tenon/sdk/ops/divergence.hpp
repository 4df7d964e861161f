// Operator families of a device for what a student learns from a teacher: divergences between two
// distributions over one vocabulary, and distances between two states. Optional: a device offers them to the
// layers that ask for them. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>

TENON_ABI_BEGIN

/// With p = softmax(teacher / T) and q = softmax(student / T):
enum class Divergence : std::uint8_t {
  kForward = 0,  ///< KL(p || q) = sum of p (log p - log q)
  kReverse = 1,  ///< KL(q || p)
  kTopK = 2,  ///< KL(p' || q'), where p' and q' have the teacher's k likeliest classes and one of all others
};

struct DivergenceSpec {
  Divergence form = Divergence::kForward;
  double temperature = 1;  ///< T, above 0
  /// k of kTopK, at least 1. Of equal logits those of lower columns come first; with k >= columns the form is
  /// kForward. At most 2^24 columns.
  std::int64_t top_k = 0;
};

/// Numbers per row that the forward leaves for the backward.
inline constexpr std::int64_t kDivergenceStatistics = 8;

/// student, teacher: logits [rows, columns] in f32 (f64); targets: i32 [rows], rows with a negative one do
/// not count. Where the bits of both logits are the same, losses and gradients are exactly zero.
class DivergenceOps {
 public:
  static constexpr const char* kId = "tenon.device.divergence/1";
  virtual ~DivergenceOps();
  /// loss: [rows], 0 where the row does not count. statistics: [rows, kDivergenceStatistics].
  virtual void divergence(const DivergenceSpec& spec, TensorView student, TensorView teacher,
                          TensorView targets, TensorView loss, TensorView statistics) = 0;
  /// dstudent = scale times the gradient of the row's loss, zero in rows that do not count; it may be
  /// student's or teacher's own memory.
  virtual void divergence_backward(const DivergenceSpec& spec, TensorView student, TensorView teacher,
                                   TensorView targets, TensorView statistics, double scale,
                                   TensorView dstudent) = 0;
};

/// Distances between rows y, the student's, and t, the teacher's, of `columns` elements.
enum class StateDistance : std::uint8_t {
  kMse = 0,            ///< |y - t|^2 / columns
  kNormalisedMse = 1,  ///< |y - t|^2 / |t|^2, and 0 where t is 0
  kCosine = 2,         ///< 1 - y t / (|y| |t|), and 1 without a gradient where y or t is 0
};

/// Numbers per row that the forward leaves for the backward.
inline constexpr std::int64_t kDistanceStatistics = 2;

/// student, teacher: [rows, columns]; targets: i32 [rows], rows with a negative one do not count. Where the
/// bits of both are the same, losses and gradients are exactly zero.
class StateDistanceOps {
 public:
  static constexpr const char* kId = "tenon.device.state_distance/1";
  virtual ~StateDistanceOps();
  /// loss: [rows], 0 where the row does not count; statistics: [rows, kDistanceStatistics].
  virtual void distance(StateDistance form, TensorView student, TensorView teacher, TensorView targets,
                        TensorView loss, TensorView statistics) = 0;
  /// dstudent (+)= scale times the gradient of the row's loss; it may be student's own memory.
  virtual void distance_backward(TensorView student, TensorView teacher, TensorView statistics, double scale,
                                 TensorView dstudent, bool accumulate) = 0;
};

TENON_ABI_END
