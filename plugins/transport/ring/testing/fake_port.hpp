// Ports of one process over queues in memory, for tests of the layers above: frames arrive in random
// portions, from random peers, but in order from each; payloads are read late and arrive in pieces.
#pragma once

#include <tenon/ring/transport.hpp>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace tenon::testing {

class FakeNetwork {
 public:
  FakeNetwork(int ranks, unsigned seed);
  ~FakeNetwork();
  /// Returns the port of a rank; the network must outlive it.
  std::unique_ptr<FramePort> port(int rank);
  /// Its peers see the connection close.
  void kill(int rank);

 private:
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;  // copied when it is sent, possibly long after send()
    const std::byte* source = nullptr;
    const void* owner = nullptr;
  };
  class Port;

  std::mutex mutex_;
  std::vector<std::deque<Frame>> wires_;  // [from * ranks + to]: in flight
  std::vector<char> dead_, woken_;
  std::vector<std::unique_ptr<std::condition_variable>> changed_;
  const int ranks_;
  const unsigned seed_;
};

}  // namespace tenon::testing
