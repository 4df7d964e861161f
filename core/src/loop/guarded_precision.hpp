// A precision policy as executors see it, and the linear sites that it binds.
#pragma once

#include "loop/call_names.hpp"

#include <tenon/precision.hpp>

#include <memory>

namespace tenon::train {

class GuardedPrecision final : public Precision {
 public:
  /// The policy outlives it, and it outlives the sites.
  GuardedPrecision(Precision& policy, const CallNames& names) : policy_(policy), names_(names) {}
  DType activations() const override {
    return names_.call([&] { return policy_.activations(); });
  }
  DType parameters() const override {
    return names_.call([&] { return policy_.parameters(); });
  }
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override;
  double loss_scale() const override {
    return names_.call([&] { return policy_.loss_scale(); });
  }
  bool after_backward(const BackwardStats& stats) override {
    return names_.call([&] { return policy_.after_backward(stats); });
  }
  void state(StateVisitor& visitor) override {
    names_.call([&] { policy_.state(visitor); });
  }
  void* query(std::string_view interface_id) override {
    return names_.call([&] { return policy_.query(interface_id); });
  }

 private:
  Precision& policy_;
  const CallNames names_;
};

}  // namespace tenon::train
