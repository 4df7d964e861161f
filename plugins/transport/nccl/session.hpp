// What all groups of one process share: the library, its device, where to ask the others, who has failed, and
// the one place where communicators of NCCL end, all of them inside one group call.
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

/// How an operation ends that does not end well.
struct Failure {
  enum class Kind : std::uint8_t { kNone, kError, kCancelled, kDeadline };
  Kind kind = Kind::kNone;
  std::string text = {};
  bool all = true;  ///< every group of this rank ends with it
  explicit operator bool() const { return kind != Kind::kNone; }
  [[noreturn]] void raise() const;
  /// For others who ask: "cancelled TEXT" or "failed TEXT", in one line.
  std::string words() const;
};

/// A communicator of NCCL whose group was closed, or has failed while it may still be shrunk.
struct Parked {
  std::string name = {};
  std::uint32_t epoch = 0;
  std::vector<int> ranks = {};
  Comm comm = nullptr;
  bool finalizes = false;  ///< else it waits to be shrunk
};

class Session {
 public:
  struct Settings {
    std::string library, interface;
    bool shrink = false;
  };
  /// Collective: opens the library and meets the others.
  Session(const WorldSpec& world, const Settings& settings);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const int& rank() const { return rank_; }
  int ranks() const { return ranks_; }
  double deadline_s() const { return deadline_s_; }
  const Library& library() const { return library_; }
  /// Failed communicators are kept until a newer epoch shrinks them.
  bool shrinks() const { return shrink_; }

  /// Collective; see DeviceTransport.
  void attach(Device& device);
  Device* device() const { return device_; }
  DeviceStreams& streams() const { return *streams_; }
  DeviceEvents& events() const { return *events_; }

  /// A question to another rank's board; may take `seconds`.
  Answer ask(int rank, const std::string& question, double seconds);

  /// How often such a group was opened before.
  std::uint64_t opening(const std::string& what);
  /// Groups of older epochs end; one of an older epoch is refused.
  void enter(const std::shared_ptr<Group>& group);
  void leave(const Group& group, const std::string& last_words);
  /// Others whose lock is free go on a little.
  void help_others(const Group* but);
  /// Every group of `epoch` and older ends, all their communicators together.
  void break_all(const Failure& failure, std::uint32_t epoch);
  void break_one(const Group& group, const Failure& failure);
  /// For good, from any thread.
  void cancel(std::string_view reason);
  /// The transport is gone: what is left ends, in order where the others end as well.
  void end();

  void park(Parked parked);
  /// The communicator of an older epoch from which this group could be shrunk; comm is null where none is.
  Parked take_parent(const std::string& name, std::uint32_t epoch, const std::vector<int>& ranks);
  /// Ends one communicator that nobody uses.
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

  mutable std::mutex mutex_;  // before that of a group
  Groups groups_;
  std::map<std::string, std::uint64_t> openings_;
  std::map<std::string, std::string> last_words_;  // of closed groups, by key
  std::vector<Parked> parked_;
  std::uint32_t epoch_ = 0, broken_epoch_ = 0;
  Failure broken_, cancelled_;

  mutable std::mutex counts_mutex_;
  std::array<LinkCounts, kPurposes> counts_{};

  std::unique_ptr<Board> board_;  // last: it asks all of the above
};

void add(LinkCounts& to, const LinkCounts& more);

}  // namespace tenon::nccl_transport
