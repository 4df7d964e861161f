// Side channel of the ranks beside NCCL, which reports neither late ranks nor the state of others: each
// process answers questions, a line of text each, on its own port. Successful operations ask nothing except
// once for every opened group.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tenon::nccl_transport {

/// Address of a process's board, as announced to the others: "PLACE PORT ADDRESS,...".
struct BoardPlace {
  std::string place;  ///< equal for processes that share a loopback
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  ///< numeric, in the order of attempts

  std::string text() const;
  /// Throws Error(kRun) that names `rank`.
  static BoardPlace read(std::string_view text, int rank);
};

/// Answers from its construction on, on its own thread.
class Board {
 public:
  /// `token`: a word without spaces that clients must send. `answer`: called on the board's thread, with one
  /// question at a time; neither has line breaks. Throws Error(kConfig) when it cannot listen.
  Board(std::string token, const std::string& interface, std::function<std::string(std::string_view)> answer);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  const BoardPlace& place() const { return place_; }

 private:
  void serve();

  const std::string token_;
  const std::function<std::string(std::string_view)> answer_;
  BoardPlace place_;
  int listener_ = -1, wake_ = -1;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

struct Answer {
  bool reached = false;
  std::string text;  ///< or the reason of a failed connection: "connection refused"
};
/// Asks one question. Moves the address that worked to the front of `place`.
Answer ask(BoardPlace& place, std::string_view token, std::string_view question, double seconds);

}  // namespace tenon::nccl_transport
