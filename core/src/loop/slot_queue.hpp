// The slots of a rank, handed to its workers one by one. A worker that finds something due at a slot boundary
// waits until the others are idle, and acts for all.
#pragma once

#include "loop/service.hpp"

#include <tenon/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace tenon::train {

/// Progress of a rank in its run: read and set back by the code that answers failures. With several workers
/// under the queue's lock.
struct Progress {
  std::int64_t next_slot = 0;
  std::int64_t first_slot = 0;      ///< of this segment
  std::int64_t boundary_done = -1;  ///< slot whose boundary is over
  bool boundary_again = false;      ///< what is due before first_slot was interrupted

  void begin_at(std::int64_t slot) { next_slot = first_slot = slot; }
};

class SlotQueue {
 public:
  struct Ticket {
    std::int64_t slot = 0;
    std::int64_t position = 0;  ///< of its first sample
    double rate_scale = 1;      ///< of the learning rate
  };
  /// The rank that owns the slots.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual Boundary due(std::int64_t slot) = 0;
    /// Called by one worker at a time, while the others are idle. The lock is not held.
    virtual void act(Boundary& due) = 0;
    /// No slot comes after this boundary.
    virtual bool ends(const Boundary& due) const = 0;
    /// A worker is about to take `slot`.
    virtual Ticket take(std::int64_t slot) = 0;
  };
  /// The time in which a worker is in a slot.
  class Inside {
   public:
    explicit Inside(SlotQueue& queue) : queue_(queue) {}
    ~Inside() { queue_.leave(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    SlotQueue& queue_;
  };

  SlotQueue(Clock& clock, double deadline_s) : clock_(clock), deadline_s_(deadline_s) {}

  /// The next slot, after what is due before it; nothing after the last. The caller is then Inside it.
  std::optional<Ticket> claim(Owner& owner);
  /// Guards what workers share: counts and progress.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// A worker's thread is about to end.
  void end_worker();
  /// Waiting on the clock, not in join(), gives the others their turns, and no actor a turn more than they
  /// need.
  void await_ended(std::size_t workers);

  Progress& progress() { return progress_; }
  const Progress& progress() const { return progress_; }

 private:
  void leave();
  void notify() { quiet_.notify(clock_, clock_.now()); }
  void pass_boundary(std::unique_lock<std::mutex>& lock, Owner& owner);

  Clock& clock_;
  double deadline_s_;
  std::mutex mutex_;  ///< guards what follows
  ClockEvent quiet_;
  Progress progress_;
  int in_flight_ = 0;      ///< slots that workers are in
  std::size_t ended_ = 0;  ///< workers
  bool acting_ = false;    ///< some worker is at a slot boundary
  bool done_ = false;
};

}  // namespace tenon::train
