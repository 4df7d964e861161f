// Destination of progress lines: standard error, or a test's memory.
#pragma once

#include <memory>
#include <string_view>

namespace tenon::progress {

class LineOutput {
 public:
  virtual ~LineOutput() = default;
  /// Writes all of it at once and ignores failures, because a closed terminal must not end a run.
  virtual void write(std::string_view text) = 0;
  /// Returns the columns of the terminal, 80 if unknown.
  virtual int width() const = 0;
};

std::unique_ptr<LineOutput> standard_error();

}  // namespace tenon::progress
