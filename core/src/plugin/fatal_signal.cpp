// Only async-signal-safe calls below: no allocation, no fmt, no locks.
#include "plugin/fatal_signal.hpp"

#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tenon::plugin {
namespace {

class SignalLine {
 public:
  void put(std::string_view text) noexcept {
    const std::size_t length = text.size() < sizeof buffer_ - size_ ? text.size() : sizeof buffer_ - size_;
    std::memcpy(buffer_ + size_, text.data(), length);
    size_ += length;
  }
  void put(std::int64_t value) noexcept {
    char digits[20];
    std::size_t at = sizeof digits;
    do {
      digits[--at] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value > 0);
    put(std::string_view(digits + at, sizeof digits - at));
  }
  void write() noexcept { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, buffer_, size_); }

 private:
  char buffer_[512];
  std::size_t size_ = 0;
};

void put_call(SignalLine& line, const GuardContext& call) noexcept {
  line.put(" inside plugin ");
  line.put(call.plugin);
  if (!call.component.empty()) {
    line.put(", component ");
    line.put(call.component);
  }
  if (call.rank >= 0) {
    line.put(", rank ");
    line.put(call.rank);
  }
  if (call.step >= 0) {
    line.put(", step ");
    line.put(call.step);
  }
}

void report(int signal) {
  SignalLine line;
  line.put("tenon: fatal signal ");
  line.put(signal);
  line.put(" (");
  line.put(sigdescr_np(signal));
  line.put(")");
  if (const GuardContext* call = current_plugin_call()) {
    put_call(line, *call);
  } else {
    line.put(" outside any plugin call");
  }
  line.put("\n");
  line.write();
  ::raise(signal);  // SA_RESETHAND has put the default action back
}

// exit() runs its handlers on the thread that called it.
void report_exit() {
  const GuardContext* call = current_plugin_call();
  if (call == nullptr) return;
  SignalLine line;
  line.put("tenon: exit was called");
  put_call(line, *call);
  line.put("\n");
  line.write();
  ::_exit(static_cast<int>(ErrorKind::kPlugin));
}

}  // namespace

void install_fatal_signal_handler() {
  struct sigaction action {};
  action.sa_handler = report;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

void install_exit_handler() {
  std::atexit(report_exit);
}

}  // namespace tenon::plugin
