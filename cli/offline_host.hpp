// The host of components that a command makes without a run: one rank, whose messages go to standard error.
#pragma once

#include "loop/graph_edits.hpp"
#include "models/stored_models.hpp"

#include <tenon/device.hpp>
#include <tenon/executor.hpp>
#include <tenon/host.hpp>
#include <tenon/shared_objects.hpp>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace tenon::cli {

class OfflineHost final : public Host {
 public:
  void log(LogLevel level, std::string_view message) override;
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view name, std::function<void(Actor&)> loop) override;
  double deadline() const override { return 60; }
  void* query(std::string_view interface_id) override {
    if (interface_id == train::NodePlaces::kId) return places_;
    if (interface_id == StoredModels::kId) return models_;
    if (interface_id == SharedObjects::kId) return shared_.get();
    if (interface_id == Device::kKind) return device_ ? device_() : nullptr;
    return interface_id == LayerFactory::kId ? layers_ : nullptr;
  }
  /// The factory for layers with graphs of their own; none at first.
  void set_layers(LayerFactory* layers) { layers_ = layers; }
  /// Who opens stored models; none at first.
  void set_stored_models(StoredModels* models) { models_ = models; }
  /// The device for components that compute, open; asked when one needs it. None at first.
  void set_device(std::function<Device*()> device) { device_ = std::move(device); }
  /// Lines of the graph's edits, for errors of layers; none at first.
  void set_places(train::NodePlaces* places) { places_ = places; }

 private:
  LayerFactory* layers_ = nullptr;
  StoredModels* models_ = nullptr;
  std::function<Device*()> device_;
  train::NodePlaces* places_ = nullptr;
  std::unique_ptr<SharedObjects> shared_ = make_shared_objects();
};

}  // namespace tenon::cli
