// A group of all ranks that passes large sums to the library and everything else to the ring.
#pragma once

#include "library_sums.hpp"

#include <tenon/transport.hpp>

#include <array>
#include <memory>
#include <mutex>

namespace tenon::mpi_transport {

/// Counts of the library's sums by the ring's closed forms, since the library does not report them.
class LibraryCounts {
 public:
  void add(Purpose purpose, const LinkCounts& more);
  LinkCounts of(Purpose purpose) const;

 private:
  mutable std::mutex mutex_;
  std::array<LinkCounts, kPurposes> counts_{};
};
void add(LinkCounts& to, const LinkCounts& more);

class LibraryCommunicator final : public CommunicatorDecorator {
 public:
  LibraryCommunicator(std::unique_ptr<Communicator> ring, Purpose purpose, LibrarySums& sums,
                      LibraryCounts& total)
      : CommunicatorDecorator(std::move(ring)), purpose_(purpose), sums_(sums), total_(total) {}
  ~LibraryCommunicator() override;

  /// The first large sum waits once for all members: they agree on a communicator of the library.
  Request start_all_reduce(TensorView data, ReduceOp op) override;
  bool done(Request request) override;
  void wait(Request request) override;
  LinkCounts counts() const override;
  void cancel(std::string_view reason) override {
    inner_->cancel(reason);
    sums_.cancel(reason);
  }

 private:
  void count(const LinkCounts& more);

  static constexpr int kUndecided = -2, kNone = -1;

  const Purpose purpose_;
  LibrarySums& sums_;
  LibraryCounts& total_;
  LinkCounts own_;
  int channel_ = kUndecided;
};

}  // namespace tenon::mpi_transport
