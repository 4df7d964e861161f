// Work that a device runs beside its operators and after them: the filler of power/1 asks for it. Optional: a
// device with memory of its own offers it through Device::query. It computes nothing that anybody reads, and
// changes no clock, limit or profile of the device.
#pragma once

#include <tenon/abi.hpp>

TENON_ABI_BEGIN

/// Products of matrices in a stream of the lowest priority, with memory of their own. No call waits for the
/// stream of the operators, and that stream waits for nothing of this. One thread at a time.
class BackgroundWork {
 public:
  static constexpr const char* kId = "tenon.device.background/1";
  virtual ~BackgroundWork();
  /// Makes the stream, the memory and a block of about `seconds` on the device as it is now; returns what a
  /// block was measured to take. Before the first slot: it waits for its own products. Repeatable.
  virtual double open(double seconds) = 0;
  /// Launches one block and returns. After open().
  virtual void start_block() = 0;
  /// Returns how many started blocks have not ended. Does not wait. Throws Error(kDeviceLost) where the
  /// device is lost.
  virtual int in_flight() = 0;
  /// Waits for what is in flight and frees everything. Repeatable.
  virtual void close() noexcept = 0;
};

TENON_ABI_END
