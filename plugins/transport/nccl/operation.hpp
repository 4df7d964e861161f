// One operation of a member of a group: its description for messages and in NCCL's types, its memory, and its
// progress. No calls of NCCL here.
#pragma once

#include "library.hpp"

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

/// Description on which the members of a collective, or both ends of a message, must agree.
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

/// NCCL's representation of a dtype in reductions: a complex number is two reals. reduced_type() throws
/// Error(kConfig) for types that NCCL does not reduce, after check_reducible.
struct Reduced {
  Type type = kUint8;
  int parts = 1;
};
Reduced reduced_type(DType dtype);
int reduce_op(ReduceOp op);

struct Operation {
  enum class State : std::uint8_t {
    kFree,
    kQueued,    ///< not passed to NCCL yet
    kGiven,     ///< passed to NCCL; it may not be in the stream yet
    kInStream,  ///< `done` is recorded after it
    kFinished   ///< the device is done with it, or there was nothing to do
  };
  State state = State::kFree;
  std::uint64_t id = 0;
  std::uint64_t number = 0;  ///< of collectives
  Signature signature;
  TensorView data, receive;                 ///< of the caller
  void *memory = nullptr, *into = nullptr;  ///< of the device: the caller's, or a staging buffer
  int buffer = -1, receive_buffer = -1;
  std::vector<std::int64_t> send_counts, receive_counts;
  void *ready = nullptr, *done = nullptr;  ///< events; they belong to the operation's slot and are reused
  Time given_at{};
};

}  // namespace tenon::nccl_transport
