// tenon doctor: looks at every plugin in a child process and says of each: ok, or off and why.
#include "command_line.hpp"

#include "observe/build_info.hpp"
#include "observe/process_facts.hpp"
#include "plugin/probe.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <iostream>

namespace tenon::cli {
namespace {

int run(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kDoctor, po::options_description(), {}, arguments);
  if (parsed.helped) return 0;
  const BuildInfo build = build_info();
  std::cout << fmt::format("program    tenon {} ({}), {}, {}\n", build.version, build.git, build.compiler,
                           build.build_type);
  std::cout << fmt::format("processor  {}, {} usable cores\n", cpu_model(), usable_cores());
  Runtime runtime;
  runtime.discover({});
  int failed = 0;
  for (const PluginStatus& plugin : runtime.registry().plugins()) {
    std::string reason = plugin.reason;
    if (plugin.state != PluginStatus::State::kFailed) {
      const plugin::ProbeResult probe = plugin::probe_plugin({.file = plugin.file});
      reason = probe.ok ? "" : probe.reason;
    }
    const std::string& name = plugin.id.empty() ? plugin.file : plugin.id;
    if (reason.empty()) {
      std::cout << fmt::format("ok         {} {} ({} components)\n", name, plugin.version,
                               plugin.offers.size());
    } else {
      ++failed;
      std::cout << fmt::format("off        {}\n           {}\n", name, reason);
    }
  }
  std::cout << "plugins were looked for in:\n" << runtime.registry().places() << "\n";
  return failed == 0 ? 0 : static_cast<int>(ErrorKind::kPlugin);
}

}  // namespace

const Command kDoctor{"doctor", "", "Look at every plugin and say what works and what is off, and why.", run};

}  // namespace tenon::cli
