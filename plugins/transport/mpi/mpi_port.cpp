// Buffers, sending and receiving of mpi_port.hpp.
#include "mpi_port.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace tenon::mpi_transport {

namespace {

constexpr int kFrameTag = 1;
constexpr std::size_t kSendBuffers = 16, kReceiveBuffers = 16;
constexpr std::size_t kBufferBytes = kFrameHeaderBytes + kFrameDataBytes;
constexpr std::size_t kFirstFrames = 256;
// Another thread cannot end a wait in MPI, so an idle thread polls with a growing pause.
constexpr auto kFirstPause = std::chrono::microseconds(10), kLongestPause = std::chrono::microseconds(500);
constexpr int kLooksWithoutPause = 20;

class Nobody final : public FramePort::Events {
 public:
  FramePort::Landing begin(int, const FrameHeader&) override { return {}; }
  void end(int) override {}
  void sent(const void*) override {}
  void lost(int, const std::string&) override {}
};

}  // namespace

MpiPort::MpiPort(MpiRendezvous& rendezvous, double deadline_s, LibrarySums* sums)
    : session_(rendezvous),
      sums_(sums),
      rank_(rendezvous.rank()),
      ranks_(rendezvous.ranks()),
      queue_(kFirstFrames),
      sending_(kSendBuffers, std::vector<std::byte>(kBufferBytes)),
      arriving_(kReceiveBuffers, std::vector<std::byte>(kBufferBytes)),
      sends_(kSendBuffers, MPI_REQUEST_NULL),
      receives_(kReceiveBuffers, MPI_REQUEST_NULL),
      done_(kSendBuffers) {
  for (std::size_t i = 0; i < kSendBuffers; ++i) free_.push_back(static_cast<int>(i));
  frames_ = duplicate_world(rendezvous, deadline_s);
  if (sums_ != nullptr) sums_->wake_by([this] { wake(); });
  const std::lock_guard lock(session_.mutex());
  for (std::size_t slot = 0; slot < kReceiveBuffers; ++slot) expect(slot);
}

MpiPort::~MpiPort() = default;

void MpiPort::expect(std::size_t slot) {
  check(MPI_Irecv(arriving_[slot].data(), static_cast<int>(kBufferBytes), MPI_BYTE, MPI_ANY_SOURCE, kFrameTag,
                  frames_, &receives_[slot]),
        "MPI_Irecv");
}

void MpiPort::send(int to, const FrameHeader& header, std::span<const std::byte> payload, const void* owner) {
  if (waiting_ == queue_.size()) {
    std::rotate(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(first_), queue_.end());
    first_ = 0;
    queue_.resize(2 * queue_.size());
  }
  Outgoing& frame = queue_[(first_ + waiting_++) % queue_.size()];
  frame.to = to;
  frame.header = header;
  frame.payload = owner != nullptr ? payload.data() : nullptr;
  frame.large.clear();
  frame.owner = owner;
  if (owner != nullptr) return;
  if (payload.size() <= frame.small.size()) {
    std::copy(payload.begin(), payload.end(), frame.small.begin());
  } else {
    frame.large.assign(payload.begin(), payload.end());
  }
}

