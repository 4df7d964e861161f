// A group of all ranks whose large sums are the library's; everything else is the ring's.
#pragma once

#include "library_sums.hpp"

#include <tenon/transport.hpp>

#include <array>
#include <memory>
#include <mutex>

namespace tenon::mpi_transport {

/// What sums of the library count for, by the ring's closed forms: the library does not tell.
class LibraryCounts {
 public:
  void add(Purpose purpose, const LinkCounts& more);
  LinkCounts of(Purpose purpose) const;

 private:
  mutable std::mutex mutex_;
  std::array<LinkCounts, kPurposes> counts_{};
};
void add(LinkCounts& to, const LinkCounts& more);

class LibraryCommunicator final : public Communicator {
 public:
  LibraryCommunicator(std::unique_ptr<Communicator> ring, Purpose purpose, LibrarySums& sums,
                      LibraryCounts& total)
      : ring_(std::move(ring)), purpose_(purpose), sums_(sums), total_(total) {}
  ~LibraryCommunicator() override;

  int rank() const override { return ring_->rank(); }
  int size() const override { return ring_->size(); }
  Request start_send(TensorView data, int to, int tag) override { return ring_->start_send(data, to, tag); }
  Request start_receive(TensorView data, int from, int tag) override {
    return ring_->start_receive(data, from, tag);
  }
  /// The first large one waits for all members once: they agree on a communicator of the library.
  Request start_all_reduce(TensorView data, ReduceOp op) override;
  Request start_reduce_scatter(TensorView data, ReduceOp op) override {
    return ring_->start_reduce_scatter(data, op);
  }
  Request start_all_gather(TensorView data) override { return ring_->start_all_gather(data); }
  Request start_broadcast(TensorView data, int root) override { return ring_->start_broadcast(data, root); }
  Request start_reduce(TensorView data, int root, ReduceOp op) override {
    return ring_->start_reduce(data, root, op);
  }
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    return ring_->start_all_to_all(send, send_counts, receive, receive_counts);
  }
  bool done(Request request) override;
  void wait(Request request) override;
  void barrier() override { ring_->barrier(); }
  LinkCounts counts() const override;
  void cancel(std::string_view reason) override {
    ring_->cancel(reason);
    sums_.cancel(reason);
  }

 private:
  void count(const LinkCounts& more);

  static constexpr int kUndecided = -2, kNone = -1;

  std::unique_ptr<Communicator> ring_;
  const Purpose purpose_;
  LibrarySums& sums_;
  LibraryCounts& total_;
  LinkCounts own_;
  int channel_ = kUndecided;
};

}  // namespace tenon::mpi_transport
