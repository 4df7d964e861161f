// Operations of a communicator, for every transport that matches them by itself: the description on which
// members agree, the pools of operations in flight, and the requests that name them. No locking, waiting or
// arithmetic.
#pragma once

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::transport_common {

enum class Kind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier,
  kMessage  ///< point to point, where a transport describes messages, too
};

inline std::string_view kind_name(Kind kind) {
  constexpr std::array<std::string_view, 8> kNames = {"all_reduce", "reduce_scatter", "all_gather",
                                                      "broadcast",  "reduce",         "all_to_all",
                                                      "barrier",    "message"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// Description on which members must agree. An all-to-all agrees on its dtype here, and on its counts
/// separately.
struct Signature {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  Shape shape = {0};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  bool operator==(const Signature&) const = default;
};

/// "all_reduce(sum, f32 [128])"
inline std::string signature_text(const Signature& what) {
  constexpr std::array<std::string_view, 3> kOps = {"sum", "max", "min"};
  const std::string_view op = kOps[static_cast<std::size_t>(what.op)];
  std::string tensor = fmt::format("{} {}", dtype_name(what.dtype), what.shape.text());
  switch (what.kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      return fmt::format("{}({}, {})", kind_name(what.kind), op, tensor);
    case Kind::kAllGather:
      return fmt::format("all_gather({})", tensor);
    case Kind::kBroadcast:
      return fmt::format("broadcast({}, root {})", tensor, what.root);
    case Kind::kReduce:
      return fmt::format("reduce({}, {}, root {})", op, tensor, what.root);
    case Kind::kAllToAll:
      return fmt::format("all_to_all({})", dtype_name(what.dtype));
    case Kind::kMessage:
      return tensor;
    case Kind::kBarrier:
      break;
  }
  return "barrier";
}

/// A member's arguments of a collective; only all_to_all uses the last three.
struct Buffers {
  TensorView data;
  TensorView receive = {};
  std::span<const std::int64_t> send_counts = {};
  std::span<const std::int64_t> receive_counts = {};
};

// Requests: of a collective its number, of a message its serial number and its index in the pool.

constexpr int kIndexBits = 16;
constexpr std::size_t kMostMessages = std::size_t{1} << kIndexBits;

constexpr Request collective_request(std::uint64_t number) {
  return {number << 1 | 1};
}
constexpr Request message_request(std::uint64_t serial, std::size_t index) {
  return {(serial << kIndexBits | index) << 1};
}
constexpr bool is_collective(Request request) {
  return (request.id & 1) != 0;
}
[[noreturn]] inline void refuse_request(int rank, std::string_view group) {
  fail_run(fmt::format("rank {} waits twice for a request of '{}', or for one that '{}' did not give", rank,
                       group, group));
}

/// Returns the open operation of this number, or the free slot that it takes. Operation n uses slot n % size
/// while in flight; the ring doubles when numbers are further apart than ever before.
template <class Operation>
Operation& operation_slot(std::vector<std::unique_ptr<Operation>>& ring, std::uint64_t number) {
  while (true) {
    Operation& operation = *ring[number % ring.size()];
    if (!operation.open || operation.number == number) return operation;
    std::vector<std::unique_ptr<Operation>> larger(2 * ring.size());
    for (auto& old : ring) {
      if (old->open) larger[old->number % larger.size()] = std::move(old);
    }
    for (auto& slot : larger) {
      if (!slot) slot = std::make_unique<Operation>();
    }
    ring = std::move(larger);
  }
}

/// Returns null unless the collective is open.
template <class Operation>
Operation* find_operation(const std::vector<std::unique_ptr<Operation>>& ring, Request request) {
  const std::uint64_t number = request.id >> 1;
  Operation& operation = *ring[number % ring.size()];
  return operation.open && operation.number == number ? &operation : nullptr;
}

/// Returns a message that is not open; the pool grows when there is none.
template <class Message>
Message& free_message(std::vector<std::unique_ptr<Message>>& pool, std::string_view group,
                      std::size_t& index) {
  for (index = 0; index < pool.size(); ++index) {
    if (!pool[index]->open) return *pool[index];
  }
  if (index == kMostMessages)
    fail_run(fmt::format("'{}' has {} messages in flight; wait for some", group, index));
  pool.push_back(std::make_unique<Message>());
  return *pool.back();
}

/// Returns null unless the message is open.
template <class Message>
Message* find_message(const std::vector<std::unique_ptr<Message>>& pool, Request request) {
  const std::size_t index = (request.id >> 1) & (kMostMessages - 1);
  if (index >= pool.size()) return nullptr;
  Message& message = *pool[index];
  return message.open && message.serial == request.id >> (kIndexBits + 1) ? &message : nullptr;
}

}  // namespace tenon::transport_common
