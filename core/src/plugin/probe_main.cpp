// tenon_probe FILE: loads one plugin and writes what it is to descriptor 3. Started by probe.cpp.
// tenon_probe --hardware FILE: what its devices and power sources say of this machine. Started by probe.cpp.
// Lines: "stage WORD" before each step that may be the last, then the description, or "error TEXT".
#include "base/child_process.hpp"
#include "base/signals.hpp"
#include "plugin/descriptor.hpp"
#include "plugin/loader.hpp"
#include "plugin/probe.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace {

void send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::write(tenon::base::kAnswerFd, text.data(), text.size());
    if (sent <= 0) return;  // no reader is left
    text.remove_prefix(sent);
  }
}

void probe(const char* file) {
  using namespace tenon::plugin;
  send("stage loading it\n");
  const OpenPlugin plugin = open_plugin(file);
  const std::string lines = to_lines(describe(*plugin.descriptor));
  send("stage its init\n");
  init_plugin(*plugin.descriptor, plugin.file);
  send("stage its shutdown\n");
  shutdown_plugin(*plugin.descriptor);
  send("description\n" + lines);
}

}  // namespace

int main(int argc, char** argv) {
  tenon::base::prepare();
  const bool hardware = argc == 3 && std::string_view(argv[1]) == "--hardware";
  if ((argc != 2 && !hardware) || ::fcntl(tenon::base::kAnswerFd, F_GETFD) < 0) {
    std::fputs("tenon_probe is started by 'tenon inspect FILE' and 'tenon doctor', not by hand.\n", stderr);
    return 2;
  }
  const rlimit no_core{0, 0};  // a plugin that crashes here is reported, without a core file
  ::setrlimit(RLIMIT_CORE, &no_core);
  try {
    hardware ? tenon::plugin::answer_hardware(argv[2], send) : probe(argv[1]);
  } catch (const std::exception& error) {
    send(std::string("error\n") + error.what());
  }
  // Static destructors of the plugin are not probed.
  ::_exit(0);
}
