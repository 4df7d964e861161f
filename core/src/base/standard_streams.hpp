// Descriptors 0, 1 and 2 of a program, which are open whatever started it, and standard output with its
// errors.
#pragma once

#include <array>
#include <streambuf>
#include <string>

namespace tenon::base {

/// Opens /dev/null where 0, 1 or 2 is closed: the next file would get the number, and output for a terminal
/// would be written into it. Call it before anything is opened.
void open_standard_streams();

/// While it lives, std::cout writes to descriptor 1 and keeps the first error.
class StandardOutput final : private std::streambuf {
 public:
  StandardOutput();
  ~StandardOutput() override;
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  /// Writes buffered output. "" if everything was written, also by way of C's stdout.
  std::string failure();

 private:
  int overflow(int character) override;
  int sync() override;
  bool write_out();

  std::array<char, 4096> kept_;
  std::streambuf* before_;
  int error_ = 0;
};

}  // namespace tenon::base
