// Interfaces of a device that the core itself calls are guarded like the device.
#include "loop/guarded_device.hpp"

namespace tenon::train {

void* GuardedDevice::query(std::string_view interface_id) {
  void* const found = names_.call([&] { return device_.query(interface_id); });
  if (found == nullptr || interface_id != MemoryWatch::kId) return found;
  watch_.watch_ = static_cast<MemoryWatch*>(found);
  return static_cast<MemoryWatch*>(&watch_);
}

}  // namespace tenon::train
