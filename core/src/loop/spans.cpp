// Two buffers change places at each slot, so that a steady run allocates nothing.
#include "loop/spans.hpp"

#include <algorithm>
#include <utility>

namespace tenon::train {
namespace {

constexpr std::size_t kUsual = 4096;  ///< spans of a slot and what precedes it; more make the buffer grow

}  // namespace

void SpanRecorder::want(bool wanted) {
  if (wanted) {
    const std::lock_guard lock(mutex_);
    waiting_.reserve(kUsual);
    taken_.reserve(kUsual);
  }
  wanted_.store(wanted, std::memory_order_relaxed);
}

void SpanRecorder::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(span);
}

std::string_view SpanRecorder::keep(std::string text) {
  const std::lock_guard lock(mutex_);
  return texts_.emplace_back(std::move(text));
}

std::span<const Span> SpanRecorder::take() {
  {
    const std::lock_guard lock(mutex_);
    taken_.clear();
    waiting_.swap(taken_);
  }
  std::sort(taken_.begin(), taken_.end(), [](const Span& a, const Span& b) { return a.begin_s < b.begin_s; });
  return taken_;
}

}  // namespace tenon::train
