#include "site_rig.hpp"

#include "base/at.hpp"

#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::conformance {
namespace {

constexpr std::size_t kGuard = 64;
constexpr double kMark = 0xA5;

}  // namespace

const std::vector<SiteShape> kSiteShapes = {
    {.m = 32, .n = 48, .k = 64, .chunk = 32, .layer_index = 0, .bias = true},
    {.m = 96, .n = 32, .k = 32, .chunk = 32, .layer_index = 1},
    {.m = 40, .n = 24, .k = 50, .chunk = 16, .layer_index = 1, .bias = true},
    {.m = 7, .n = 5, .k = 9, .chunk = 7, .layer_index = 2},
    {.m = 128, .n = 128, .k = 128, .chunk = 128, .layer_index = 3, .bias = true},
};

std::string text_of(const SiteShape& shape) {
  return fmt::format("a site with m = {}, n = {}, k = {}, chunk = {} in layer {} of {}", shape.m, shape.n,
                     shape.k, shape.chunk, shape.layer_index, shape.layer_count);
}

double frobenius_error(const std::vector<double>& found, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  const double result = std::sqrt(error / size);
  return std::isfinite(result) ? result : std::numeric_limits<double>::infinity();
}

SiteRig::SiteRig(Subject& subject, Precision& precision, const SiteShape& shape)
    : device_(subject.device()), shape_(shape) {
  const DType activation = precision.activations(), parameter = precision.parameters();
  x = allocate("x", activation, {shape.m, shape.k});
  w = allocate("w", parameter, {shape.n, shape.k});
  if (shape.bias) bias = allocate("bias", parameter, {shape.n});
  y = allocate("y", activation, {shape.m, shape.n});
  dy = allocate("dy", activation, {shape.m, shape.n});
  dx = allocate("dx", activation, {shape.m, shape.k});
  dw = allocate("dw", parameter, {shape.n, shape.k});
  SiteInfo info;
  info.layer = "conformance.fc";
  info.module = "linear";
  info.weight = "conformance.fc.weight";
  info.layer_index = shape.layer_index;
  info.layer_count = shape.layer_count;
  info.block_index = shape.layer_index;
  info.block_count = shape.layer_count;
  info.m = shape.m, info.n = shape.n, info.k = shape.k, info.chunk = shape.chunk;
  info.bias = shape.bias;
  info.activation = activation;
  info.parameter = parameter;
  site_ = precision.bind(info, *this);
  if (site_ == nullptr) return;
  const SiteMemory need = site_->memory();
  const auto bytes = [&](const char* name, std::size_t count) {
    return allocate(name, DType::kU8, {static_cast<std::int64_t>(count)});
  };
  call_.kept = bytes("kept", need.kept);
  call_.persistent = bytes("persistent", need.persistent);
  call_.scratch = bytes("scratch", need.scratch);
  set(x, testing::normals(x.elements(), "x"));
  set(dy, testing::normals(dy.elements(), "dy"));
  if (shape.bias) set(bias, testing::normals(bias.elements(), "bias"));
  set_weight(testing::normals(w.elements(), "w"));
}

SiteRig::~SiteRig() {
  site_.reset();
  for (const Guarded& entry : memory_) device_.release(entry.memory, entry.bytes + 2 * kGuard);
}

TensorView SiteRig::guard(std::byte* memory) const {
  return {memory, {static_cast<std::int64_t>(kGuard)}, DType::kU8, device_.space()};
}

TensorView SiteRig::allocate(const std::string& name, DType dtype, const Shape& shape) {
  TensorView view{nullptr, shape, dtype, device_.space()};
  const auto bytes = static_cast<std::size_t>(view.bytes());
  auto* const memory = static_cast<std::byte*>(device_.allocate(bytes + 2 * kGuard));
  const std::vector<double> mark(kGuard, kMark);
  testing::write(device_, guard(memory), mark);
  testing::write(device_, guard(memory + kGuard + bytes), mark);
  memory_.push_back({name, memory, bytes});
  view.data = memory + kGuard;
  return view;
}

TensorView SiteRig::state(std::string_view name, DType dtype, const Shape& shape) {
  const auto [entry, fresh] = states_.try_emplace(std::string(name));
  if (!fresh) fail(fmt::format("it asks for the state '{}' twice: names are unique within a site", name));
  entry->second = allocate(fmt::format("state '{}'", name), dtype, shape);
  return entry->second;
}

