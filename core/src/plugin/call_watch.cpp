// Threads are few, so a list under a lock holds them; a thread takes the lock at its first call and at its
// end.
#include "plugin/call_watch.hpp"

#include <mutex>

namespace tenon {
namespace {

std::mutex list_mutex;
ThreadCalls* threads = nullptr;

/// Takes the calls of a thread off the list when the thread ends.
struct KnownThread {
  KnownThread() noexcept {}
  ~KnownThread() {
    ThreadCalls& mine = calls_of_thread;
    const std::lock_guard lock(list_mutex);
    for (ThreadCalls** at = &threads; *at != nullptr; at = &(*at)->next) {
      if (*at != &mine) continue;
      *at = mine.next;
      break;
    }
  }
};

}  // namespace

void make_calls_known(ThreadCalls& calls) {
  calls.known = true;  // first, and for good: calls that come after the end of this object are not watched
  static thread_local const KnownThread until_its_end;
  const std::lock_guard lock(list_mutex);
  calls.next = threads;
  threads = &calls;
}

namespace plugin {

// Reads what a thread is writing, and finds by `changes` that it did.
__attribute__((no_sanitize("thread"))) std::optional<LongCall> longest_call(double seconds, double deadline,
                                                                            bool ending) {
  const std::lock_guard lock(list_mutex);
  std::optional<LongCall> longest;
  for (ThreadCalls* thread = threads; thread != nullptr; thread = thread->next) {
    const std::uint64_t changes = thread->changes.load(std::memory_order_acquire);
    const GuardContext* const call = thread->call.load(std::memory_order_acquire);
    const bool moved = changes != thread->seen || call == nullptr;
    thread->seen = changes;
    thread->seconds = moved ? 0 : thread->seconds + seconds;
    if (moved) continue;
    // The call may end while it is read: then it has changed, and what was read is dropped.
    const GuardContext context = *call;
    if (thread->changes.load(std::memory_order_acquire) != changes) continue;
    if (context.patience < 0 || (context.patience == 0 && !ending)) {
      thread->seconds = 0;
      continue;
    }
    const double limit = deadline * (context.patience > 0 ? context.patience : 1);
    if (longest && thread->seconds - limit <= longest->seconds - longest->limit) continue;
    longest = LongCall{context, thread->seconds, limit};
  }
  return longest;
}

}  // namespace plugin
}  // namespace tenon
