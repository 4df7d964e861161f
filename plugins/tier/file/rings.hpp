// Queues of the system through which many transfers of pages go at once (io_uring); where the system offers
// none, as in many containers, one transfer follows the other. All tables of a tier share them.
#pragma once

#include "page_file.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tenon::tier_file {

class Rings {
 public:
  /// Transfers that a queue holds; more go in several rounds.
  static constexpr unsigned kDepth = 1024;
  enum class Direction : std::uint8_t { kRead, kWrite };

  /// wanted: false leaves the queues out, for tests of the other way.
  explicit Rings(bool wanted = true);
  ~Rings();

  /// Empty where queues are used; else why not.
  const std::string& why_not() const { return why_not_; }
  /// Moves all and sets their errors. Any thread. Allocates where more threads call at once than ever before.
  void move(int file, Direction direction, std::span<PageTransfer> transfers);

 private:
  class Ring;
  std::unique_ptr<Ring> take();

  std::string why_not_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_;
};

}  // namespace tenon::tier_file
