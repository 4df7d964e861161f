// Contract `precision/1`: which number format each product operand has, loss scaling, and whether an update
// is applied.
#pragma once

#include <tenon/site.hpp>

#include <functional>

TENON_ABI_BEGIN

class StateVisitor;

/// Statistics after the last backward of a slot, before clipping. Agreed over sync.gradient_group().
struct BackwardStats {
  std::int64_t slot = 0;
  bool found_non_finite = false;
  double loss = 0;
  double gradient_norm = 0;  ///< after unscaling; NaN when not computed
};

class Precision {
 public:
  using Interface = Precision;
  static constexpr const char* kKind = "precision/1";
  virtual ~Precision();
  /// dtype of activations and their gradients; of master weights, parameter gradients and statistics.
  virtual DType activations() const = 0;
  virtual DType parameters() const = 0;
  /// The site's implementation, or null = keep: a product in the activations' dtype with the weight converted
  /// and cached.
  virtual std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) = 0;
  /// Multiplies the loss before backward; a power of two unless documented.
  virtual double loss_scale() const = 0;
  /// Returns true to apply the update, false to refuse it. May change the loss scale.
  virtual bool after_backward(const BackwardStats& stats) = 0;
  virtual void state(StateVisitor& visitor) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Offered through Precision::query(LossScaler::kId) by policies that scale the loss, also while the scale
/// happens to be 1. The core then writes the metric `loss_scale`.
class LossScaler {
 public:
  static constexpr const char* kId = "tenon.precision.loss_scaler/1";
  virtual ~LossScaler();
  /// True: the policy answers gradients that are not finite, with another scale or by ending the run
  /// (after_backward may throw Error(kRun) that says what to change), and run.on_nan does not apply to them.
  /// The core assumes true for a policy without this interface whose scale is not 1.
  virtual bool answers_overflow() const = 0;
};

/// Offered through Precision::query(PrecisionMetrics::kId): numbers that a policy has gathered by the end of
/// a run, e.g. which formats it chose. The core writes those of rank 0 as metrics of the last step, split
/// train.
class PrecisionMetrics {
 public:
  static constexpr const char* kId = "tenon.precision.metrics/1";
  virtual ~PrecisionMetrics();
  /// Calls `sink` with each name, valid during that call, and value.
  virtual void metrics(const std::function<void(std::string_view, double)>& sink) = 0;
};

TENON_ABI_END
