// One member's state of a communicator over a ring: operations matched by number, messages by (from, tag),
// agreement, lateness, failure, closing. The engine's mutex protects all of it; the engine's thread handles
// frames, callers wait on a condition variable of their group.
#pragma once

#include "operation.hpp"

#include <tenon/ring/transport.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

class RingEngine;

namespace ring {

class Group {
 public:
  using Lock = std::unique_lock<std::mutex>;
  enum class End : std::uint8_t { kOpen, kClosed, kAbandoned, kGone };

  /// Before the local end is opened, a group only collects the frames of faster members.
  Group(RingEngine& engine, std::uint64_t key) : engine_(engine), key_(key) {}

  bool is_open() const { return state_ == State::kOpen; }
  bool is_opened() const { return state_ != State::kUnopened; }  // now or earlier
  bool is_over() const;                                          // closed here and everywhere
  void open(const GroupSpec& spec, int member);
  /// Before the local end is opened: stores a frame until then.
  void keep(int from, const FrameHeader& header, std::span<const std::byte> payload);
  bool has_early() const { return !early_.empty(); }
  /// Rank, epoch and name of the first opening.
  int first_rank() const { return early_.front().from; }
  const FrameHeader& first_header() const { return early_.front().header; }
  std::string first_name() const;

  std::string_view name() const { return name_; }
  std::span<const int> ranks() const { return ranks_; }
  std::uint64_t key() const { return key_; }
  std::uint32_t epoch() const { return epoch_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int member() const { return member_; }
  int rank_of(int member) const { return ranks_[member]; }
  int member_of(int rank) const;  // -1: none

  // Called by the member. They lock the mutex.
  Request start(const Signature& signature, const Buffers& buffers);
  Request start_message(bool is_send, TensorView data, int other, int tag);
  bool done(Request request);
  void wait(Request request);
  LinkCounts counts();
  void cancel(std::string_view reason);
  void close(bool abandoned);

  // Called with the lock held, on the engine's thread.
  enum class Failure : std::uint8_t { kNone, kCancelled, kDeadline, kError };
  void pump();
  void on_control(int from, const FrameHeader& header, std::span<const std::byte> payload);
  FramePort::Landing begin_part(int from, const FrameHeader& header, std::byte* staging, Flight*& flight);
  void end_part(const FrameHeader& header, std::byte* staging, Flight& flight);
  void on_sent(Flight& flight);
  void on_gone(int rank);
  void on_stopped();

  // Lock held, any thread. `tell`: inform the other members.
  bool failed() const { return failure_ != Failure::kNone; }
  void fail(Failure kind, std::string text, bool tell);

 private:
  enum class State : std::uint8_t { kUnopened, kOpen, kClosed };
  struct Early {
    int from;
    FrameHeader header;
    std::vector<std::byte> payload;
  };

  // Life cycle and failure.
  [[noreturn]] void throw_failure() const;
  bool is_there(int member) const { return ends_[member] == End::kOpen; }
  bool fail_if_gone(int member, std::string_view did_not, const std::string& what);
  void release(Flight& flight);
  void count_wait(Time begin, Time ready, Time moved);
  bool all_released() const;
  void post(int member, FrameKind kind, std::uint64_t number, std::uint32_t index,
            std::span<const std::byte> payload);
  void count(std::uint64_t bytes, std::uint64_t messages, std::uint64_t operations);
  std::string gone_text(int member) const;

  // Collectives.
  Operation& operation_at(std::uint64_t number);
  Operation& find_operation(Request request);
  std::string operation_text(const Operation& operation) const;
  void join(Operation& operation, int member, const Signature& signature);
  void check_counts(const Operation& operation, int member);
  void on_join(int member, std::uint64_t number, std::span<const std::byte> payload);
  void pump(Operation& operation);
  void check_finished(Operation& operation);
  void wait_collective(Lock& lock, Operation& operation);
  bool fail_if_somebody_left(const Operation& operation);
  std::string late_text(const Operation& operation) const;

  // Messages.
  Message& find_message(Request request);
  std::string message_text(const Message& message) const;
  void match(Message& send, std::uint64_t number, const Signature& expected);
  void take_grant(const Grant& grant);
  void pump(Message& message);
  void wait_message(Lock& lock, Message& message);
  void pass_to_self(Message& send, Message& receive);

  RingEngine& engine_;
  const std::uint64_t key_;
  State state_ = State::kUnopened;
  std::vector<Early> early_;
  std::string name_;
  std::vector<int> ranks_;
  int member_ = -1;
  Purpose purpose_ = Purpose::kParameter;
  double message_deadline_s_ = 0;  ///< for this end's waits for messages
  std::uint32_t epoch_ = 0;

  std::condition_variable changed_;
  std::vector<End> ends_;             // by member
  std::vector<std::uint64_t> joins_;  // by member: number of started operations
  LinkCounts counts_;
  std::uint64_t next_ = 0;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<std::unique_ptr<Message>> messages_;
  std::vector<std::byte> told_;  // description of a starting operation for the others
  std::vector<Grant> grants_;    // not matched by a send yet, in order of arrival
  std::uint64_t next_serial_ = 1;
  Failure failure_ = Failure::kNone;
  std::string failure_text_;
};

}  // namespace ring
TENON_ABI_END
