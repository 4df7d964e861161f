// Conversion happens on the device, which has an operator for it; host memory of other devices is only
// copied.
#include "loop/batch_reader.hpp"

#include "graph/memory_budget.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::train {

BatchReader::BatchReader(Parts& parts, Executor& executor)
    : BatchReader([&parts](const BatchRequest& request,
                           std::span<const TensorView> fields) { parts.dataset->read(request, fields); },
                  parts.dataset->info(), *parts.device, executor) {}

BatchReader::BatchReader(Read read, const DataInfo& data, Device& device, Executor& executor)
    : read_(std::move(read)), device_(device), executor_(executor), declared_(data.fields) {
  const auto inputs = executor.inputs();
  fields_.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Field& field = fields_[i];
    field.host = inputs[i];
    field.host.dtype = declared_.at(i).dtype;
    field.host.space = MemorySpace::kHost;
    const bool converts = field.host.dtype != inputs[i].dtype;
    const bool copies = inputs[i].space != MemorySpace::kHost;
    if (converts || copies) {
      field.memory.resize(field.host.bytes());
      field.host.data = field.memory.data();
    }
    if (converts && copies) {
      field.on_device = field.host;
      field.on_device.space = inputs[i].space;
      field.on_device.data =
          graph::allocate_for(device, static_cast<std::size_t>(field.host.bytes()), "a batch of the data");
    }
    views_.push_back(field.host);
  }
}

BatchReader::~BatchReader() {
  for (const Field& field : fields_) {
    if (!field.on_device.empty()) device_.release(field.on_device.data, field.on_device.bytes());
  }
}

void BatchReader::read(const BatchRequest& request) {
  read_(request, views_);
  const auto inputs = executor_.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Field& field = fields_[i];
    if (field.host.data == inputs[i].data) continue;
    TensorView from = field.host;
    if (!field.on_device.empty()) {
      device_.copy(field.host, field.on_device);
      from = field.on_device;
    }
    if (from.dtype != inputs[i].dtype) {
      device_.family<Elementwise>().convert(from, inputs[i]);
    } else {
      device_.copy(from, inputs[i]);
    }
  }
}

std::string BatchReader::non_finite(std::int64_t first) const {
  const auto inputs = executor_.inputs();
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const TensorView& read = fields_[i].host;
    const auto text = [&](std::int64_t at, const std::string& found) {
      const std::int64_t of_sample = std::max<std::int64_t>(1, declared_[i].shape.elements());
      const std::int64_t sample = at / of_sample;
      return fmt::format(
          "field '{}' has {} in sample {} of the batch (number {} in the order of samples), element {}",
          declared_[i].name, found, sample, first + sample, at % of_sample);
    };
    if (!has_real_values(read.dtype)) continue;
    std::int64_t next = 0, at = -1;
    double value = 0;
    for_each_real(read, [&](double real) {
      if (at < 0 && !std::isfinite(real)) {
        at = next;
        value = real;
      }
      ++next;
    });
    if (at >= 0) {
      const std::int64_t element = dtype_is_complex(read.dtype) ? at / 2 : at;
      return text(element, std::isnan(value) ? "NaN" : "an infinite value");
    }
    if (inputs[i].dtype == read.dtype || !dtype_is_real(inputs[i].dtype)) continue;
    at = device_.family<ReduceOps>().first_non_finite(inputs[i]);
    if (at >= 0) return text(at, fmt::format("a value that is infinite as {}", dtype_name(inputs[i].dtype)));
  }
  return "";
}

}  // namespace tenon::train
