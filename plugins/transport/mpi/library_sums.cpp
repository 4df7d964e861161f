// Agreement, begin and end of sums (library_sums.hpp), and the communicator that selects them.
#include "library_sums.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/traffic.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tenon::mpi_transport {

namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op operation_of(ReduceOp op) {
  return op == ReduceOp::kSum ? MPI_SUM : op == ReduceOp::kMax ? MPI_MAX : MPI_MIN;
}

}  // namespace

bool library_reduces(const TensorView& data, ReduceOp) {
  return type_of(data.dtype) != MPI_DATATYPE_NULL && data.bytes() >= kLibraryBytes;
}

void LibrarySums::connect(int channels, double deadline_s) {
  deadline_s_ = deadline_s;
  for (int channel = 0; channel < channels; ++channel) {
    channels_.push_back(duplicate_world(session_, deadline_s));
    free_.push_back(channels - 1 - channel);
  }
}

int LibrarySums::take_channel() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return -1;
  const int channel = free_.back();
  free_.pop_back();
  return channel;
}

void LibrarySums::return_channel(int channel) {
  const std::lock_guard lock(mutex_);
  free_.push_back(channel);
}

std::uint64_t LibrarySums::start(Communicator& ring, int channel, TensorView data, ReduceOp op) {
  auto sum = std::make_unique<Sum>();
  sum->ring = &ring;
  sum->channel = channel;
  sum->data = data;
  sum->op = op;
  const std::int64_t elements = data.elements();
  const std::int64_t kind = 16 * static_cast<std::int64_t>(data.dtype) + static_cast<std::int64_t>(op);
  sum->agreement = {elements, -elements, kind, -kind, ring.rank() == 0, ring.rank() == ring.size() - 1, 0, 0};
  const std::lock_guard lock(mutex_);
  sum->id = ++last_;
  sum->agreed = ring.start_all_reduce(
      {sum->agreement.data(), Shape{static_cast<std::int64_t>(sum->agreement.size())}, DType::kI64},
      ReduceOp::kMax);
  sums_.push_back(std::move(sum));
  return last_;
}

LibrarySums::Sum& LibrarySums::find(std::uint64_t id) {
  const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const auto& sum) { return sum->id == id; });
  if (found == sums_.end()) fail_run("transport.mpi: a caller waits twice for one operation");
  return **found;
}

void LibrarySums::forget(std::uint64_t id) {
  std::erase_if(sums_, [&](const auto& sum) { return sum->id == id; });
}

bool LibrarySums::done(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  return halted_ || find(id).state >= State::kDone;
}

void LibrarySums::finish(std::uint64_t id) {
  std::unique_lock lock(mutex_);
  Sum& sum = find(id);
  sum.waited_for = true;
  lock.unlock();
  try {
    sum.ring->wait(sum.agreed);
  } catch (...) {
    // Some members may have seen the agreement, begun the sum, and now wait for this one.
    lock.lock();
    halted_ = halted_ || sum.state == State::kSumming;
    forget(id);
    throw;
  }
  lock.lock();
  sum.all_are_there = true;
  lock.unlock();
  wake_();
  lock.lock();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s_);
  ended_.wait_until(lock, limit, [&] { return halted_ || sum.state >= State::kDone; });
  const State state = sum.state;
  const Agreement agreed = sum.agreement;
  const std::string cancelled = cancelled_;
  const bool ended = state >= State::kDone;
  halted_ = halted_ || !ended;
  forget(id);
  lock.unlock();
  ended_.notify_all();
  if (!ended && !cancelled.empty()) throw CancelledError(cancelled);
  if (!ended) {
    throw DeadlineError(fmt::format(
        "transport.mpi: MPI_Iallreduce of {} did not end within {:g} s, though all ranks were there",
        vendor(), deadline_s_));
  }
  if (state == State::kRefused) {
    fail_run(fmt::format(
        "transport.mpi: members of one all_reduce pass {} to {} elements, of types and operations "
        "{} to {}",
        -agreed[1], agreed[0], -agreed[3], agreed[2]));
  }
}

std::vector<std::unique_ptr<LibrarySums::Sum>> LibrarySums::abandon(const Communicator& ring) {
  std::vector<std::unique_ptr<Sum>> gone;
  const std::lock_guard lock(mutex_);
  for (auto& sum : sums_) {
    if (sum->ring != &ring) continue;
    halted_ = halted_ || sum->state == State::kSumming;
    gone.push_back(std::move(sum));
  }
  std::erase(sums_, nullptr);
  if (halted_) ended_.notify_all();
  return gone;
}

void LibrarySums::cancel(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (cancelled_.empty()) cancelled_ = reason;
  halted_ = true;
  ended_.notify_all();
}

bool LibrarySums::halted() {
  const std::lock_guard lock(mutex_);
  return halted_;
}

void LibrarySums::begin(Sum& sum) {
  const Agreement& agreed = sum.agreement;
  if (agreed[0] != -agreed[1] || agreed[2] != -agreed[3]) {
    sum.state = State::kRefused;
    ended_.notify_all();
    return;
  }
  sum.state = State::kSumming;
}

void LibrarySums::advance_sum(Sum& sum) {
  const std::lock_guard lock(session_.mutex());
  const std::int64_t elements = sum.data.elements(), piece = kPieceBytes * elements / sum.data.bytes();
  bool working = false;
  for (MPI_Request& request : sum.pieces) {
    int ended = 0;
    check(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
    if (ended != 0 && sum.begun < elements) {
      const std::int64_t count = std::min(piece, elements - sum.begun);
      check(MPI_Iallreduce(MPI_IN_PLACE,
                           static_cast<char*>(sum.data.data) + dtype_bytes(sum.data.dtype, sum.begun),
                           static_cast<int>(count), type_of(sum.data.dtype), operation_of(sum.op),
                           channels_[sum.channel], &request),
            "MPI_Iallreduce");
      sum.begun += count;
    }
    working = working || request != MPI_REQUEST_NULL;
  }
  if (!working) sum.state = State::kDone;
}

// After a failure of the group `done` is true as well, but the marks are missing.
bool LibrarySums::agreed(Sum& sum) const {
  if (sum.waited_for) return sum.all_are_there;
  return sum.ring->done(sum.agreed) && sum.agreement[kFirstMark] != 0 && sum.agreement[kLastMark] != 0;
}

bool LibrarySums::progress() {
  try {
    return advance();
  } catch (const std::exception& error) {
    cancel(error.what());
    throw;
  }
}

// On one channel all members pass the library the same pieces in the same order: those of one sum, then those
// of the next in starting order.
bool LibrarySums::advance() {
  const std::lock_guard lock(mutex_);
  if (halted_) return false;
  bool working = false;
  std::uint64_t held = 0;  // bit mask of channels with pieces left to begin
  for (const auto& sum : sums_) {
    const std::uint64_t channel = std::uint64_t{1} << sum->channel;
    if (sum->state == State::kAgreeing && (held & channel) == 0 && agreed(*sum)) begin(*sum);
    if (sum->state == State::kSumming) {
      working = true;
      advance_sum(*sum);
      if (sum->state == State::kDone) ended_.notify_all();
    }
    if (sum->state == State::kAgreeing ||
        (sum->state == State::kSumming && sum->begun < sum->data.elements()))
      held |= channel;
  }
  return working;
}

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
