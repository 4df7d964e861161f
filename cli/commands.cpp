// The commands of the program.
#include "command_line.hpp"

#include "config/suggest.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <array>

namespace tenon::cli {

std::span<const Command* const> commands() {
  static constexpr std::array kAll{&kTrain,     &kLaunch,      &kAb,        &kCheck,    &kInspect,
                                   &kDoctor,    &kConformance, &kNewPlugin, &kReport,   &kCompare,
                                   &kEvaluate,  &kExport,      &kQuantize,  &kGenerate, &kSimulate,
                                   &kReproduce, &kManual,      &kCompletion};
  return kAll;
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : commands()) {
    if (name == command->name) return *command;
    names.emplace_back(command->name);
  }
  fail_config(
      fmt::format("there is no command '{}'{} (see: tenon --help)", name, config::suggestion(name, names)));
}

}  // namespace tenon::cli
