// What a crash leaves behind: one line on standard error that names the signal and the plugin inside which it
// came. There is no recovery; the default action follows.
#pragma once

namespace tenon::plugin {

/// Installs the handler for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, for all threads. Programs call it,
/// not libraries.
void install_fatal_signal_handler();

}  // namespace tenon::plugin
