// The mean over the replicas of one fragment's way back, behind the training: in the parameters' own dtype by
// an all-reduce, or each replica's in few bits to all others, which every receiver decodes and adds up in f32
// in the order of the replicas. Source: Streaming DiLoCo (arXiv 2501.18512).
#pragma once

#include "fragments.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/sync.hpp>

#include <memory>
#include <vector>

namespace tenon::sync_streaming {

enum class Format { kParameter, kBf16, kE4m3, kFp4 };

/// Bytes that one replica's `elements` numbers take on their way:
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

  /// Takes all memory. The communicator is one's own: transfers overlap with whatever else replicas exchange.
  void start(Replica& replica, std::span<const Fragment> fragments);
  /// Packed buffers, one per arena that is trained: ways back on the way out, means once they have landed.
  /// State: what has landed may be merged much later, in another process.
  std::span<const TensorView> buffers() const { return buffers_; }
  /// The packed elements of a fragment's lane.
  TensorView packed(const Lane& lane) const;
  /// Starts with the ways back that lie in packed().
  void send(std::size_t fragment);
  /// Waits for what was sent, if anything, and leaves the means in packed(). May be called again.
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
