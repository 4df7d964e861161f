// Callbacks of a run's first failure, e.g. to cancel communicators. Each runs once, and at once when it is
// added after the failure.
#pragma once

#include <tenon/abi.hpp>

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

/// Thread-safe. Callbacks must not add or forget callbacks.
class FailureCallbacks {
 public:
  using Callback = std::function<void(const std::string& failure)>;

  /// `failure` returns the failure's text, "" while there is none. Returns an id for forget().
  template <typename Failure>
  int add(Callback callback, Failure&& failure) {
    const std::lock_guard lock(mutex_);
    Entry& added = entries_.emplace_back(Entry{next_++, false, std::move(callback)});
    if (const std::string text = failure(); !text.empty()) call_once(added, text);
    return added.id;
  }
  /// After this returns the callback does not run any more.
  void forget(int id) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) { return entry.id == id; });
  }
  void call(const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) call_once(entry, text);
  }

 private:
  struct Entry {
    int id = 0;
    bool called = false;
    Callback call;
  };
  static void call_once(Entry& entry, const std::string& text) {
    if (std::exchange(entry.called, true)) return;
    try {
      entry.call(text);
    } catch (const std::exception&) {
      // The run reports its first failure; a second one met while ending it must not keep the rest from
      // ending.
    }
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
  int next_ = 0;
};

TENON_ABI_END
