// The device of a rank of gpu_nccl: the one that the options name or, in a rehearsal, memory of the host that
// claims to be a device's. A stand-in for NCCL reads and writes the memory it is given, which the emulated
// device keeps closed.
#pragma once

#include "rows.hpp"

#include <tenon/device.hpp>

#include <cstdlib>

namespace tenon::bench::gpu {

/// For a library whose operations end before its communicator reports that the call is complete.
class HostStandIn final : public Device, public DeviceStreams, public DeviceEvents {
 public:
  explicit HostStandIn(int rank) : identity_("rank " + std::to_string(rank)) {}
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kCuda; }
  void* allocate(std::size_t bytes) override { return std::calloc(1, bytes); }
  void release(void* memory, std::size_t) noexcept override { std::free(memory); }
  void copy(TensorView from, TensorView to) override {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
  }
  void synchronize() override {}
  std::string_view kernel_choice() const override { return "stand-in"; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view id) override {
    if (id == DeviceStreams::kId) return static_cast<DeviceStreams*>(this);
    if (id == DeviceEvents::kId) return static_cast<DeviceEvents*>(this);
    return nullptr;
  }

  void make_current() override {}
  std::string identity() override { return identity_; }
  void* stream() override { return this; }
  void* make_stream() override { return new char(); }
  void release_stream(void* stream) noexcept override { delete static_cast<char*>(stream); }
  void* make_event() override { return new char(); }
  void release_event(void* event) noexcept override { delete static_cast<char*>(event); }
  void record(void*, void*) override {}
  void wait(void*, void*) override {}
  bool reached(void*) override { return true; }

 private:
  std::string identity_;
};

template <typename Interface>
Interface& ability(Device& device) {
  void* const found = device.query(Interface::kId);
  if (found == nullptr) fail_config(std::string("gpu_nccl: the device has no ") + Interface::kId);
  return *static_cast<Interface*>(found);
}

}  // namespace tenon::bench::gpu
