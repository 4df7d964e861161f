// One parameter under the optimizer of a check: owns its memory and steps it by hand, whole or in slices.
#pragma once

#include "memory_state.hpp"
#include "subject.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/testing/tensors.hpp>

#include <utility>
#include <vector>

namespace tenon::conformance {

/// Reproducible normal numbers of this check's seed.
std::vector<double> drawn(const Subject& subject, std::int64_t count, std::string_view purpose);

struct Update {
  double lr = 0;
  std::int64_t count = 1;
  double gradient_scale = 1;
  bool decay = false;
};

class Trainee {
 public:
  /// Weights are drawn. With `elementwise` rules the tensor is flat. The device is the subject's, or
  /// `device`, which outlives the trainee.
  Trainee(Subject& subject, DType dtype, const Shape& shape, Device* device = nullptr);
  ~Trainee();
  Trainee(const Trainee&) = delete;
  Trainee& operator=(const Trainee&) = delete;

  Optimizer& rule() { return *rule_; }
  void step(std::span<const double> gradients, const Update& update);
  /// Steps slices [begin, end) of a flat tensor.
  void step(std::span<const double> gradients, const Update& update,
            std::span<const std::pair<std::int64_t, std::int64_t>> cuts);
  std::vector<double> weights() const { return testing::read(device_, tensors_[0]); }
  /// Weights and slots, one after another.
  std::vector<double> everything() const;
  void set_weights(std::span<const double> values) { testing::write(device_, tensors_[0], values); }
  /// Takes over slots and state() of another one, as a checkpoint carries them.
  void resume_from(Trainee& other);
  /// Returns whether the elements around the tensors are unchanged.
  bool stayed_inside() const;

 private:
  static constexpr std::int64_t kGuard = 16;  // elements on either side
  TensorView slice(const TensorView& tensor, std::int64_t begin, std::int64_t end) const;

  Device& device_;
  testing::Made<Optimizer> rule_;
  ParameterInfo info_;
  std::uint8_t first_holder_ = 1;
  std::vector<TensorView> memory_;   // with guards
  std::vector<TensorView> tensors_;  // weights, gradients, one per slot
  std::vector<TensorView> states_;   // of one slice
};

}  // namespace tenon::conformance
