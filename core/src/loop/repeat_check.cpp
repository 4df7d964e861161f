// Digests are of bytes in host memory, parameter by parameter.
#include "loop/repeat_check.hpp"

#include "base/digests.hpp"

#include <tenon/state.hpp>

#include <algorithm>

namespace tenon::train {

class SiteStates::Visitor final : public StateVisitor {
 public:
  Visitor(SiteStates& states, bool restore) : states_(states), restore_(restore) {}
  bool loading() const override { return restore_; }
  void integer(std::string_view, std::int64_t&) override {}
  void real(std::string_view, double&) override {}
  void text(std::string_view, std::string&) override {}
  void tensor(std::string_view, TensorView value) override {
    if (!restore_) states_.tensors_.emplace_back(static_cast<std::size_t>(value.bytes()));
    TensorView host = value;
    host.space = MemorySpace::kHost;
    host.data = states_.tensors_[next_++].data();
    restore_ ? states_.device_.copy(host, value) : states_.device_.copy(value, host);
  }
  void enter(std::string_view) override {}
  void leave() override {}

 private:
  SiteStates& states_;
  const bool restore_;
  std::size_t next_ = 0;
};

void SiteStates::visit(bool restore) {
  Visitor visitor(*this, restore);
  executor_.state(visitor);
  device_.synchronize();
}

void SiteStates::keep() {
  tensors_.clear();
  visit(false);
}

void SiteStates::put_back() {
  visit(true);
}

void RepeatCheck::begin() {
  sites_.keep();
  operands_ = executor_.quantized_operands();
}

void RepeatCheck::first_done() {
  first_ = digests();
  sites_.put_back();
  const auto before = std::exchange(operands_, executor_.quantized_operands());
  for (auto& [format, count] : operands_) {
    for (const auto& [name, earlier] : before) {
      if (name == format) count -= earlier;
    }
  }
}

std::string RepeatCheck::second_done() {
  const Digests second = digests();
  const auto differs = std::mismatch(first_.begin(), first_.end(), second.begin(), second.end());
  if (differs.first == first_.end() && differs.second == second.end()) return "";
  return differs.first == first_.end() ? differs.second->first : differs.first->first;
}

RepeatCheck::Digests RepeatCheck::digests() {
  Digests all;
  Xxh3Stream stream;
  const auto add = [&](int parameter, const TensorView& values, std::span<const std::int64_t> ids) {
    TensorView host = values;
    if (values.space != MemorySpace::kHost) {
      host_.resize(values.bytes());
      host.space = MemorySpace::kHost;
      host.data = host_.data();
      device_.copy(values, host);
      device_.synchronize();
    }
    stream.reset();
    stream.update(std::as_bytes(ids));
    stream.update(host.raw());
    all.emplace_back(executor_.parameters()[parameter].spec.name, stream.hex());
  };
  for (const ParameterInfo& info : executor_.parameters()) {
    const TensorView gradient = gradients_.tensor(info.index);
    if (!gradient.empty()) add(info.index, gradient, {});
  }
  for (const RowGradient& rows : executor_.row_gradients()) add(rows.parameter, rows.values, rows.ids);
  return all;
}

}  // namespace tenon::train
