// Where progress goes: standard error, or a test's memory.
#pragma once

#include <memory>
#include <string_view>

namespace tenon::progress {

class LineOutput {
 public:
  virtual ~LineOutput() = default;
  /// Writes all of it at once; failures are ignored, because a closed terminal must not end a run.
  virtual void write(std::string_view text) = 0;
  /// Columns of the terminal, 80 if it does not tell.
  virtual int width() const = 0;
};

std::unique_ptr<LineOutput> standard_error();

}  // namespace tenon::progress