void SiteRig::set(TensorView view, const std::vector<double>& values) {
  testing::write(device_, view, values);
}

std::vector<double> SiteRig::get(TensorView view) const {
  return testing::read(device_, view);
}

void SiteRig::set_weight(const std::vector<double>& values) {
  set(w, values);
  ++call_.weight_version;
}

template <typename Call>
void SiteRig::in_chunks(Call&& call) {
  for (std::int64_t first = 0; first < shape_.m; first += shape_.chunk) {
    call_.first_row = first;
    call(first, std::min(first + shape_.chunk, shape_.m));
  }
}

std::vector<double> SiteRig::fprop() {
  set(y, std::vector<double>(static_cast<std::size_t>(y.elements()), std::nan("")));
  in_chunks([&](std::int64_t begin, std::int64_t end) {
    site_->fprop(call_, x.rows(begin, end), w, bias, y.rows(begin, end));
  });
  return get(y);
}

std::vector<double> SiteRig::dgrad(const std::vector<double>* base) {
  set(dx,
      base != nullptr ? *base : std::vector<double>(static_cast<std::size_t>(dx.elements()), std::nan("")));
  in_chunks([&](std::int64_t begin, std::int64_t end) {
    site_->dgrad(call_, dy.rows(begin, end), w, dx.rows(begin, end), base != nullptr);
  });
  return get(dx);
}

std::vector<double> SiteRig::wgrad(const std::vector<double>* base) {
  set(dw,
      base != nullptr ? *base : std::vector<double>(static_cast<std::size_t>(dw.elements()), std::nan("")));
  bool first = base == nullptr;
  in_chunks([&](std::int64_t begin, std::int64_t end) {
    TensorView rows = x.rows(begin, end);
    if (!site_->reads_input()) rows.data = nullptr;
    site_->wgrad(call_, rows, dy.rows(begin, end), dw, !first);
    first = false;
  });
  return get(dw);
}

std::vector<double> SiteRig::exact_fprop() const {
  const std::vector<double> a = get(x), b = get(w), c = get(bias);
  std::vector<double> result;
  for (std::int64_t i = 0; i < shape_.m; ++i) {
    for (std::int64_t j = 0; j < shape_.n; ++j) {
      double sum = c.empty() ? 0 : base::at(c, j);
      for (std::int64_t l = 0; l < shape_.k; ++l)
        sum += base::at(a, i * shape_.k + l) * base::at(b, j * shape_.k + l);
      result.push_back(sum);
    }
  }
  return result;
}

std::vector<double> SiteRig::exact_dgrad() const {
  const std::vector<double> a = get(dy), b = get(w);
  std::vector<double> result(static_cast<std::size_t>(shape_.m * shape_.k), 0.0);
  for (std::int64_t i = 0; i < shape_.m; ++i) {
    for (std::int64_t j = 0; j < shape_.n; ++j) {
      for (std::int64_t l = 0; l < shape_.k; ++l)
        base::at(result, i * shape_.k + l) += base::at(a, i * shape_.n + j) * base::at(b, j * shape_.k + l);
    }
  }
  return result;
}

std::vector<double> SiteRig::exact_wgrad() const {
  const std::vector<double> a = get(dy), b = get(x);
  std::vector<double> result(static_cast<std::size_t>(shape_.n * shape_.k), 0.0);
  for (std::int64_t i = 0; i < shape_.m; ++i) {
    for (std::int64_t j = 0; j < shape_.n; ++j) {
      for (std::int64_t l = 0; l < shape_.k; ++l)
        base::at(result, j * shape_.k + l) += base::at(a, i * shape_.n + j) * base::at(b, i * shape_.k + l);
    }
  }
  return result;
}

std::string SiteRig::spilled() const {
  const auto marked = [&](std::byte* memory) {
    const std::vector<double> found = get(guard(memory));
    return std::all_of(found.begin(), found.end(), [](double value) { return value == kMark; });
  };
  for (const Guarded& entry : memory_) {
    if (!marked(entry.memory)) return entry.name + " (in front of it)";
    if (!marked(entry.memory + kGuard + entry.bytes)) return entry.name + " (after it)";
  }
  return "";
}

}  // namespace tenon::conformance
