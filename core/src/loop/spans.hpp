// Keeps a rank's spans until the end of the slot: any thread of the rank adds, its training thread takes them
// out and shows them to the observers. While no observer wants spans, adding costs one relaxed load and no
// clock. Two buffers change places at each slot, so that a steady run allocates nothing.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/observer.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

class SpanRecorder final : public SpanSink {
 public:
  explicit SpanRecorder(const Clock& clock) : clock_(clock) {}

  void want(bool wanted);
  bool wanted() const noexcept override { return wanted_.load(std::memory_order_relaxed); }
  double now() const override { return clock_.now(); }
  void add(const Span& span) override;
  /// A text that lives as long as this.
  std::string_view keep(std::string text);
  /// Everything added since the last call, in the order of begins; valid until the next call.
  std::span<const Span> take();

 private:
  const Clock& clock_;
  std::atomic<bool> wanted_{false};
  std::mutex mutex_;
  std::vector<Span> waiting_, taken_;
  std::deque<std::string> texts_;
};

/// Times a scope. A null recorder records nothing.
class SpanScope {
 public:
  SpanScope(SpanRecorder* recorder, std::string_view track, std::string_view name)
      : recorder_(recorder != nullptr && recorder->wanted() ? recorder : nullptr),
        track_(track),
        name_(name),
        begin_s_(recorder_ != nullptr ? recorder_->now() : 0) {}
  ~SpanScope() {
    if (recorder_ != nullptr) recorder_->add({track_, name_, begin_s_, recorder_->now()});
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  SpanRecorder* recorder_;
  std::string_view track_, name_;
  double begin_s_;
};

inline void SpanRecorder::want(bool wanted) {
  if (wanted) {
    constexpr std::size_t kUsual = 4096;  // spans of a slot and what precedes it; more make the buffer grow
    const std::lock_guard lock(mutex_);
    waiting_.reserve(kUsual);
    taken_.reserve(kUsual);
  }
  wanted_.store(wanted, std::memory_order_relaxed);
}

inline void SpanRecorder::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(span);
}

inline std::string_view SpanRecorder::keep(std::string text) {
  const std::lock_guard lock(mutex_);
  return texts_.emplace_back(std::move(text));
}

inline std::span<const Span> SpanRecorder::take() {
  {
    const std::lock_guard lock(mutex_);
    taken_.clear();
    waiting_.swap(taken_);
  }
  std::sort(taken_.begin(), taken_.end(), [](const Span& a, const Span& b) { return a.begin_s < b.begin_s; });
  return taken_;
}

}  // namespace tenon::train
