// State shared by all groups of one process: the library, its device, the other ranks' boards, failures, and
// the one place where NCCL communicators end, all of them inside one group call.
#pragma once

#include "board.hpp"
#include "library.hpp"

#include <tenon/device.hpp>
#include <tenon/transport.hpp>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::nccl_transport {

class Group;

/// Reason for the unsuccessful end of an operation.
struct Failure {
  enum class Kind : std::uint8_t { kNone, kError, kCancelled, kDeadline };
  Kind kind = Kind::kNone;
  std::string text = {};
  bool all = true;  ///< it ends every group of this rank
  explicit operator bool() const { return kind != Kind::kNone; }
  [[noreturn]] void raise() const;
  /// Answer for other ranks: "cancelled TEXT" or "failed TEXT", in one line.
  std::string words() const;
};

/// An NCCL communicator whose group was closed, or has failed while the communicator can still be shrunk.
struct Parked {
  std::string name = {};
  std::uint32_t epoch = 0;
  std::vector<int> ranks = {};
  Comm comm = nullptr;
  bool finalizes = false;  ///< otherwise it waits to be shrunk
};

class Session {
 public:
  struct Settings {
    std::string library, interface;
    bool shrink = false;
  };
  /// Collective: opens the library and connects to the other ranks.
  Session(const WorldSpec& world, const Settings& settings);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const int& rank() const { return rank_; }
  int ranks() const { return ranks_; }
  double deadline_s() const { return deadline_s_; }
  const Library& library() const { return library_; }
  /// Returns whether failed communicators are kept until a newer epoch shrinks them.
  bool shrinks() const { return shrink_; }

  /// Collective; see DeviceTransport.
  void attach(Device& device);
  Device* device() const { return device_; }
  DeviceStreams& streams() const { return *streams_; }
  DeviceEvents& events() const { return *events_; }

  /// Asks another rank's board a question; may take `seconds`.
  Answer ask(int rank, const std::string& question, double seconds);

  /// Returns how often such a group was opened before.
  std::uint64_t opening(const std::string& what);
  /// Ends groups of older epochs; rejects a group of an older epoch.
  void enter(const std::shared_ptr<Group>& group);
  void leave(const Group& group, const std::string& last_words);
  /// Lets other groups whose lock is free progress a little.
  void help_others(const Group* but);
  /// Ends every group of `epoch` and older, all their communicators together.
  void break_all(const Failure& failure, std::uint32_t epoch);
  void break_one(const Group& group, const Failure& failure);
  /// Permanent, from any thread.
  void cancel(std::string_view reason);
  /// Called when the transport is destroyed: ends the remaining groups, in order if the other ranks end as
  /// well.
  void end();

  void park(Parked parked);
  /// Returns the communicator of an older epoch from which this group could be shrunk; comm is null if there
  /// is none.
  Parked take_parent(const std::string& name, std::uint32_t epoch, const std::vector<int>& ranks);
  /// Ends one unused communicator.
  void abort(Comm comm);

  void count(Purpose purpose, const LinkCounts& more);
  LinkCounts counts(Purpose purpose) const;

 private:
  using Groups = std::vector<std::shared_ptr<Group>>;
  std::string answer(std::string_view question);
  void end_comms(const Groups& groups, const Failure& failure, bool for_good);
  void tend_parked();

  const Library library_;
  const int rank_, ranks_;
  const double deadline_s_;
  const bool shrink_;
  Rendezvous& rendezvous_;
  std::vector<std::string> tokens_;
  std::vector<BoardPlace> places_;
  std::mutex places_mutex_;
  Device* device_ = nullptr;
  DeviceStreams* streams_ = nullptr;
  DeviceEvents* events_ = nullptr;

  mutable std::mutex mutex_;  // locked before that of a group
  Groups groups_;
  std::map<std::string, std::uint64_t> openings_;
  std::map<std::string, std::string> last_words_;  // of closed groups, by key
  std::vector<Parked> parked_;
  std::uint32_t epoch_ = 0, broken_epoch_ = 0;
  Failure broken_, cancelled_;

  mutable std::mutex counts_mutex_;
  std::array<LinkCounts, kPurposes> counts_{};

  std::unique_ptr<Board> board_;  // last member: its thread uses all of the above
};

void add(LinkCounts& to, const LinkCounts& more);

}  // namespace tenon::nccl_transport
