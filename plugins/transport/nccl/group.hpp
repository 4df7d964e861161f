// One member's end of a group: a communicator of NCCL with a stream of its own, the operations given to it in
// the order of their starts, and what becomes of them when something fails. NCCL never blocks a call here:
// each is polled until it is through (pump), by whoever starts, asks or waits.
#pragma once

#include "operation.hpp"
#include "session.hpp"

#include <tenon/sdk/traffic.hpp>
#include <tenon/transport.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::nccl_transport {

class Group {
 public:
  /// Does not wait for the others.
  static std::shared_ptr<Group> open(const std::shared_ptr<Session>& session, const GroupSpec& spec);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  std::uint32_t epoch() const { return epoch_; }
  const std::string& key() const { return key_; }  ///< equal at all members, in questions to boards
  int size() const { return static_cast<int>(ranks_.size()); }
  int member() const { return member_; }
  int rank_of(int member) const { return ranks_[static_cast<std::size_t>(member)]; }

  // Of the member's thread.
  Request start(const Signature& signature, TensorView data, TensorView receive = {},
                std::span<const std::int64_t> send_counts = {},
                std::span<const std::int64_t> receive_counts = {});
  bool done(Request request);
  void wait(Request request);
  LinkCounts counts() const;
  void cancel(std::string_view reason);
  void close(bool abandoned);

  // Of the session, which holds mutex().
  std::mutex& mutex() { return mutex_; }
  void pump();
  bool failed() const { return static_cast<bool>(failure_); }
  /// Notes the first failure; its communicators are the session's to end, now.
  void fail(const Failure& failure);
  Comm comm() const { return comm_; }
  Comm parent() const { return parent_.comm; }
  bool ready() const { return state_ == State::kReady; }
  void forget_comm();
  bool revoke() { return !std::exchange(revoked_, true); }  ///< true once: it is to be revoked now
  Parked give_comm();
  /// Of another member: "id", "can", "at NUMBER". From any thread, without mutex().
  std::string answer(std::string_view verb, std::string_view argument) const;

 private:
  enum class State : std::uint8_t {
    kSeeking,    ///< the first member has not told how to come together
    kDeciding,   ///< this is the first member, and asks the others whether the old communicator can be shrunk
    kShrinking,  ///< the old communicator is being shrunk
    kJoining,    ///< NCCL brings the members together
    kReady,
    kGone
  };
  struct Buffer {
    void* memory = nullptr;
    std::size_t bytes = 0;
    bool taken = false;
  };
  struct Words {
    std::mutex mutex;
    std::string id = "unknown";  ///< "id HEX", "shrink", or how the group failed
    std::string can = "no";      ///< be shrunk: "yes"
    std::string failure;
    std::uint64_t started = 0;  ///< collectives
    std::array<Signature, 64> recent;
  };

  Group(std::shared_ptr<Session> session, const GroupSpec& spec, int member);
  const Api& api() const { return session_->library().api(); }
  void check(int result, const char* call) const { session_->library().check(result, call, comm_); }
  // group_open.cpp
  void begin();
  void seek();
  void decide();
  void make_id();
  void join(const UniqueId& id);
  void shrink();
  void settle();
  // group_operations.cpp
  Operation& place();
  Operation* find(std::uint64_t id);
  void stage(Operation& operation);
  int take_buffer(std::int64_t bytes);
  void give_queued();
  void give(Operation& operation);
  int call(const Operation& operation, const char** name);
  int call_all_to_all(const Operation& operation);
  void give_messages();
  void after_call(int result, const char* name);
  void poll_call();
  void record_given();
  void look_at_stream();
  void drop(Operation& operation);
  // group_wait.cpp
  Failure look_around(const Operation& operation, bool at_deadline);
  std::string described(const Operation& operation) const;
  void drain(Operation& operation);
  void copy_back(Operation& operation);
  void add_counts(const LinkCounts& more);
  void release_memory();

  const std::shared_ptr<Session> session_;
  const std::string name_;
  const std::vector<int> ranks_;
  const Purpose purpose_;
  const std::uint32_t epoch_;
  const double deadline_s_;
  const int member_;
  std::string key_;

  mutable std::mutex mutex_;
  State state_ = State::kSeeking;
  Failure failure_;
  bool ended_ = false;  // the session has ended what failed
  bool revoked_ = false;
  Comm comm_ = nullptr, made_ = nullptr;
  Parked parent_;
  bool shrink_called_ = false;
  Time asked_at_{};
  bool busy_ = false;      // NCCL has not finished with the last call
  const char* call_ = "";  // that one
  bool flush_ = false;     // messages that were started shall go
  void* stream_ = nullptr;
  void* barrier_memory_ = nullptr;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> queue_, given_;
  std::vector<Buffer> buffers_;
  std::uint64_t last_id_ = 0, started_ = 0;  // requests; collectives
  std::size_t next_asked_ = 0;               // member, when not all are asked at a time
  mutable Words words_;                      // its lock comes after mutex_
  LinkCounts counts_;
  mutable std::mutex counts_mutex_;
};

}  // namespace tenon::nccl_transport
