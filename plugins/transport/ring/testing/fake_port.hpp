// Ports of one process over queues in memory, for tests of what stands on ports: frames arrive in random
// portions, from a random peer first, yet in order from each; payloads are read late and arrive in pieces.
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
  /// The port of a rank; the network outlives it.
  std::unique_ptr<FramePort> port(int rank);
  /// Its peers see the connection close.
  void kill(int rank);

 private:
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;  // taken when it leaves, which may be long after send()
    const std::byte* source = nullptr;
    const void* owner = nullptr;
  };
  class Port;

  std::mutex mutex_;
  std::vector<std::deque<Frame>> wires_;  // [from * ranks + to]: on the way
  std::vector<char> dead_, woken_;
  std::vector<std::unique_ptr<std::condition_variable>> changed_;
  const int ranks_;
  const unsigned seed_;
};

}  // namespace tenon::testing
