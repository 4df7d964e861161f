// The lines that the program and a worker process exchange over pipes.
//
//   to a worker        run 12 | crash 12 (run it, then die before the result is there) | hang 12 (until its
//   time is over) from a worker      ready | step 3 100 | done DIGEST | failed KIND TEXT
//
// KIND: error (the simulator said so), time (the attempt took too long), files (a result cannot be written).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::simulate {

/// Outcome of the attempt; all but kRun are tests of recovery.
enum class Fate : std::uint8_t { kRun, kCrash, kHang };

struct Order {
  std::int64_t index = 0;
  Fate fate = Fate::kRun;
};

struct Answer {
  enum class Kind : std::uint8_t { kReady, kStep, kDone, kFailed };
  Kind kind = Kind::kReady;
  std::int64_t done = 0, total = 0;  ///< kStep
  std::string digest = {};           ///< kDone
  std::string failure = {};          ///< kFailed: error, time or files
  std::string text = {};             ///< kFailed
};

/// Includes the line's end.
std::string order_line(const Order& order);
std::string answer_line(const Answer& answer);
/// Without the line's end. Throws Error(kRun) with the line, shortened, if it is none of the above.
Order parse_order(std::string_view line);
Answer parse_answer(std::string_view line);

/// Splits incoming bytes into lines.
class Lines {
 public:
  /// Throws Error(kRun) when a line grows beyond 1 MiB.
  void add(std::string_view bytes);
  /// The next whole line; false when there is none yet.
  bool next(std::string& line);

 private:
  std::string bytes_;
};

}  // namespace tenon::simulate
