// Sums by the library's own MPI_Iallreduce, whose order of additions is its own (fast_nondeterministic). The
// members first agree over the ring on what they sum, so that a late rank or a mismatch has its name and MPI
// holds a buffer only when all others are there. Calls of MPI come from the port's thread alone.
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

/// Smaller ones go round the ring, which then is as fast.
inline constexpr std::int64_t kLibraryBytes = 64 * 1024;
/// Larger ones are given to the library in pieces, two at a time: what it sums then stays in the cache.
inline constexpr std::int64_t kPieceBytes = 1024 * 1024;

/// True if the library can reduce this; the same on all ranks that pass the same.
bool library_reduces(const TensorView& data, ReduceOp op);

class LibrarySums {
 public:
  /// Largest and, negated, smallest of what the members pass: elements, and type and operation; marks of the
  /// first and the last member. One cache line, so one chunk of the ring, whose last adder is member 0: both
  /// marks are there only with the whole result.
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
    bool waited_for = false;     // by the caller, who alone may ask the ring then
    bool all_are_there = false;  // the caller saw it
    std::int64_t begun = 0;      // elements given to the library
    std::array<MPI_Request, 2> pieces{MPI_REQUEST_NULL, MPI_REQUEST_NULL};  // that it works on
    State state = State::kAgreeing;
  };

  explicit LibrarySums(MpiRendezvous& session) : session_(session) {}

  /// Makes communicators of the library for so many groups at a time. Collective.
  void connect(int channels, double deadline_s);
  /// A free one, -1 for none. For the first member of a group.
  int take_channel();
  void return_channel(int channel);

  /// Called when progress() has something to begin.
  void wake_by(std::function<void()> wake) { wake_ = std::move(wake); }

  /// Begins a sum of all ranks of the world. `ring` is the group's, which stays until finish().
  std::uint64_t start(Communicator& ring, int channel, TensorView data, ReduceOp op);
  bool done(std::uint64_t id);
  /// Throws what the ring says of late ranks, or Error for members that passed something else.
  void finish(std::uint64_t id);

  /// `ring` goes: what was begun on it is not waited for any more. The caller keeps what comes back until the
  /// ring is gone, which still works on it.
  std::vector<std::unique_ptr<Sum>> abandon(const Communicator& ring);
  /// Ends every wait, now and later, with CancelledError(reason); MPI is not called any more.
  void cancel(std::string_view reason);
  /// MPI may hold memory that its owner has back, so no call of it may follow.
  bool halted();

  /// The port's thread: true while the library works on something.
  bool progress();

 private:
  Sum& find(std::uint64_t id);
  void forget(std::uint64_t id);
  bool agreed(Sum& sum) const;
  bool advance();
  void begin(Sum& sum);
  /// Looks after the pieces under way and begins more.
  void go_on(Sum& sum);

  MpiRendezvous& session_;
  double deadline_s_ = 60;
  std::function<void()> wake_;
  std::vector<MPI_Comm> channels_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<int> free_;
  std::deque<std::unique_ptr<Sum>> sums_;  // in the order of their starts
  std::uint64_t last_ = 0;
  bool halted_ = false;
  std::string cancelled_;
};

}  // namespace tenon::mpi_transport
