// Three products a site and pass: one more virtual call each.
#include "loop/guarded_precision.hpp"

#include <utility>

namespace tenon::train {
namespace {

class GuardedSite final : public LinearSite {
 public:
  GuardedSite(std::unique_ptr<LinearSite> site, const CallNames& names)
      : site_(std::move(site)), names_(names) {}
  ~GuardedSite() override {
    const GuardContext here = names_.context();
    const PluginCallScope scope(here);
    site_.reset();
  }
  SiteMemory memory() const override {
    return names_.call([&] { return site_->memory(); });
  }
  bool reads_input() const override {
    return names_.call([&] { return site_->reads_input(); });
  }
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    names_.call([&] { site_->fprop(call, x, w, bias, y); });
  }
  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    names_.call([&] { site_->dgrad(call, dy, w, dx, accumulate); });
  }
  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    names_.call([&] { site_->wgrad(call, x, dy, dw, accumulate); });
  }

 private:
  std::unique_ptr<LinearSite> site_;
  const CallNames& names_;
};

}  // namespace

std::unique_ptr<LinearSite> GuardedPrecision::bind(const SiteInfo& site, SiteHost& host) {
  auto bound = names_.call([&] { return policy_.bind(site, host); });
  if (bound == nullptr) return nullptr;
  return std::make_unique<GuardedSite>(std::move(bound), names_);
}

}  // namespace tenon::train
