#include "fake_port.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tenon::testing {

class FakeNetwork::Port final : public FramePort {
 public:
  Port(FakeNetwork& network, int rank)
      : network_(network),
        rank_(rank),
        waiting_(network.ranks_),
        arrived_(waiting_.size()),
        lost_(waiting_.size(), 0),
        engine_(network.seed_ * 131 + static_cast<unsigned>(rank)) {}

  int rank() const override { return rank_; }
  int ranks() const override { return network_.ranks_; }

  void send(int to, const FrameHeader& header, std::span<const std::byte> payload,
            const void* owner) override {
    Frame frame{.header = header, .payload = {}, .source = payload.data(), .owner = owner};
    if (owner == nullptr) frame.payload.assign(payload.begin(), payload.end());
    waiting_[to].push_back(std::move(frame));
  }

  void poll(Events& events, double seconds) override {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (true) {
      bool moved = false;
      std::vector<int> peers;
      for (int peer = 0; peer < ranks(); ++peer) peers.push_back(peer);
      std::shuffle(peers.begin(), peers.end(), engine_);
      for (const int peer : peers) moved |= leave(events, peer);
      std::shuffle(peers.begin(), peers.end(), engine_);
      for (const int peer : peers) moved |= arrive(events, peer);
      std::unique_lock lock(network_.mutex_);
      char& woken = network_.woken_[rank_];
      if (moved || woken != 0 || std::chrono::steady_clock::now() >= limit) {
        woken = 0;
        return;
      }
      network_.changed_[rank_]->wait_until(lock,
                                           std::chrono::time_point_cast<std::chrono::nanoseconds>(limit));
    }
  }

  void wake() override {
    const std::lock_guard lock(network_.mutex_);
    network_.woken_[rank_] = 1;
    network_.changed_[rank_]->notify_all();
  }

  void release(const void* owner) override {
    for (auto& queue : waiting_)
      std::erase_if(queue, [&](const Frame& frame) { return frame.owner == owner; });
    for (Arriving& arriving : arrived_) {
      if (arriving.landing.owner == owner) arriving.landing = {};
    }
  }

  void close(double) override {
    class Nobody final : public Events {
      Landing begin(int, const FrameHeader&) override { return {}; }
      void end(int) override {}
      void sent(const void*) override {}
      void lost(int, const std::string&) override {}
    } nobody;
    for (int peer = 0; peer < ranks(); ++peer) {
      while (!waiting_[peer].empty()) leave(nobody, peer);
    }
  }

 private:
  struct Arriving {
    Frame frame;
    Landing landing;
    std::size_t copied = 0;
    bool begun = false;
  };

  std::deque<Frame>& wire(int from, int to) { return network_.wires_[from * ranks() + to]; }

  bool leave(Events& events, int peer) {
    auto& queue = waiting_[peer];
    for (auto portion = engine_() % 3; portion > 0 && !queue.empty(); --portion) {
      Frame frame = std::move(queue.front());
      queue.pop_front();
      const void* const owner = frame.owner;
      if (owner != nullptr) frame.payload.assign(frame.source, frame.source + frame.header.bytes);
      {
        const std::lock_guard lock(network_.mutex_);
        const bool gone = network_.dead_[peer] != 0 || network_.dead_[rank_] != 0;
        if (!gone) wire(rank_, peer).push_back(std::move(frame));
        network_.changed_[peer]->notify_all();
      }
      if (owner != nullptr) events.sent(owner);
    }
    return !queue.empty();
  }

  bool arrive(Events& events, int peer) {
    Arriving& arriving = arrived_[peer];
    if (!arriving.begun) {
      {
        const std::lock_guard lock(network_.mutex_);
        auto& queue = wire(peer, rank_);
        if (queue.empty()) {
          if (network_.dead_[peer] == 0 || lost_[peer] != 0) return false;
        } else {
          arriving.frame = std::move(queue.front());
          queue.pop_front();
          arriving.begun = true;
        }
      }
      if (!arriving.begun) {
        lost_[peer] = 1;
        events.lost(peer, "closed");
        return true;
      }
      arriving.landing = events.begin(peer, arriving.frame.header);
      arriving.copied = 0;
    }
    const std::size_t left = arriving.frame.payload.size() - arriving.copied;
    const std::size_t piece = std::min<std::size_t>(left, 1 + engine_() % (1 << 18));
    if (piece > 0 && arriving.landing.to != nullptr)
      std::memcpy(arriving.landing.to + arriving.copied, arriving.frame.payload.data() + arriving.copied,
                  piece);
    arriving.copied += piece;
    if (piece < left) return true;
    arriving.begun = false;
    arriving.landing = {};
    if (arriving.frame.header.kind == FrameKind::kBye) lost_[peer] = 1;
    events.end(peer);
    return true;
  }

  FakeNetwork& network_;
  const int rank_;
  std::vector<std::deque<Frame>> waiting_;  // by peer: queued, payload not yet read
  std::vector<Arriving> arrived_;           // by peer
  std::vector<char> lost_;
  std::mt19937 engine_;
};

FakeNetwork::FakeNetwork(int ranks, unsigned seed)
    : wires_(ranks * ranks), dead_(ranks, 0), woken_(ranks, 0), ranks_(ranks), seed_(seed) {
  for (int rank = 0; rank < ranks; ++rank) changed_.push_back(std::make_unique<std::condition_variable>());
}

FakeNetwork::~FakeNetwork() = default;

std::unique_ptr<FramePort> FakeNetwork::port(int rank) {
  return std::make_unique<Port>(*this, rank);
}

void FakeNetwork::kill(int rank) {
  const std::lock_guard lock(mutex_);
  dead_[rank] = 1;
  for (const auto& changed : changed_) changed->notify_all();
}

}  // namespace tenon::testing
