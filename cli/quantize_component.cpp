// Creates and queries every precision component, because a plugin's tag does not list formats.
#include "quantize_component.hpp"

#include "base/process_facts.hpp"
#include "config/suggest.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tenon::cli {
namespace {

/// Memory of a device that is given back.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, const Shape& shape, DType dtype) : device_(device) {
    view_.shape = shape;
    view_.dtype = dtype;
    view_.space = device.space();
    if (view_.elements() > 0) view_.data = device.allocate(static_cast<std::size_t>(view_.bytes()));
  }
  ~DeviceMemory() {
    if (view_.data != nullptr) device_.release(view_.data, static_cast<std::size_t>(view_.bytes()));
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  TensorView view() const { return view_; }
  TensorView at(void* host) const { return {host, view_.shape, view_.dtype, MemorySpace::kHost}; }
  void load(const void* host) { device_.copy(at(const_cast<void*>(host)), view_); }
  void store(void* host) {
    if (view_.data == nullptr) return;
    device_.copy(view_, at(host));
    device_.synchronize();
  }

 private:
  Device& device_;
  TensorView view_;
};

}  // namespace

template <typename Interface>
Component<Interface> FormatUser::make(Registry& registry, const std::string& type) {
  Resolution resolved =
      resolve_options(component_request(Value(), registry.describe(Interface::kKind, type), &registry));
  registry.create_inner(*resolved.options, host_);
  options_.push_back(std::move(resolved.options));
  return registry.create<Interface>(type, *options_.back(), host_);
}

FormatUser::FormatUser(Registry& registry, const std::string& format) {
  std::vector<std::string> offered, silent;
  for (const std::string& id : registry.ids(Precision::kKind)) {
    try {
      Component<Precision> precision = make<Precision>(registry, id);
      auto* quantizer = static_cast<Quantizer*>(precision->query(Quantizer::kId));
      if (quantizer == nullptr) continue;
      const std::span<const std::string_view> formats = quantizer->formats();
      offered.insert(offered.end(), formats.begin(), formats.end());
      if (quantizer_ != nullptr || std::find(formats.begin(), formats.end(), format) == formats.end())
        continue;
      quantizer_ = quantizer;
      name_ = "precision." + id;
      precision_ = std::move(precision);
    } catch (const Error& error) {  // one that needs options, or is broken, may not be the requested one
      silent.push_back(fmt::format("precision.{} could not be asked: {}", id, error.what()));
    }
  }
  if (quantizer_ == nullptr) {
    std::sort(offered.begin(), offered.end());
    offered.erase(std::unique(offered.begin(), offered.end()), offered.end());
    fail_config(fmt::format("no precision component offers the format '{}'{}; offered: {}{}{}", format,
                            config::suggestion(format, offered),
                            offered.empty() ? "none" : fmt::format("{}", fmt::join(offered, ", ")),
                            silent.empty() ? "" : "\n  ", fmt::join(silent, "\n  ")));
  }
  device_ = make<Device>(registry, "cpu");
  device_->open({.local_rank = 0, .threads = usable_cores(), .kernels = "auto"});
}

QuantizedMatrix FormatUser::run(const QuantizeChoice& choice, const std::string& what,
                                const std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  QuantizeRequest request;
  request.format = choice.format;
  request.block_rows = choice.block_rows;
  request.block_columns = choice.block_columns;
  request.scale = choice.scale;
  request.rounding = choice.rounding;
  request.transform = choice.transform;
  request.seed = choice.seed;
  request.rows = rows;
  request.columns = columns;
  QuantizedMatrix result;
  try {
    result.shape = quantizer_->shape(request);
    const QuantizeShape& shape = result.shape;
    if (shape.rows < rows || shape.columns < columns || shape.scale_rows < 0 || shape.scale_columns < 0 ||
        (shape.scale != DType::kU8 && shape.scale != DType::kF32)) {
      fail_plugin(fmt::format("{} answered a shape of {} x {} codes with {} x {} scales of {}", name_,
                              shape.rows, shape.columns, shape.scale_rows, shape.scale_columns,
                              dtype_name(shape.scale)));
    }
    DeviceMemory x(*device_, {rows, columns}, DType::kF32);
    DeviceMemory codes(*device_, {shape.rows, shape.columns}, DType::kU8);
    DeviceMemory scales(*device_, {shape.scale_rows, shape.scale_columns}, shape.scale);
    DeviceMemory dequantized(*device_, {shape.rows, shape.columns}, DType::kF32);
    x.load(values.data());
    result.report =
        quantizer_->run(request, *device_, x.view(), codes.view(), scales.view(), dequantized.view());
    result.codes.resize(static_cast<std::size_t>(codes.view().bytes()));
    result.block_scales.resize(static_cast<std::size_t>(scales.view().bytes()));
    result.dequantized.resize(static_cast<std::size_t>(dequantized.view().elements()));
    codes.store(result.codes.data());
    scales.store(result.block_scales.data());
    dequantized.store(result.dequantized.data());
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}: {}", what, name_, error.what()));
  }
  return result;
}

}  // namespace tenon::cli