bool MpiPort::leave(Events& events) {
  bool moved = false;
  {
    const std::lock_guard lock(session_.mutex());
    int count = 0;
    check(MPI_Testsome(static_cast<int>(sends_.size()), sends_.data(), &count, done_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count != MPI_UNDEFINED) free_.insert(free_.end(), done_.begin(), done_.begin() + count);
  }
  while (waiting_ > 0 && !free_.empty()) {
    const Outgoing& frame = queue_[first_];
    const std::size_t slot = free_.back();
    const void* const owner = frame.owner;
    if (frame.to >= 0) {
      std::vector<std::byte>& buffer = sending_[slot];
      const FrameHeaderBytes header = write_frame_header(frame.header);
      std::copy(header.begin(), header.end(), buffer.begin());
      if (frame.header.bytes > 0)
        std::memcpy(buffer.data() + header.size(), frame.bytes_of_payload(), frame.header.bytes);
      free_.pop_back();
      const std::lock_guard lock(session_.mutex());
      check(MPI_Isend(buffer.data(), static_cast<int>(header.size() + frame.header.bytes), MPI_BYTE, frame.to,
                      kFrameTag, frames_, &sends_[slot]),
            "MPI_Isend");
    }
    first_ = (first_ + 1) % queue_.size();
    --waiting_;
    moved = true;
    if (owner != nullptr) events.sent(owner);
  }
  return moved;
}

bool MpiPort::arrive(Events& events) {
  bool moved = false;
  for (std::size_t turn = 0; turn < 4 * kReceiveBuffers; ++turn) {
    const std::size_t slot = next_arrival_;
    MPI_Status status;
    int done = 0, bytes = 0;
    {
      const std::lock_guard lock(session_.mutex());
      check(MPI_Test(&receives_[slot], &done, &status), "MPI_Test");
      if (done == 0) return moved;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    }
    moved = true;
    FrameHeaderBytes head{};
    const std::vector<std::byte>& buffer = arriving_[slot];
    std::copy_n(buffer.begin(), head.size(), head.begin());
    FrameHeader header;
    std::string wrong = read_frame_header(head, header);
    if (wrong.empty() && static_cast<std::size_t>(bytes) != head.size() + header.bytes)
      wrong = fmt::format("a message of {} bytes for a frame of {}", bytes, head.size() + header.bytes);
    if (!wrong.empty()) {
      events.lost(status.MPI_SOURCE, "carries something else: " + wrong);
    } else {
      if (header.kind == FrameKind::kBye) ++byes_;
      const Landing landing = events.begin(status.MPI_SOURCE, header);
      if (landing.to != nullptr && header.bytes > 0)
        std::memcpy(landing.to, buffer.data() + head.size(), header.bytes);
      events.end(status.MPI_SOURCE);
    }
    const std::lock_guard lock(session_.mutex());
    expect(slot);
    next_arrival_ = (slot + 1) % kReceiveBuffers;
  }
  return moved;
}

bool MpiPort::move(Events& events) {
  if (sums_ != nullptr && sums_->halted()) return false;
  const bool left = leave(events);
  const bool came = arrive(events);
  return (sums_ != nullptr && sums_->progress()) || came || left;
}

void MpiPort::poll(Events& events, double seconds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  auto pause = kFirstPause;
  for (int look = 0; !move(events); ++look) {
    std::unique_lock lock(wake_mutex_);
    if (woken_ || std::chrono::steady_clock::now() >= limit) break;
    if (look < kLooksWithoutPause) {
      lock.unlock();
      std::this_thread::yield();
      continue;
    }
    wakes_.wait_until(lock, std::chrono::steady_clock::now() + pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  const std::lock_guard lock(wake_mutex_);
  woken_ = false;
}

void MpiPort::wake() {
  const std::lock_guard lock(wake_mutex_);
  woken_ = true;
  wakes_.notify_one();
}

void MpiPort::release(const void* owner) {
  for (std::size_t i = 0; i < waiting_; ++i) {
    Outgoing& frame = queue_[(first_ + i) % queue_.size()];
    if (frame.owner != owner) continue;
    frame.owner = nullptr;
    frame.to = -1;
  }
}

void MpiPort::close(double seconds) {
  Nobody nobody;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto in_time = [&] { return std::chrono::steady_clock::now() < limit; };
  const auto all_left = [&] { return waiting_ == 0 && free_.size() == sending_.size(); };
  const auto halted = [&] { return sums_ != nullptr && sums_->halted(); };
  while (!(all_left() && byes_ == ranks_ - 1) && in_time() && !halted()) poll(nobody, 0.01);
  if (!all_left() || halted()) {
    // If a peer hangs or a sum never ends, MPI still works on the buffers: they stay until the process ends,
    // which is soon.
    static_cast<void>(new auto(std::move(sending_)));
    static_cast<void>(new auto(std::move(arriving_)));
    return;
  }
  const std::lock_guard lock(session_.mutex());
  for (MPI_Request& receive : receives_) {
    check(MPI_Cancel(&receive), "MPI_Cancel");
    check(MPI_Wait(&receive, MPI_STATUS_IGNORE), "MPI_Wait");
  }
}

}  // namespace tenon::mpi_transport
