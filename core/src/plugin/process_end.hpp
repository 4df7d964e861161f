// Ends of a process inside a plugin: by a signal, by an exit, and when a call does not return.
#pragma once

#include "plugin/guard.hpp"

namespace tenon::plugin {

// Reports a crash, or an exit from within a plugin, in one line on standard error that names the signal and
// the plugin. There is no recovery from a signal: the default action follows. An exit ends with the status of
// plugin errors.

/// Installs the handler for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, for all threads. Programs call it,
/// not libraries.
void install_fatal_signal_handler();
/// The same for exit() on a thread that is inside a plugin call.
void install_exit_handler();

// Ends a program whose plugin does not return from init or create. Code of a plugin cannot be stopped from
// outside, so the process ends, with the plugin's name and the status of plugin errors. Passes of layers have
// a watch of their own (loop/pass_watch.hpp).

/// Calls that are watched from now on may end the process. Programs call it, not libraries.
void end_process_when_plugins_hang();
bool ends_process_when_plugins_hang();

/// One call, for the life of the object. Does nothing unless the program asked for it.
class HangWatch {
 public:
  /// `what` ("create") and `context` outlive the object.
  HangWatch(const GuardContext& context, const char* what, double seconds);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  const GuardContext* watched_ = nullptr;  ///< null: not watched
};

}  // namespace tenon::plugin
