// Every call into a plugin passes here: whatever it throws comes back as tenon::Error that names the plugin,
// the component, the rank and the step, and a crash inside it can be attributed (process_end.hpp). On the
// path without exception nothing is allocated and nothing is locked.
#pragma once

#include <tenon/abi.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

TENON_ABI_BEGIN
class ResolvedOptions;
TENON_ABI_END

namespace tenon {

inline constexpr float kWatchedElsewhere = -1;

struct GuardContext {
  std::string_view plugin;     ///< "acme.lion"; "" = work of the core, named by `component` alone
  std::string_view component;  ///< "optimizer.lion"; "" = the plugin as a whole
  int rank = -1;               ///< -1 = before ranks exist
  std::int64_t step = -1;      ///< -1 = outside the loop
  /// The component's options, null when unknown: configuration errors take file and line from them.
  const ResolvedOptions* options = nullptr;
  /// The call counts as one that hangs after so many deadlines of the run (call_watch.hpp); 0 = one deadline
  /// after the run has failed, since it lasts as long as the run; kWatchedElsewhere = never.
  float patience = 1;
};

/// "plugin acme.lion (optimizer.lion, rank 2, step 14)"
std::string guard_place(const GuardContext& context);

/// Returns the text of a configuration error: where the option that it names is written, the place, and
/// `message`. Before the loop it has no rank, because all ranks read the same configuration.
std::string config_text(const GuardContext& context, std::string_view message);

/// Inside a catch block: rethrows the current exception as tenon::Error with the place in front. Errors of
/// kind kConfig and kRun keep their kind, everything else is kPlugin; DeadlineError keeps its type, and
/// CancelledError passes unchanged because it reports another failure. An error that has names already keeps
/// those alone: they are of the innermost call.
[[noreturn]] void rethrow_named(const GuardContext& context);

/// What one thread is inside. Written by the thread alone; others read it.
struct ThreadCalls {
  std::atomic<const GuardContext*> call{nullptr};
  std::atomic<std::uint64_t> changes{0};  ///< grows with every beginning and end of a call
  bool known = false;                     ///< to the watch (call_watch.hpp)
  // Of the watch, under its lock.
  std::uint64_t seen = 0;
  double seconds = 0;  ///< without a change
  ThreadCalls* next = nullptr;
};

/// Initial-exec: a signal handler must not trigger the lazy allocation of a thread's storage, and a guarded
/// call must not call a function to find it.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local ThreadCalls calls_of_thread;

/// Once a thread: makes its calls known to the watch.
void make_calls_known(ThreadCalls& calls);

/// The call that this thread is inside, null when in none. Safe in a signal handler.
inline const GuardContext* current_plugin_call() noexcept {
  return calls_of_thread.call.load(std::memory_order_relaxed);
}
/// Sets it, returns the one before.
inline const GuardContext* exchange_plugin_call(const GuardContext* context) noexcept {
  ThreadCalls& mine = calls_of_thread;
  if (!mine.known) [[unlikely]]
    make_calls_known(mine);
  const GuardContext* before = mine.call.load(std::memory_order_relaxed);
  mine.changes.store(mine.changes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  mine.call.store(context, std::memory_order_release);
  return before;
}

/// Remembers, for this thread, the innermost call that an exception is leaving.
void note_failed_call(const GuardContext& context) noexcept;
/// The options of a noted call end before it is reported: it is then reported without their place.
void forget_noted_options(const ResolvedOptions* options) noexcept;
/// Inside a catch block: rethrow_named() with the noted call, or a plain rethrow when there is none.
[[noreturn]] void rethrow_noted_call();

class PluginCallScope {
 public:
  explicit PluginCallScope(const GuardContext& context) noexcept : PluginCallScope(&context) {}
  /// Null: of no plugin. Threads that help with a call take it over from the thread that made it.
  explicit PluginCallScope(const GuardContext* context) noexcept : outer_(exchange_plugin_call(context)) {}
  ~PluginCallScope() { exchange_plugin_call(outer_); }
  PluginCallScope(const PluginCallScope&) = delete;
  PluginCallScope& operator=(const PluginCallScope&) = delete;

 private:
  const GuardContext* outer_;
};

/// Within a plugin call, work of the core that waits for other threads or ranks and has a deadline of its
/// own.
class OutsideCall : public PluginCallScope {
 public:
  OutsideCall() noexcept : PluginCallScope(nullptr) {}
};

/// Runs `call` under the guard and returns what it returns.
template <typename Call>
decltype(auto) guard(const GuardContext& context, Call&& call) {
  const PluginCallScope scope(context);
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_named(context);
  }
}

/// One call `part->function(...)` under the guard's names: lives for the full expression, so its arguments
/// hold no second such call, whose names would be taken for those of the first. An exception that leaves the
/// call is only noted here; rethrow_noted_call() further out gives it its names.
template <typename Interface>
class GuardedCall {
 public:
  GuardedCall(Interface* object, const GuardContext& context) noexcept
      : object_(object),
        context_(context),
        outer_(exchange_plugin_call(&context_)),
        exceptions_(std::uncaught_exceptions()) {}
  ~GuardedCall() {
    exchange_plugin_call(outer_);
    if (std::uncaught_exceptions() > exceptions_) note_failed_call(context_);
  }
  GuardedCall(const GuardedCall&) = delete;
  GuardedCall& operator=(const GuardedCall&) = delete;
  Interface* operator->() const noexcept { return object_; }

 private:
  Interface* object_;
  GuardContext context_;
  const GuardContext* outer_;
  int exceptions_;
};

}  // namespace tenon
