// One collective in flight as a member of a ring sees it: what all must agree on, and the messages that this
// member sends and receives, each with the range of memory that it carries and the message that it waits for.
// No locking, no waiting and no frames here: see group.hpp.
#pragma once

#include <tenon/transport.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

TENON_ABI_BEGIN
namespace ring {

using Time = std::chrono::steady_clock::time_point;

enum class Kind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier,
  kMessage
};
std::string_view kind_name(Kind kind);

/// What members must agree on.
struct Signature {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  Shape shape = {0};
  bool operator==(const Signature& other) const = default;
};
/// "all_reduce(sum, f32 [128])"
std::string signature_text(const Signature& signature);

inline constexpr std::size_t kSignatureBytes = 72;
using SignatureBytes = std::array<std::byte, kSignatureBytes>;
SignatureBytes write_signature(const Signature& signature);
/// False unless the bytes begin with a signature.
bool read_signature(std::span<const std::byte> bytes, Signature& signature);
/// Numbers behind a signature.
void write_counts(std::span<const std::int64_t> counts, std::vector<std::byte>& bytes);
void read_counts(std::span<const std::byte> bytes, std::vector<std::int64_t>& counts);

/// One message of an operation. `begin` counts bytes from the start of its memory.
struct Transfer {
  int peer = 0;   // member
  int index = 0;  // of the message among those that its receiver expects
  std::byte* memory = nullptr;
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  std::int64_t moved = 0;  // queued, or arrived
  bool whole = false;      // all of it, also when it is empty
  int after = -1;          // send: the receive that brings these bytes; -1: they are there
  // receive: arriving op own, in this order, goes to `memory`; null: the bytes are taken as they are.
  std::byte* own = nullptr;
};

struct Buffers {
  TensorView data;
  TensorView receive = {};
  std::span<const std::int64_t> send_counts = {};
  std::span<const std::int64_t> receive_counts = {};
};

struct Join {
  bool joined = false;
  Signature signature;
  std::vector<std::int64_t> counts;  // all-to-all: elements to each member, then elements from each
};

class Group;

/// What the port may be at work for.
struct Flight {
  explicit Flight(bool message) : is_message(message) {}
  const bool is_message;
  Group* group = nullptr;
  bool open = false;
  bool finished = false;
  bool released = false;  // after a failure: no memory is touched any more
  int on_the_way = 0;     // frames that the port may still read from
  Time moved_at{};        // when last something of it moved
};

struct Operation : Flight {
  Operation() : Flight(false) {}
  std::uint64_t number = 0;
  bool started = false;  // by this member
  Signature signature;   // of this member
  std::vector<Join> joins;
  int joined = 0;
  Time joined_at{};  // when the last of those joined
  std::vector<Transfer> sends, receives;
  std::size_t queued = 0;   // sends that are whole
  std::size_t arrived = 0;  // receives that are whole
  std::vector<std::byte> workspace;

  void reset(std::uint64_t operation_number, int members);
  /// Fills `sends` and `receives`, and copies what a member passes to itself.
  void plan(const Buffers& buffers, int member, int members);
};

/// One end of a point-to-point transfer.
struct Message : Flight {
  Message() : Flight(true) {}
  bool is_send = false;
  bool matched = false;  // send: the receiver's grant is there
  int other = 0;         // member
  int tag = 0;
  std::uint64_t serial = 0;  // orders messages of one member
  std::uint64_t number = 0;  // of the receive, given by its member
  Signature what;
  Transfer transfer;
};

/// A receive that a member started and that no send has met yet.
struct Grant {
  int from = 0, tag = 0;
  std::uint64_t number = 0;
  Signature what;
};

}  // namespace ring
TENON_ABI_END
