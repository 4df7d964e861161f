// Reports a crash, or an exit from within a plugin, in one line on standard error that names the signal and
// the plugin. There is no recovery from a signal: the default action follows. An exit ends with the status of
// plugin errors.
#pragma once

namespace tenon::plugin {

/// Installs the handler for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, for all threads. Programs call it,
/// not libraries.
void install_fatal_signal_handler();
/// The same for exit() on a thread that is inside a plugin call.
void install_exit_handler();

}  // namespace tenon::plugin
