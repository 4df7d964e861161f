// The state that the members of one communicator share, and everything that makes them wait for each other:
// collectives matched by number, messages matched by (from, to, tag), failure, cancellation, closing.
//
// There is no background thread: once all have joined, waiting members run the units of the operation, and
// the fixed order of every sum makes the result independent of the member that runs them. Under a link model
// an operation also lasts as long as the model states.
#pragma once

#include "operation.hpp"
#include "world.hpp"

#include <tenon/clock.hpp>
#include <tenon/tensor.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::thread_transport {

/// One end of a point-to-point transfer, a send or a receive, from its start to the end of its wait.
struct Message {
  bool open = false;
  bool is_send = false;
  int from = 0;  // members of the group
  int to = 0;
  int tag = 0;
  std::uint64_t serial = 0;  // orders messages of one (from, to, tag)
  TensorView data;
  Message* peer = nullptr;  // the matching end, from the match until the copy is done
  bool copying = false;     // set on both ends
  bool copied = false;
  bool waiting = false;
  double wait_begin = 0;
  double leaves = 0;   // send: when the last byte is sent, seconds of the run's clock
  double arrives = 0;  // send: earliest arrival
  double matched = 0;  // when both ends had been started
  double link_s = 0;   // link time of this end by the model
  double end = 0;      // earliest end of the wait; known once matched
  ClockEvent changed;

  int self() const { return is_send ? from : to; }
  int other() const { return is_send ? to : from; }
};

/// Thread-safe; each member calls from one thread at a time. Members are indices into `ranks`.
class Group {
 public:
  Group(std::shared_ptr<World> world, const GroupSpec& spec);

  std::string_view name() const { return name_; }
  std::span<const int> ranks() const { return ranks_; }
  Purpose purpose() const { return purpose_; }
  std::uint32_t epoch() const { return epoch_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  enum class End : std::uint8_t { kNeverOpened, kOpen, kClosed, kAbandoned };
  End end_of(int member) const;
  bool all_closed() const;
  /// deadline_s: for its waits for messages, 0 = the world's.
  void open_end(int member, double deadline_s);
  /// Ends the member's part; its buffers are free on return. Members that need it get an error:
  /// CancelledError if it is `abandoned` because of an exception, which is the one to report, otherwise
  /// Error(kRun).
  void close_end(int member, bool abandoned);

  Request start(int member, const Signature& signature, const Buffers& buffers);
  Request start_message(int member, bool is_send, TensorView data, int other, int tag);
  bool done(int member, Request request);
  void wait(int member, Request request);
  LinkCounts counts(int member) const;

  /// Ends all operations with CancelledError(reason).
  void cancel(std::string_view reason);
  /// Ends all operations with Error(kRun): a newer epoch has begun.
  void retire(std::string_view reason);

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Failure : std::uint8_t { kNone, kCancelled, kDeadline, kError };

  // Life cycle and failure.
  bool failed() const { return failure_ != Failure::kNone; }
  [[noreturn]] void throw_failure() const;
  void fail(Failure kind, std::string text);
  // Fails the group, and returns true, if `member`, whose part in `what` is awaited, is gone.
  bool fail_if_gone(int member, std::string_view what);
  void count_started(int member, const Traffic& traffic);
  double now() const { return world_->clock().now(); }
  double deadline_s() const { return world_->spec().deadline_s; }
  double deadline_s(int member) const { return deadlines_[member]; }
  int rank_of(int member) const { return ranks_[member]; }

  // Collectives.
  Operation& find_operation(int member, Request request);
  void check_agreement(const Operation& operation, int member, const Signature& signature);
  void check_virtual_deadline(const Operation& operation, int member);
  void seal(Operation& operation);
  void wait_for_members(Lock& lock, Operation& operation, int member);
  void compute(Lock& lock, Operation& operation, int member);
  bool run_one_unit(Lock& lock, Operation& operation, int member);
  void wait_collective(Lock& lock, Operation& operation, int member);
  void count_wait(int member, double begin, double ready_at, double link_s, double link_end);
  void finish_part(Operation& operation, int member);
  std::string late_text(const Operation& operation, const std::string& why) const;
  std::vector<int> missing(const Operation& operation) const;

  // Messages.
  Message& find_message(int member, Request request);
  void match(Message& send, Message& receive);
  void wait_for_match(Lock& lock, Message& message);
  void copy(Lock& lock, Message& message);
  void wait_message(Lock& lock, Message& message);
  std::string message_text(const Message& message) const;

  // Waits for the link model, unless the group fails first.
  void wait_for_link(Lock& lock, ClockEvent& changed, double end);

  const std::shared_ptr<World> world_;
  const std::string name_;
  const std::vector<int> ranks_;
  const Purpose purpose_;
  const std::uint32_t epoch_;
  const std::uint64_t stream_;  // of link jitter

  mutable std::mutex mutex_;
  std::vector<End> ends_;
  std::vector<double> deadlines_;     // by member: for its waits for messages
  std::vector<LinkCounts> counts_;    // by member
  std::vector<std::uint64_t> next_;   // by member: number of its next collective
  std::vector<std::uint64_t> sends_;  // by member
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<std::unique_ptr<Message>> messages_;
  std::uint64_t next_serial_ = 1;
  double last_end_ = 0;  // collectives of one communicator are consecutive on the link
  Failure failure_ = Failure::kNone;
  std::string failure_text_;
};

}  // namespace tenon::thread_transport
