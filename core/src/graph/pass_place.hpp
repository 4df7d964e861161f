// The node that is being computed, and its pass: written by the computing thread with two relaxed stores a
// node, read by a thread that watches for kernels that do not return (loop/pass_watch.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::graph {

enum class PassKind : std::uint8_t { kForward, kBackward, kEvaluation, kUpdate };

/// One thread at a time enters and leaves.
class PassPlace {
 public:
  /// `what` ("layer.conv2d, node 'conv1'") lives until the place has left the set of places.
  void enter(const std::string& what, PassKind kind) {
    kind_.store(kind, std::memory_order_relaxed);
    entered_.store(entered_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    what_.store(&what, std::memory_order_release);
  }
  void leave() { what_.store(nullptr, std::memory_order_release); }

  /// Null: nothing is being computed.
  const std::string* what() const { return what_.load(std::memory_order_acquire); }
  PassKind kind() const { return kind_.load(std::memory_order_relaxed); }
  /// Grows with every entry.
  std::uint64_t entered() const { return entered_.load(std::memory_order_relaxed); }

 private:
  std::atomic<const std::string*> what_{nullptr};
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<PassKind> kind_{PassKind::kForward};
};

/// A pass for a scope.
class PassScope {
 public:
  PassScope(PassPlace& place, const std::string& what, PassKind kind) : place_(place) {
    place.enter(what, kind);
  }
  ~PassScope() { place_.leave(); }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  PassPlace& place_;
};

/// The places of one rank. Executors find it by host.query(kId), which is null without a watch.
class PassPlaces {
 public:
  static constexpr const char* kId = "tenon.core.pass_places/1";

  void add(const PassPlace& place) {
    const std::lock_guard lock(mutex_);
    watched_.push_back({&place, 0, 0});
  }
  /// The watch does not read the place after this returns.
  void remove(const PassPlace& place) {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [&](const Watched& some) { return some.place == &place; });
  }

  /// Around a call that waits for other ranks, which has a deadline of its own.
  void begin_wait() { waiting_.fetch_add(1, std::memory_order_relaxed); }
  void end_wait() {
    waits_.fetch_add(1, std::memory_order_relaxed);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// `seconds` have passed since the last look. Calls late(place, seconds) for the place that has computed
  /// one node for the longest time, if there is one.
  template <typename Late>
  void look(double seconds, Late&& late) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t waits = waits_.load(std::memory_order_relaxed);
    const bool waited = waiting_.load(std::memory_order_relaxed) > 0 || waits != seen_waits_;
    seen_waits_ = waits;
    const Watched* longest = nullptr;
    for (Watched& some : watched_) {
      const std::uint64_t entered = some.place->entered();
      const bool moved = waited || entered != some.seen || some.place->what() == nullptr;
      some.seen = entered;
      some.seconds = moved ? 0 : some.seconds + seconds;
      if (!moved && (longest == nullptr || some.seconds > longest->seconds)) longest = &some;
    }
    if (longest == nullptr) return;
    const std::string* what = longest->place->what();
    if (what != nullptr) late(*what, longest->place->kind(), longest->seconds);
  }

 private:
  struct Watched {
    const PassPlace* place;
    std::uint64_t seen;
    double seconds;  ///< that it has not moved for
  };
  std::mutex mutex_;
  std::vector<Watched> watched_;
  std::atomic<int> waiting_{0};
  std::atomic<std::uint64_t> waits_{0};
  std::uint64_t seen_waits_ = 0;
};

/// A place among those of its rank, for the life of the object; unregistered where `places` is null.
class KnownPlace : public PassPlace {
 public:
  explicit KnownPlace(void* places) : places_(static_cast<PassPlaces*>(places)) {
    if (places_ != nullptr) places_->add(*this);
  }
  ~KnownPlace() {
    if (places_ != nullptr) places_->remove(*this);
  }
  KnownPlace(const KnownPlace&) = delete;
  KnownPlace& operator=(const KnownPlace&) = delete;

 private:
  PassPlaces* places_;
};

/// Marks a scope as a wait for other ranks; does nothing where `places` is null.
class PassWait {
 public:
  explicit PassWait(PassPlaces* places) : places_(places) {
    if (places_ != nullptr) places_->begin_wait();
  }
  ~PassWait() {
    if (places_ != nullptr) places_->end_wait();
  }
  PassWait(const PassWait&) = delete;
  PassWait& operator=(const PassWait&) = delete;

 private:
  PassPlaces* places_;
};

}  // namespace tenon::graph
