// The optimizer of a round: a step of the anchor along the mean way back g = mean(anchor - x).
#pragma once

#include <tenon/operators_extra.hpp>
#include <tenon/options.hpp>
#include <tenon/sync.hpp>

#include <vector>

namespace tenon::sync_local {

inline constexpr const char* kOuters[] = {"nesterov", "sgd", "adam", nullptr};
inline constexpr OptionSpec kOuter = option::text("outer", "\"nesterov\"")
                                         .one_of(kOuters)
                                         .doc_text(
                                             "optimizer of the anchor: nesterov and sgd with "
                                             "outer_momentum, or adam");
inline constexpr OptionSpec kOuterLr =
    option::real("outer_lr", "0.7").between(1e-9, 1e3).doc_text("rate of the anchor's step");
inline constexpr OptionSpec kOuterMomentum =
    option::real("outer_momentum", "0.9").between(0, 0.999999).doc_text("of nesterov and sgd");
inline constexpr OptionSpec kOuterBetas =
    option::reals("outer_betas", "[0.9, 0.95]").between(0, 0.999999).doc_text("of adam");
inline constexpr OptionSpec kOuterEps =
    option::real("outer_eps", "0.1").between(1e-12, 1e3).doc_text("of adam; the paper's outer Adam");

class Outer {
 public:
  explicit Outer(const Options& options);
  /// Makes the sets of its state, which the core saves and restores.
  void start(Replica& replica);
  /// True if the anchor simply becomes the mean of the weights.
  bool assigns() const { return kind_ == Kind::kSgd && lr_ == 1 && momentum_ == 0; }
  /// Once before the arenas of a round.
  void next_round() { ++rounds_; }
  /// anchor: an arena, moved in place by the way back g.
  void step(int arena, TensorView anchor, TensorView g);
  void state(StateVisitor& visitor) { visitor.integer("rounds", rounds_); }

 private:
  enum class Kind { kNesterov, kSgd, kAdam };

  Kind kind_;
  double lr_, momentum_, beta1_ = 0, beta2_ = 0, eps_;
  std::int64_t rounds_ = 0;
  UpdateOps* update_ = nullptr;
  ParameterSet *first_ = nullptr, *second_ = nullptr;  ///< momentum, or Adam's two moments
};

}  // namespace tenon::sync_local
