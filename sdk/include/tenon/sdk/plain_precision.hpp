// The policy of a graph that a plugin runs by itself where no policy was chosen: every product in the types
// that are given. Alone, because layers and transforms run such graphs.
#pragma once

#include <tenon/precision.hpp>

#include <memory>
#include <string_view>

TENON_ABI_BEGIN

class PlainPrecision final : public Precision {
 public:
  PlainPrecision(DType activations, DType parameters) : activations_(activations), parameters_(parameters) {}
  DType activations() const override { return activations_; }
  DType parameters() const override { return parameters_; }
  std::unique_ptr<LinearSite> bind(const SiteInfo&, SiteHost&) override { return nullptr; }
  double loss_scale() const override { return 1; }
  bool after_backward(const BackwardStats& stats) override { return !stats.found_non_finite; }
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  DType activations_, parameters_;
};

TENON_ABI_END
