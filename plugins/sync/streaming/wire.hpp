// The mean of one fragment's pseudo-gradient over the replicas, overlapped with training: by an all-reduce in
// the parameters' own dtype, or by sending each replica's in few bits to all others, which every receiver
// decodes and sums in f32 in replica order. Source: Streaming DiLoCo (arXiv 2501.18512).
#pragma once

#include "fragments.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/sync.hpp>

#include <memory>
#include <vector>

namespace tenon::sync_streaming {

enum class Format { kParameter, kBf16, kE4m3, kFp4 };

/// Bytes per replica for `elements` numbers in transfer:
///   bf16  2 n
///   e4m3  n + ceil(n / 32)          codes, and a power of two for 32 of them (MXFP8)
///   fp4   n / 2 + ceil(n / 16) + 4  codes, an E4M3 scale for 16 of them, and one f32 (NVFP4)
std::int64_t narrow_bytes(Format format, std::int64_t elements);

class Wire {
 public:
  explicit Wire(Format format) : format_(format) {}
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire();

  /// Allocates all memory. Opens its own communicator, so that transfers overlap with other communication.
  void start(Replica& replica, std::span<const Fragment> fragments);
  /// Packed buffers, one per trained arena: pseudo-gradients when sent, means once received. Part of the
  /// state: a received mean may be merged much later, in another process.
  std::span<const TensorView> buffers() const { return buffers_; }
  /// Returns the packed elements of a fragment's lane.
  TensorView packed(const Lane& lane) const;
  /// Starts the transfer of the pseudo-gradients in packed().
  void send(std::size_t fragment);
  /// Waits for pending transfers, if any, and leaves the means in packed(). May be called again.
  void land();

 private:
  struct Narrow {
    std::unique_ptr<QuantizeKernel> kernel;  ///< null for bf16
    std::int64_t elements = 0, row_bytes = 0;
    TensorView rows;  ///< u8 [K, row_bytes]
    TensorView scratch;
  };

  TensorView allocate(DType dtype, std::int64_t elements);
  Narrow prepare(const Lane& lane);
  void encode(const Narrow& narrow, TensorView delta);
  void decode(const Narrow& narrow, TensorView mean);
  TensorView row(const Narrow& narrow, int replica, std::int64_t begin, std::int64_t bytes) const;

  Format format_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::unique_ptr<Communicator> group_;  ///< null with one replica
  int replicas_ = 1, self_ = 0;
  std::span<const Fragment> fragments_;
  std::vector<int> arenas_;  ///< of buffers_
  std::vector<TensorView> buffers_, owned_;
  std::vector<std::vector<Narrow>> narrow_;  ///< by fragment and lane
  TensorView plain_, sum_, values_;          ///< f32, f32 and bf16 of the largest lane
  const Fragment* flying_ = nullptr;
  std::size_t flying_index_ = 0;
  std::vector<Request> requests_;
};

}  // namespace tenon::sync_streaming
