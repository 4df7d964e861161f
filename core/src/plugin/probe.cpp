#include "plugin/probe.hpp"

#include "base/child_process.hpp"
#include "plugin/abi_tag.hpp"
#include "plugin/search.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace tenon::plugin {
namespace {

// Splits off the line at the front of `text`.
std::string_view take_line(std::string_view& text) {
  const std::size_t end_of_line = text.find('\n');
  const std::string_view line = text.substr(0, end_of_line);
  text.remove_prefix(end_of_line == std::string_view::npos ? text.size() : end_of_line + 1);
  return line;
}

}  // namespace

std::filesystem::path helper_program(std::string_view name) {
  const std::filesystem::path here = core_folder();
  std::error_code ignored;
  // The library folder may be lib or lib/<architecture>.
  for (const char* up : {"..", "../.."}) {
    std::filesystem::path program = (here / up / "libexec" / "tenon" / name).lexically_normal();
    if (std::filesystem::exists(program, ignored)) return program;
  }
  return (here / "../libexec/tenon" / name).lexically_normal();
}

ProbeResult probe_plugin(const ProbeRequest& request) {
  std::error_code failure;
  const std::filesystem::path file = std::filesystem::canonical(request.file, failure);
  if (failure) return {false, {}, cannot_load(request.file, failure.message() + ".")};

  const base::ChildResult child =
      base::run_child({.program = request.program.empty() ? helper_program("tenon_probe") : request.program,
                       .arguments = {file.string()},
                       .environment = {}},
                      request.time_limit);

  std::string_view rest = child.answer;
  std::string stage = "starting the probe";
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    if (line.substr(0, 6) == "stage ") {
      stage = line.substr(6);
    } else if (line == "error") {
      return {false, {}, std::string(rest)};
    } else if (line == "description") {
      if (auto description = from_lines(rest)) return {true, std::move(*description), ""};
      break;
    } else {
      break;
    }
  }
  return {false,
          {},
          cannot_load(file, fmt::format("{} {}. It ran in a child process only.{}", stage,
                                        base::how_it_ended(child, request.time_limit),
                                        base::last_words(child.words)))};
}

}  // namespace tenon::plugin
