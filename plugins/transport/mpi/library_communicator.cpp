// Selection of the operations that the library performs (library_communicator.hpp).
#include "library_communicator.hpp"

#include <tenon/sdk/traffic.hpp>

#include <algorithm>
#include <chrono>

namespace tenon::mpi_transport {

namespace {

constexpr std::uint64_t kLibraryBit = std::uint64_t{1} << 62;

}  // namespace

void add(LinkCounts& to, const LinkCounts& more) {
  to.bytes_sent += more.bytes_sent;
  to.messages_sent += more.messages_sent;
  to.blocked_seconds += more.blocked_seconds;
  to.transfer_seconds += more.transfer_seconds;
}

void LibraryCounts::add(Purpose purpose, const LinkCounts& more) {
  const std::lock_guard lock(mutex_);
  mpi_transport::add(counts_[static_cast<std::size_t>(purpose)], more);
}

LinkCounts LibraryCounts::of(Purpose purpose) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<std::size_t>(purpose)];
}

LibraryCommunicator::~LibraryCommunicator() {
  const auto gone = sums_.abandon(*inner_);
  const bool first = rank() == 0;
  inner_.reset();
  if (channel_ >= 0 && first) sums_.return_channel(channel_);
}

Request LibraryCommunicator::start_all_reduce(TensorView data, ReduceOp op) {
  if (!library_reduces(data, op) || channel_ == kNone) return inner_->start_all_reduce(data, op);
  if (channel_ == kUndecided) {
    std::int64_t chosen = rank() == 0 ? sums_.take_channel() : kNone;
    inner_->broadcast({&chosen, Shape{1}, DType::kI64}, 0);
    channel_ = static_cast<int>(chosen);
    return start_all_reduce(data, op);
  }
  const Traffic traffic = all_reduce_traffic(data.elements(), data.dtype, rank(), size());
  count({.bytes_sent = traffic.bytes, .messages_sent = traffic.messages});
  return {sums_.start(*inner_, channel_, data, op) | kLibraryBit};
}

bool LibraryCommunicator::done(Request request) {
  return (request.id & kLibraryBit) != 0 ? sums_.done(request.id & ~kLibraryBit) : inner_->done(request);
}

void LibraryCommunicator::wait(Request request) {
  if ((request.id & kLibraryBit) == 0) return inner_->wait(request);
  const double blocked = inner_->counts().blocked_seconds;
  const auto begin = std::chrono::steady_clock::now();
  sums_.finish(request.id & ~kLibraryBit);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  // The ring has already counted its wait for the agreement.
  const double rest = std::max(0.0, waited.count() - (inner_->counts().blocked_seconds - blocked));
  count({.blocked_seconds = rest, .transfer_seconds = rest});
}

void LibraryCommunicator::count(const LinkCounts& more) {
  add(own_, more);
  total_.add(purpose_, more);
}

LinkCounts LibraryCommunicator::counts() const {
  LinkCounts counts = inner_->counts();
  add(counts, own_);
  return counts;
}

}  // namespace tenon::mpi_transport
