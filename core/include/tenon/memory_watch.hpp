// What a device may ask to hear of the graph's planned memory. No shipped device does: tests fill memory with
// NaN where its lifetime begins (testing/poisoned_device.hpp), so that whatever reads it before writing it
// shows.
#pragma once

#include <tenon/tensor.hpp>

#include <string_view>

TENON_ABI_BEGIN

/// Offered through Device::query(MemoryWatch::kId) before graphs are built. Without it a pass costs nothing
/// more.
class MemoryWatch {
 public:
  static constexpr const char* kId = "tenon.device.memory_watch/1";
  virtual ~MemoryWatch();
  /// Before the pass of the node in which the lifetime of a planned value, gradient, workspace or scratch
  /// begins, on the thread that runs the pass: what `memory` (bytes) holds is nobody's, and may be
  /// overwritten here. Data fields are not told. `what` is valid during the call.
  virtual void begins(TensorView memory, std::string_view what) = 0;
};

TENON_ABI_END
