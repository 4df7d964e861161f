// One member's end of a group: an NCCL communicator with its own stream, the operations in starting order,
// and their handling after a failure. NCCL never blocks a call here: the thread that starts, queries or waits
// polls each call until it is complete (pump).
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
  /// Does not wait for the other members.
  static std::shared_ptr<Group> open(const std::shared_ptr<Session>& session, const GroupSpec& spec);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  std::uint32_t epoch() const { return epoch_; }
  const std::string& key() const { return key_; }  ///< equal at all members; used in questions to boards
  int size() const { return static_cast<int>(ranks_.size()); }
  int member() const { return member_; }
  int rank_of(int member) const { return ranks_[member]; }

  // Called on the member's thread.
  Request start(const Signature& signature, TensorView data, TensorView receive = {},
                std::span<const std::int64_t> send_counts = {},
                std::span<const std::int64_t> receive_counts = {});
  bool done(Request request);
  void wait(Request request);
  LinkCounts counts() const;
  void cancel(std::string_view reason);
  void close(bool abandoned);

  // Called by the session, which holds mutex().
  std::mutex& mutex() { return mutex_; }
  void pump();
  bool failed() const { return static_cast<bool>(failure_); }
  /// Records the first failure; the session must end its communicators now.
  void fail(const Failure& failure);
  Comm comm() const { return comm_; }
  Comm parent() const { return parent_.comm; }
  bool ready() const { return state_ == State::kReady; }
  void forget_comm();
  bool revoke() { return !std::exchange(revoked_, true); }  ///< true once: revoke it now
  Parked give_comm();
  /// Answers another member's "id", "can", "at NUMBER". From any thread, without mutex().
  std::string answer(std::string_view verb, std::string_view argument) const;

 private:
  enum class State : std::uint8_t {
    kSeeking,    ///< the first member has not announced how to connect
    kDeciding,   ///< this is the first member, and asks the others whether the old communicator can be shrunk
    kShrinking,  ///< the old communicator is being shrunk
    kJoining,    ///< NCCL connects the members
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
    std::string can = "no";      ///< whether it can be shrunk: "yes"
    std::string failure;
    std::uint64_t started = 0;  ///< collectives
    std::array<Signature, 64> recent;
  };

  Group(std::shared_ptr<Session> session, const GroupSpec& spec, int member);
  const Api& api() const { return session_->library().api(); }
  void check(int result, const char* call) const { session_->library().check(result, call, comm_); }
  // Connection.
  void begin();
  void seek();
  void decide();
  void make_id();
  void join(const UniqueId& id);
  void shrink();
  void settle();
  // Operations.
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
  void poll_stream();
  void drop(Operation& operation);
  // Waiting and ending.
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
  bool ended_ = false;  // the session has ended the failed communicators
  bool revoked_ = false;
  Comm comm_ = nullptr, made_ = nullptr;
  Parked parent_;
  bool shrink_called_ = false;
  Time asked_at_{};
  bool busy_ = false;      // the last call of NCCL is still in progress
  const char* call_ = "";  // name of that call
  bool flush_ = false;     // started messages must be issued
  void* stream_ = nullptr;
  void* barrier_memory_ = nullptr;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> queue_, given_;
  std::vector<Buffer> buffers_;
  std::uint64_t last_id_ = 0, started_ = 0;  // requests; collectives
  std::size_t next_asked_ = 0;               // next member to ask, if not all are asked at once
  mutable Words words_;                      // its lock comes after mutex_
  LinkCounts counts_;
  mutable std::mutex counts_mutex_;
};

}  // namespace tenon::nccl_transport
