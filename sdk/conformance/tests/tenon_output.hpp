// For tests of the kit: runs a command and returns its output and exit status.
#pragma once

#include "test_paths.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

/// Standard output of a command and its exit status.
struct Output {
  std::string text;
  int status = -1;
};
inline Output output_of(const std::string& command) {
  Output output;
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> block;
  for (std::size_t got; (got = std::fread(block.data(), 1, block.size(), pipe)) > 0;)
    output.text.append(block.data(), got);
  output.status = WEXITSTATUS(::pclose(pipe));
  return output;
}
