// For authors of transports whose ranks are processes: all collectives and messages of the contract, in the
// fixed order of docs/reductions.md and with the counts of <tenon/sdk/traffic.hpp>, over a port that only
// moves frames between processes. A separate thread makes progress, so that transfers overlap with compute.
#pragma once

#include <tenon/transport.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

enum class FrameKind : std::uint8_t {
  kOpen = 1,  ///< the sender opened its end; payload: the group's name
  kJoin,      ///< the sender started collective `number`; payload: its description
  kGrant,  ///< the sender started a receive, `number` of its own, with tag `index`; payload: its description
  kData,   ///< a part of message `index` of collective `number`
  kMessage,  ///< a part of the message that grant `number` requested
  kFail,     ///< the group has failed, `index` is the kind; payload: the reason
  kClose,    ///< the sender closed its end, `index` = 1 because of an exception
  kBye       ///< nothing follows from this process
};

/// Header before every payload. A payload is entirely in one frame.
struct FrameHeader {
  FrameKind kind = FrameKind::kBye;
  std::uint32_t epoch = 0;
  std::uint32_t index = 0;
  std::uint64_t group = 0;
  std::uint64_t number = 0;
  std::uint64_t offset = 0;  ///< bytes of the message before this part
  std::uint32_t bytes = 0;   ///< of payload
};

inline constexpr std::size_t kFrameHeaderBytes = 48;
/// Largest payload of kData and kMessage, and of all others.
inline constexpr std::uint32_t kFrameDataBytes = 256 * 1024;
inline constexpr std::uint32_t kFrameControlBytes = 16 * 1024;

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;
/// Little-endian on every machine, with a checksum.
FrameHeaderBytes write_frame_header(const FrameHeader& header) noexcept;
/// Returns "" and fills the header, or returns the error in the bytes.
std::string read_frame_header(const FrameHeaderBytes& bytes, FrameHeader& header);

/// Moves frames between this process and the others, in order between each two of them. All calls except
/// wake() come from one thread: the creating thread before the transport owns the port, and one of the
/// transport's own threads afterwards. Counts nothing.
class FramePort {
 public:
  /// Destination of a payload, and its owner.
  struct Landing {
    std::byte* to = nullptr;      ///< null: the bytes are read and dropped
    const void* owner = nullptr;  ///< for release()
  };
  class Events {
   public:
    virtual ~Events();
    /// A frame begins; its payload follows, then end(), before the next frame of the same peer.
    virtual Landing begin(int from, const FrameHeader& header) = 0;
    virtual void end(int from) = 0;
    /// The payload of a frame queued for `owner` is no longer read.
    virtual void sent(const void* owner) = 0;
    /// The peer is gone: `why` continues "its connection ...". At most once a peer, and not after its kBye.
    virtual void lost(int peer, const std::string& why) = 0;
  };
  virtual ~FramePort();
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Queues a frame. Without an owner the payload is copied at once; with one it must stay valid until
  /// sent(owner). For a lost peer the next poll calls sent(owner).
  virtual void send(int to, const FrameHeader& header, std::span<const std::byte> payload,
                    const void* owner) = 0;
  /// Moves all frames that can be moved. If there are none, waits up to `seconds` or until wake().
  virtual void poll(Events& events, double seconds) = 0;
  /// Ends a waiting poll, or the next one. From any thread.
  virtual void wake() = 0;
  /// On return no memory of `owner` is accessed any more; no sent(owner) follows.
  virtual void release(const void* owner) = 0;
  /// Sends queued frames for at most `seconds` and disconnects.
  virtual void close(double seconds) = 0;
};

class RingEngine;

/// The transport above a port. Thread-safe; communicators may outlive it and then reject every call.
class RingTransport {
 public:
  /// `name` opens messages: "transport.socket". Uses rank and ranks of the port, deadline and clock (never
  /// the simulated one) of the world.
  RingTransport(std::unique_ptr<FramePort> port, const WorldSpec& world, std::string name);
  /// Sends frames that others still need and ends the thread.
  ~RingTransport();
  RingTransport(const RingTransport&) = delete;
  RingTransport& operator=(const RingTransport&) = delete;

  std::span<const int> local_ranks() const { return {&rank_, 1}; }
  std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group);
  void cancel(std::string_view reason);
  LinkCounts counts(int world_rank, Purpose purpose) const;

 private:
  const int rank_;
  // Shared with the communicators, which may live longer.
  const std::shared_ptr<RingEngine> engine_;
};

TENON_ABI_END
