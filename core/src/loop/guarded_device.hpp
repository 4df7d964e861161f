// A device as all but the core's own calls see it. Its operators (<tenon/ops/...>) are called as they are.
#pragma once

#include "loop/call_names.hpp"

#include <tenon/device.hpp>
#include <tenon/executor.hpp>

namespace tenon::train {

class GuardedDevice final : public Device {
 public:
  /// The device outlives it.
  GuardedDevice(Device& device, const CallNames& names) : device_(device), names_(names) {}
  void open(const DeviceSpec& spec) override {
    names_.call([&] { device_.open(spec); });
  }
  MemorySpace space() const override {
    return names_.call([&] { return device_.space(); });
  }
  void* allocate(std::size_t bytes) override {
    return names_.call([&] { return device_.allocate(bytes); });
  }
  void release(void* memory, std::size_t bytes) noexcept override {
    const GuardContext here = names_.context();
    const PluginCallScope scope(here);
    device_.release(memory, bytes);
  }
  void copy(TensorView from, TensorView to) override {
    names_.call([&] { device_.copy(from, to); });
  }
  void synchronize() override {
    names_.call([&] { device_.synchronize(); });
  }
  std::string_view kernel_choice() const override {
    return names_.call([&] { return device_.kernel_choice(); });
  }
  std::string_view features() const override {
    return names_.call([&] { return device_.features(); });
  }
  void* query(std::string_view interface_id) override;

 private:
  /// Calls the device's own under the same names.
  class Watch final : public MemoryWatch {
   public:
    explicit Watch(const CallNames& names) : names_(names) {}
    void begins(TensorView memory, std::string_view what) override {
      names_.call([&] { watch_->begins(memory, what); });
    }
    MemoryWatch* watch_ = nullptr;

   private:
    const CallNames& names_;
  };

  Device& device_;
  const CallNames names_;
  Watch watch_{names_};
};

}  // namespace tenon::train
