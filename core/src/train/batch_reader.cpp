// Conversion happens on the device, which has an operator for it; host memory of other devices is only
// copied.
#include "train/batch_reader.hpp"

#include "graph/named_allocation.hpp"

#include <tenon/operators.hpp>

namespace tenon::train {

BatchReader::BatchReader(Parts& parts, Executor& executor) : parts_(parts), executor_(executor) {
  const auto inputs = executor.inputs();
  const std::vector<DataField>& declared = parts.dataset->info().fields;
  fields_.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Field& field = fields_[i];
    field.host = inputs[i];
    field.host.dtype = declared.at(i).dtype;
    field.host.space = MemorySpace::kHost;
    const bool converts = field.host.dtype != inputs[i].dtype;
    const bool copies = inputs[i].space != MemorySpace::kHost;
    if (converts || copies) {
      field.memory.resize(static_cast<std::size_t>(field.host.bytes()));
      field.host.data = field.memory.data();
    }
    if (converts && copies) {
      field.on_device = field.host;
      field.on_device.space = inputs[i].space;
      field.on_device.data = graph::allocate_for(*parts.device, static_cast<std::size_t>(field.host.bytes()),
                                                 "a batch of the data");
    }
    views_.push_back(field.host);
  }
}

BatchReader::~BatchReader() {
  for (const Field& field : fields_) {
    if (!field.on_device.empty())
      parts_.device->release(field.on_device.data, static_cast<std::size_t>(field.on_device.bytes()));
  }
}

void BatchReader::read(const BatchRequest& request) {
  parts_.dataset->read(request, views_);
  const auto inputs = executor_.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Field& field = fields_[i];
    if (field.host.data == inputs[i].data) continue;
    TensorView from = field.host;
    if (!field.on_device.empty()) {
      parts_.device->copy(field.host, field.on_device);
      from = field.on_device;
    }
    if (from.dtype != inputs[i].dtype) {
      parts_.device->family<Elementwise>().convert(from, inputs[i]);
    } else {
      parts_.device->copy(from, inputs[i]);
    }
  }
}

}  // namespace tenon::train
