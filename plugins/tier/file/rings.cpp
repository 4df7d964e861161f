// io_uring through liburing. A ring belongs to one thread at a time.
#include "rings.hpp"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tenon::tier_file {
namespace {

/// The rest of a transfer, of which `moved` bytes are done; returns its error.
int move_rest(int file, Rings::Direction direction, const PageTransfer& transfer, std::size_t moved) {
  while (moved < transfer.bytes) {
    std::byte* const data = transfer.data + moved;
    const std::size_t bytes = transfer.bytes - moved;
    const auto offset = transfer.offset + static_cast<off_t>(moved);
    const ssize_t now = direction == Rings::Direction::kRead ? ::pread(file, data, bytes, offset)
                                                             : ::pwrite(file, data, bytes, offset);
    if (now < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (now < 0) return errno;
    if (now == 0) return direction == Rings::Direction::kRead ? kEndOfFile : ENOSPC;
    moved += now;
  }
  return 0;
}

}  // namespace

class Rings::Ring {
 public:
  Ring() : error_(-io_uring_queue_init(kDepth, &ring_, 0)) {}
  ~Ring() {
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  int error() const { return error_; }

  /// At most kDepth transfers.
  void move(int file, Direction direction, std::span<PageTransfer> transfers) {
    for (PageTransfer& transfer : transfers) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      const auto bytes = static_cast<unsigned>(transfer.bytes);
      if (direction == Direction::kRead) {
        io_uring_prep_read(entry, file, transfer.data, bytes, transfer.offset);
      } else {
        io_uring_prep_write(entry, file, transfer.data, bytes, transfer.offset);
      }
      io_uring_sqe_set_data(entry, &transfer);
    }
    // The system writes to the pages until it has answered: nothing leaves this loop before.
    std::size_t submitted = transfers.size();
    for (std::size_t ended = 0; ended < submitted;) {
      const int result = usable_ ? io_uring_submit_and_wait(&ring_, 1) : io_uring_wait_cqe(&ring_, &answer_);
      if (usable_ && result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
        usable_ = false;
        submitted -= io_uring_sq_ready(&ring_);  // the system takes them in order
      }
      while (io_uring_peek_cqe(&ring_, &answer_) == 0 && answer_ != nullptr) {
        auto& transfer = *static_cast<PageTransfer*>(io_uring_cqe_get_data(answer_));
        const int moved = answer_->res;
        io_uring_cqe_seen(&ring_, answer_);
        ++ended;
        if (moved < 0 && moved != -EINTR && moved != -EAGAIN) {
          transfer.error = -moved;
        } else {
          transfer.error = move_rest(file, direction, transfer, std::max(moved, 0));
        }
      }
    }
    for (PageTransfer& transfer : transfers.subspan(submitted))
      transfer.error = move_rest(file, direction, transfer, 0);
  }
  /// False after the system took no more transfers.
  bool usable() const { return usable_; }

 private:
  io_uring ring_{};
  io_uring_cqe* answer_ = nullptr;
  int error_;
  bool usable_ = true;
};

Rings::Rings(bool wanted) {
  if (!wanted) {
    why_not_ = "not wanted";
    return;
  }
  auto first = std::make_unique<Ring>();
  if (first->error() != 0) {
    why_not_ = std::strerror(first->error());
  } else {
    idle_.push_back(std::move(first));
  }
}

Rings::~Rings() = default;

std::unique_ptr<Rings::Ring> Rings::take() {
  if (!why_not_.empty()) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Ring> ring = std::move(idle_.back());
      idle_.pop_back();
      return ring;
    }
  }
  auto ring = std::make_unique<Ring>();
  return ring->error() == 0 ? std::move(ring) : nullptr;
}

void Rings::move(int file, Direction direction, std::span<PageTransfer> transfers) {
  std::unique_ptr<Ring> ring = transfers.size() > 1 ? take() : nullptr;
  if (ring == nullptr) {
    for (PageTransfer& transfer : transfers) transfer.error = move_rest(file, direction, transfer, 0);
    return;
  }
  while (!transfers.empty()) {
    const auto now = transfers.first(std::min<std::size_t>(transfers.size(), kDepth));
    if (ring->usable()) {
      ring->move(file, direction, now);
    } else {
      for (PageTransfer& transfer : now) transfer.error = move_rest(file, direction, transfer, 0);
    }
    transfers = transfers.subspan(now.size());
  }
  if (!ring->usable()) return;
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(ring));
}

}  // namespace tenon::tier_file
