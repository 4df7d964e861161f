// One collective in flight as seen by a member of a ring: its description, and the messages that this member
// sends and receives, each with its memory range and the message that it waits for. No locking, waiting or
// frames here: see group.hpp.
#pragma once

#include <tenon/transport.hpp>
#include <transport_common/operations.hpp>

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

using transport_common::Buffers;
using transport_common::Kind;
using transport_common::kind_name;
using transport_common::Signature;
using transport_common::signature_text;

inline constexpr std::size_t kSignatureBytes = 72;
using SignatureBytes = std::array<std::byte, kSignatureBytes>;
SignatureBytes write_signature(const Signature& signature);
/// Returns false unless the bytes begin with a signature.
bool read_signature(std::span<const std::byte> bytes, Signature& signature);
/// Appends counts after a signature.
void write_counts(std::span<const std::int64_t> counts, std::vector<std::byte>& bytes);
void read_counts(std::span<const std::byte> bytes, std::vector<std::int64_t>& counts);

/// One message of an operation. `begin` counts bytes from the start of its memory.
struct Transfer {
  int peer = 0;   // member
  int index = 0;  // of the message within its receiver's list
  std::byte* memory = nullptr;
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  std::int64_t moved = 0;  // queued, or arrived
  bool whole = false;      // complete, also when empty
  int after = -1;          // send: the receive that provides these bytes; -1: they are present
  // receive: (arriving op own), in this order, goes to `memory`; null: the bytes are stored unchanged.
  std::byte* own = nullptr;
};

struct Join {
  bool joined = false;
  Signature signature;
  std::vector<std::int64_t> counts;  // all-to-all: elements to each member, then elements from each
};

class Group;

/// A transfer that the port may be processing.
struct Flight {
  explicit Flight(bool message) : is_message(message) {}
  const bool is_message;
  Group* group = nullptr;
  bool open = false;
  bool finished = false;
  bool released = false;  // after a failure: memory is no longer accessed
  int on_the_way = 0;     // frames that the port may still read from
  Time moved_at{};        // time of its last progress
};

struct Operation : Flight {
  Operation() : Flight(false) {}
  std::uint64_t number = 0;
  bool started = false;  // by this member
  Signature signature;   // of this member
  std::vector<Join> joins;
  int joined = 0;
  Time joined_at{};  // time of the last join
  std::vector<Transfer> sends, receives;
  std::size_t queued = 0;   // number of complete sends
  std::size_t arrived = 0;  // number of complete receives
  std::vector<std::byte> workspace;

  void reset(std::uint64_t operation_number, int members);
  /// Fills `sends` and `receives`, and copies what a member passes to itself.
  void plan(const Buffers& buffers, int member, int members);
};

/// One end of a point-to-point transfer.
struct Message : Flight {
  Message() : Flight(true) {}
  bool is_send = false;
  bool matched = false;  // send: the receiver's grant has arrived
  int other = 0;         // member
  int tag = 0;
  std::uint64_t serial = 0;  // orders messages of one member
  std::uint64_t number = 0;  // of the receive, assigned by its member
  Signature what;
  Transfer transfer;
};

/// A receive that a member started, not yet matched by a send.
struct Grant {
  int from = 0, tag = 0;
  std::uint64_t number = 0;
  Signature what;
};

}  // namespace ring
TENON_ABI_END
