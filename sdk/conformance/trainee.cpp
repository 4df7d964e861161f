#include "trainee.hpp"

#include <algorithm>

namespace tenon::conformance {
namespace {

constexpr double kUntouched = 12345;

}  // namespace

std::vector<double> drawn(const Subject& subject, std::int64_t count, std::string_view purpose) {
  std::vector<double> values(count);
  const RandomKey key = random_key(subject.seed(), purpose);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, 0, i);
  return values;
}

Trainee::Trainee(Subject& subject, DType dtype, const Shape& shape, Device* device)
    : device_(device == nullptr ? subject.device() : *device), rule_(subject.make<Optimizer>()) {
  info_.spec.name = "w";
  info_.spec.dtype = dtype;
  info_.spec.shape = info_.local = info_.offset = shape;
  for (int dim = 0; dim < shape.rank(); ++dim) info_.offset[dim] = 0;
  info_.arena = 0;
  const std::int64_t elements = shape.elements();
  const Shape own = rule_->elementwise() ? Shape{elements} : shape;
  std::vector<Shape> shapes{own, own};
  for (const StateSlot& slot : rule_->slots()) shapes.push_back(state_shape(slot, own));
  for (const Shape& each : shapes) {
    const std::int64_t count = each.elements();
    TensorView whole{nullptr, {count + 2 * kGuard}, dtype, device_.space()};
    whole.data = device_.allocate(whole.bytes());
    std::vector<double> values(count + 2 * kGuard, kUntouched);
    std::fill_n(values.begin() + kGuard, count, 0.0);
    testing::write(device_, whole, values);
    memory_.push_back(whole);
    TensorView inner = slice(whole, kGuard, kGuard + count);
    inner.shape = each;
    tensors_.push_back(inner);
  }
  states_.resize(rule_->slots().size());
  set_weights(drawn(subject, elements, "weights"));
  if (auto* binding = static_cast<OptimizerBinding*>(rule_->query(OptimizerBinding::kId)))
    binding->bind({{&info_, 1}, {&first_holder_, 1}, nullptr, &device_});
}

Trainee::~Trainee() {
  for (const TensorView& view : memory_) device_.release(view.data, view.bytes());
}

TensorView Trainee::slice(const TensorView& tensor, std::int64_t begin, std::int64_t end) const {
  TensorView part = tensor;
  part.data = static_cast<std::byte*>(tensor.data) + dtype_bytes(tensor.dtype, begin);
  part.shape = {end - begin};
  return part;
}

void Trainee::step(std::span<const double> gradients, const Update& update) {
  testing::write(device_, tensors_[1], gradients);
  rule_->step(
      {.lr = update.lr, .count = update.count, .gradient_scale = update.gradient_scale, .device = &device_},
      {.weights = tensors_[0],
       .gradients = tensors_[1],
       .state = std::span<const TensorView>(tensors_).subspan(2),
       .decay = update.decay,
       .parameter = 0});
  device_.synchronize();
}

void Trainee::step(std::span<const double> gradients, const Update& update,
                   std::span<const std::pair<std::int64_t, std::int64_t>> cuts) {
  testing::write(device_, tensors_[1], gradients);
  for (const auto& [begin, end] : cuts) {
    for (std::size_t i = 0; i < states_.size(); ++i) states_[i] = slice(tensors_[2 + i], begin, end);
    rule_->step(
        {.lr = update.lr, .count = update.count, .gradient_scale = update.gradient_scale, .device = &device_},
        {.weights = slice(tensors_[0], begin, end),
         .gradients = slice(tensors_[1], begin, end),
         .state = states_,
         .decay = update.decay,
         .parameter = -1});
  }
  device_.synchronize();
}

std::vector<double> Trainee::everything() const {
  std::vector<double> all = weights();
  for (std::size_t i = 2; i < tensors_.size(); ++i) {
    const std::vector<double> state = testing::read(device_, tensors_[i]);
    all.insert(all.end(), state.begin(), state.end());
  }
  return all;
}

void Trainee::resume_from(Trainee& other) {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    testing::write(device_, tensors_[i], testing::read(device_, other.tensors_[i]));
  MemoryState kept(device_);
  other.rule_->state(kept);
  kept.load();
  rule_->state(kept);
}

bool Trainee::stayed_inside() const {
  const auto untouched = [](double value) { return value == kUntouched; };
  return std::all_of(memory_.begin(), memory_.end(), [&](const TensorView& view) {
    const std::vector<double> values = testing::read(device_, view);
    return std::all_of(values.begin(), values.begin() + kGuard, untouched) &&
           std::all_of(values.end() - kGuard, values.end(), untouched);
  });
}

}  // namespace tenon::conformance
