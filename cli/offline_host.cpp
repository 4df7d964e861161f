// Messages below warnings are left out: a command has its own output.
#include "offline_host.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <iostream>

namespace tenon::cli {

void OfflineHost::log(LogLevel level, std::string_view message) {
  if (level >= LogLevel::kWarning) std::cerr << "tenon: " << message << "\n";
}

std::unique_ptr<Actor> OfflineHost::spawn(std::string_view name, std::function<void(Actor&)>) {
  fail_plugin(fmt::format("background loop '{}': nothing runs in the background outside training", name));
}

}  // namespace tenon::cli
