// One operation of a member of a group: what it is, in words for messages and in types of NCCL, its memory,
// and how far it has come. No calls of NCCL here.
#pragma once

#include "nccl_api.hpp"

#include <tenon/transport.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::nccl_transport {

using Time = std::chrono::steady_clock::time_point;

enum class Kind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive
};

/// What members must agree on; of a message, what its ends must.
struct Signature {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  ///< of a message: the other end
  int tag = 0;
  Shape shape = {0};
};
/// "all_reduce(sum, f32 [128])"
std::string signature_text(const Signature& signature);
constexpr bool is_message(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kReceive;
}

/// How NCCL takes numbers of a dtype to be reduced: complex ones are two reals. Throws Error(kConfig) for
/// types that it does not reduce, after check_reducible.
struct Reduced {
  Type type = kUint8;
  int parts = 1;
};
Reduced reduced_type(DType dtype);
int reduce_op(ReduceOp op);

struct Operation {
  enum class State : std::uint8_t {
    kFree,
    kQueued,    ///< not given to NCCL yet
    kGiven,     ///< NCCL is at it; it may not be in the stream yet
    kInStream,  ///< `done` is recorded behind it
    kFinished   ///< the device is done with it, or nothing was to do
  };
  State state = State::kFree;
  std::uint64_t id = 0;
  std::uint64_t number = 0;  ///< of collectives
  Signature signature;
  TensorView data, receive;                 ///< of the caller
  void *memory = nullptr, *into = nullptr;  ///< of the device: the caller's, or a buffer that stands for it
  int buffer = -1, receive_buffer = -1;
  std::vector<std::int64_t> send_counts, receive_counts;
  void *ready = nullptr, *done = nullptr;  ///< events; they stay with the place of the operation
  Time given_at{};
};

}  // namespace tenon::nccl_transport
