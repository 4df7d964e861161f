// Sums by the library's own MPI_Iallreduce, with its own order of additions (fast_nondeterministic). The
// members first agree over the ring on the sum, so that an error names a late rank or a mismatch, and MPI
// holds a buffer only when all members have joined. Only the port's thread calls MPI.
#pragma once

#include "session.hpp"

#include <tenon/transport.hpp>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::mpi_transport {

/// Smaller sums use the ring, which is then as fast.
inline constexpr std::int64_t kLibraryBytes = 64 * 1024;
/// Larger sums are passed to the library in pieces, two at a time, so that the data stay in the cache.
inline constexpr std::int64_t kPieceBytes = 1024 * 1024;

/// Returns whether the library can reduce this; the same on all ranks for the same arguments.
bool library_reduces(const TensorView& data, ReduceOp op);

class LibrarySums {
 public:
  /// Largest and, negated, smallest of the members' arguments: elements, and type and operation; marks of the
  /// first and the last member. It is one cache line, so one chunk of the ring, whose last adder is member 0:
  /// both marks are set only when the result is complete.
  using Agreement = std::array<std::int64_t, 8>;
  static constexpr std::size_t kFirstMark = 4, kLastMark = 5;
  enum class State : std::uint8_t { kAgreeing, kSumming, kDone, kRefused };
  struct Sum {
    std::uint64_t id = 0;
    Communicator* ring = nullptr;
    int channel = 0;
    TensorView data;
    ReduceOp op = ReduceOp::kSum;
    Agreement agreement{};
    Request agreed;
    bool waited_for = false;     // by the caller; only that thread may then query the ring
    bool all_are_there = false;  // observed by the caller
    std::int64_t begun = 0;      // elements passed to the library
    std::array<MPI_Request, 2> pieces{MPI_REQUEST_NULL, MPI_REQUEST_NULL};  // pieces in progress
    State state = State::kAgreeing;
  };

  explicit LibrarySums(MpiRendezvous& session) : session_(session) {}

  /// Collective: creates library communicators for this many concurrent groups.
  void connect(int channels, double deadline_s);
  /// Returns a free channel, or -1. Called by the first member of a group.
  int take_channel();
  void return_channel(int channel);

  /// Sets the function that is called when progress() has something to begin.
  void wake_by(std::function<void()> wake) { wake_ = std::move(wake); }

  /// Begins a sum of all ranks of the world. `ring` is the group's and must live until finish().
  std::uint64_t start(Communicator& ring, int channel, TensorView data, ReduceOp op);
  bool done(std::uint64_t id);
  /// Throws the ring's error for late ranks, or Error for members with other arguments.
  void finish(std::uint64_t id);

  /// Abandons the sums begun on `ring`, which is about to be destroyed. The caller keeps the result until the
  /// ring, which still works on it, is gone.
  std::vector<std::unique_ptr<Sum>> abandon(const Communicator& ring);
  /// Ends every present and later wait with CancelledError(reason); MPI is not called any more.
  void cancel(std::string_view reason);
  /// Returns true if MPI may hold memory returned to its owner, so that no call of MPI may follow.
  bool halted();

  /// Called on the port's thread; returns true while the library works on something.
  bool progress();

 private:
  Sum& find(std::uint64_t id);
  void forget(std::uint64_t id);
  bool agreed(Sum& sum) const;
  bool advance();
  void begin(Sum& sum);
  /// Checks the pieces in progress and begins more.
  void advance_sum(Sum& sum);

  MpiRendezvous& session_;
  double deadline_s_ = 60;
  std::function<void()> wake_;
  std::vector<MPI_Comm> channels_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<int> free_;
  std::deque<std::unique_ptr<Sum>> sums_;  // in starting order
  std::uint64_t last_ = 0;
  bool halted_ = false;
  std::string cancelled_;
};

// A group of all ranks that passes large sums to the library and everything else to the ring.

/// Counts of the library's sums by the ring's closed forms, since the library does not report them.
class LibraryCounts {
 public:
  void add(Purpose purpose, const LinkCounts& more);
  LinkCounts of(Purpose purpose) const;

 private:
  mutable std::mutex mutex_;
  std::array<LinkCounts, kPurposes> counts_{};
};
void add(LinkCounts& to, const LinkCounts& more);

class LibraryCommunicator final : public CommunicatorDecorator {
 public:
  LibraryCommunicator(std::unique_ptr<Communicator> ring, Purpose purpose, LibrarySums& sums,
                      LibraryCounts& total)
      : CommunicatorDecorator(std::move(ring)), purpose_(purpose), sums_(sums), total_(total) {}
  ~LibraryCommunicator() override;

  /// The first large sum waits once for all members: they agree on a communicator of the library.
  Request start_all_reduce(TensorView data, ReduceOp op) override;
  bool done(Request request) override;
  void wait(Request request) override;
  LinkCounts counts() const override;
  void cancel(std::string_view reason) override {
    inner_->cancel(reason);
    sums_.cancel(reason);
  }

 private:
  void count(const LinkCounts& more);

  static constexpr int kUndecided = -2, kNone = -1;

  const Purpose purpose_;
  LibrarySums& sums_;
  LibraryCounts& total_;
  LinkCounts own_;
  int channel_ = kUndecided;
};

}  // namespace tenon::mpi_transport
