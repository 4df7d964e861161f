// Passes operations to NCCL and tracks them in its stream (group.hpp). Every function holds the group's lock.
#include "group.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tenon::nccl_transport {
namespace {

bool well(int result) {
  return result == kSuccess || result == kInProgress;
}

bool has_work(const Operation& operation) {
  const Signature& s = operation.signature;
  if (s.kind == Kind::kBarrier) return true;
  return !operation.data.empty() || !operation.receive.empty();
}

bool reads_all(const Signature& s, int member) {
  if (s.kind == Kind::kReceive || s.kind == Kind::kAllGather || s.kind == Kind::kBarrier) return false;
  return s.kind != Kind::kBroadcast || s.root == member;
}

TensorView on_device(TensorView view, void* memory) {
  view.data = memory;
  view.space = MemorySpace::kCuda;
  return view;
}

Traffic traffic_of(const Operation& operation, int member, int size) {
  const Signature& s = operation.signature;
  const std::int64_t bytes = operation.data.bytes();
  switch (s.kind) {
    case Kind::kAllReduce:
      return all_reduce_traffic(operation.data.elements(), s.dtype, member, size);
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      return row_ring_traffic(bytes, size);
    case Kind::kBroadcast:
      return broadcast_traffic(bytes, member, s.root, size);
    case Kind::kReduce:
      return reduce_traffic(bytes, member, s.root, size);
    case Kind::kAllToAll:
      return all_to_all_traffic(operation.send_counts, s.dtype, member);
    case Kind::kBarrier:
      return barrier_traffic(size);
    case Kind::kSend:
      if (s.root == member) return {};
      return {static_cast<std::uint64_t>(bytes), 1};
    case Kind::kReceive:
      break;
  }
  return {};
}

}  // namespace

Operation& Group::place() {
  for (const auto& operation : operations_) {
    if (operation->state == Operation::State::kFree) return *operation;
  }
  auto made = std::make_unique<Operation>();
  made->ready = session_->events().make_event();
  operations_.push_back(std::move(made));
  operations_.back()->done = session_->events().make_event();
  return *operations_.back();
}

Operation* Group::find(std::uint64_t id) {
  for (const auto& operation : operations_) {
    if (operation->state != Operation::State::kFree && operation->id == id) return operation.get();
  }
  return nullptr;
}

Request Group::start(const Signature& signature, TensorView data, TensorView receive,
                     std::span<const std::int64_t> send_counts,
                     std::span<const std::int64_t> receive_counts) {
  const std::lock_guard lock(mutex_);
  pump();
  if (failure_) failure_.raise();
  Operation& operation = place();
  operation.signature = signature;
  operation.data = data;
  operation.receive = receive;
  operation.send_counts.assign(send_counts.begin(), send_counts.end());
  operation.receive_counts.assign(receive_counts.begin(), receive_counts.end());
  try {
    operation.state = Operation::State::kQueued;
    stage(operation);
  } catch (...) {
    drop(operation);
    throw;
  }
  operation.id = ++last_id_;
  if (!is_message(signature.kind)) {
    operation.number = started_++;
    const std::lock_guard words(words_.mutex);
    words_.recent[operation.number % words_.recent.size()] = signature;
    words_.started = started_;
  }
  const Traffic leaves = traffic_of(operation, member_, size());
  add_counts({.bytes_sent = leaves.bytes, .messages_sent = leaves.messages, .operations = 1});
  if (has_work(operation)) {
    queue_.push_back(&operation);
  } else {
    operation.state = Operation::State::kFinished;
  }
  pump();
  return {operation.id};
}

// Tensors in host memory go through a buffer on the device; input is copied to it now.
void Group::stage(Operation& operation) {
  Device& device = *session_->device();
  const Signature& s = operation.signature;
  operation.memory = operation.data.data;
  operation.into = operation.receive.data;
  if (s.kind == Kind::kBarrier) {
    if (barrier_memory_ == nullptr) barrier_memory_ = device.allocate(sizeof(std::int32_t));
    operation.memory = barrier_memory_;
  }
  if (operation.data.space == MemorySpace::kHost && !operation.data.empty()) {
    operation.buffer = take_buffer(operation.data.bytes());
    operation.memory = buffers_[static_cast<std::size_t>(operation.buffer)].memory;
    const TensorView there = on_device(operation.data, operation.memory);
    if (reads_all(s, member_)) device.copy(operation.data, there);
    if (s.kind == Kind::kAllGather)
      device.copy(operation.data.rows(member_, member_ + 1), there.rows(member_, member_ + 1));
  }
  if (operation.receive.space == MemorySpace::kHost && !operation.receive.empty()) {
    operation.receive_buffer = take_buffer(operation.receive.bytes());
    operation.into = buffers_[static_cast<std::size_t>(operation.receive_buffer)].memory;
  }
  session_->events().record(operation.ready, session_->streams().stream());
}

int Group::take_buffer(std::int64_t bytes) {
  const auto wanted = static_cast<std::size_t>(bytes);
  Buffer* best = nullptr;
  for (Buffer& some : buffers_) {
    if (!some.taken && some.bytes >= wanted && (best == nullptr || some.bytes < best->bytes)) best = &some;
  }
  for (Buffer& some : buffers_) {
    if (best == nullptr && !some.taken) best = &some;
  }
  if (best == nullptr) best = &buffers_.emplace_back();
  if (best->bytes < wanted) {
    if (best->memory != nullptr)
      session_->device()->release(std::exchange(best->memory, nullptr), best->bytes);
    best->bytes = 0;
    best->memory = session_->device()->allocate(wanted);
    best->bytes = wanted;
  }
  best->taken = true;
  return static_cast<int>(best - buffers_.data());
}

void Group::drop(Operation& operation) {
  for (int* index : {&operation.buffer, &operation.receive_buffer}) {
    if (*index >= 0) buffers_[static_cast<std::size_t>(*index)].taken = false;
    *index = -1;
  }
  std::erase(queue_, &operation);
  std::erase(given_, &operation);
  operation.state = Operation::State::kFree;
}

void Group::pump() {
  if (failure_ || state_ == State::kGone) return;
  try {
    if (state_ == State::kSeeking) seek();
    if (state_ == State::kDeciding) decide();
    if (state_ == State::kShrinking) shrink();
    if (state_ == State::kJoining) settle();
    if (state_ != State::kReady) return;
    poll_call();
    look_at_stream();
    give_queued();
  } catch (const Error& error) {
    fail({Failure::Kind::kError, error.what()});
    ended_ = false;
  }
}

void Group::poll_call() {
  int state = kSuccess;
  check(api().CommGetAsyncError(comm_, &state), "CommGetAsyncError");
  if (state == kInProgress) return;
  check(state, call_);
  if (std::exchange(busy_, false)) record_given();
}

void Group::after_call(int result, const char* name) {
  call_ = name;
  check(result, name);
  busy_ = result == kInProgress;
  if (!busy_) record_given();
}

void Group::record_given() {
  for (Operation* operation : given_) {
    session_->events().record(operation->done, stream_);
    operation->state = Operation::State::kInStream;
  }
  given_.clear();
}

void Group::look_at_stream() {
  for (const auto& operation : operations_) {
    if (operation->state != Operation::State::kInStream || !session_->events().reached(operation->done))
      continue;
    operation->state = Operation::State::kFinished;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - operation->given_at;
    add_counts({.transfer_seconds = took.count()});
  }
}

// Messages are held back for each other: concurrent sends and receives of several members must be in one NCCL
// group, or the first of them would block the stream for the others. They are issued when the caller waits or
// when a collective follows.
void Group::give_queued() {
  while (!busy_ && !queue_.empty()) {
    const bool messages = is_message(queue_.front()->signature.kind);
    const bool only_messages = std::all_of(
        queue_.begin(), queue_.end(), [](const Operation* some) { return is_message(some->signature.kind); });
    if (messages && only_messages && !flush_) return;
    messages ? give_messages() : give(*queue_.front());
  }
}

void Group::give(Operation& operation) {
  session_->streams().make_current();
  session_->events().wait(operation.ready, stream_);
  queue_.erase(queue_.begin());
  operation.state = Operation::State::kGiven;
  operation.given_at = std::chrono::steady_clock::now();
  given_.push_back(&operation);
  const char* name = "";
  const int result = call(operation, &name);
  after_call(result, name);
}

int Group::call(const Operation& operation, const char** name) {
  const Signature& s = operation.signature;
  auto* const memory = static_cast<std::byte*>(operation.memory);
  auto* const stream = static_cast<Stream>(stream_);
  const auto bytes = static_cast<std::size_t>(operation.data.bytes());
  const std::size_t rows = static_cast<std::size_t>(size()), row = bytes / rows;
  const auto numbers = [&](const Reduced& reduced) {
    return static_cast<std::size_t>(operation.data.elements()) * static_cast<std::size_t>(reduced.parts);
  };
  switch (s.kind) {
    case Kind::kAllReduce: {
      *name = "AllReduce";
      const Reduced reduced = reduced_type(s.dtype);
      return api().AllReduce(memory, memory, numbers(reduced), reduced.type, reduce_op(s.op), comm_, stream);
    }
    case Kind::kReduceScatter: {
      *name = "ReduceScatter";
      const Reduced reduced = reduced_type(s.dtype);
      return api().ReduceScatter(memory, memory + row * static_cast<std::size_t>(member_),
                                 numbers(reduced) / rows, reduced.type, reduce_op(s.op), comm_, stream);
    }
    case Kind::kAllGather:
      *name = "AllGather";
      return api().AllGather(memory + row * static_cast<std::size_t>(member_), memory, row, kUint8, comm_,
                             stream);
    case Kind::kBroadcast:
      *name = "Broadcast";
      return api().Broadcast(memory, memory, bytes, kUint8, s.root, comm_, stream);
    case Kind::kReduce: {
      *name = "Reduce";
      const Reduced reduced = reduced_type(s.dtype);
      return api().Reduce(memory, memory, numbers(reduced), reduced.type, reduce_op(s.op), s.root, comm_,
                          stream);
    }
    case Kind::kAllToAll:
      *name = "GroupEnd";
      return call_all_to_all(operation);
    default:
      *name = "AllReduce";
      return api().AllReduce(memory, memory, 1, kInt32, tenon::nccl_transport::kSum, comm_, stream);
  }
}

int Group::call_all_to_all(const Operation& operation) {
  const DType dtype = operation.signature.dtype;
  const auto* from = static_cast<const std::byte*>(operation.memory);
  auto* to = static_cast<std::byte*>(operation.into);
  auto* const stream = static_cast<Stream>(stream_);
  check(api().GroupStart(), "GroupStart");
  int result = kSuccess;
  for (int other = 0; other < size(); ++other) {
    const auto index = static_cast<std::size_t>(other);
    const auto sent = static_cast<std::size_t>(dtype_bytes(dtype, operation.send_counts[index]));
    const auto received = static_cast<std::size_t>(dtype_bytes(dtype, operation.receive_counts[index]));
    if (well(result) && sent > 0) result = api().Send(from, sent, kUint8, other, comm_, stream);
    if (well(result) && received > 0) result = api().Recv(to, received, kUint8, other, comm_, stream);
    from += sent;
    to += received;
  }
  const int end = api().GroupEnd();
  return well(result) ? end : result;
}

// NCCL has no tags and matches the messages of two members in order: here in tag order, which both know.
void Group::give_messages() {
  session_->streams().make_current();
  const auto end = std::find_if(queue_.begin(), queue_.end(),
                                [](const Operation* some) { return !is_message(some->signature.kind); });
  for (auto some = queue_.begin(); some != end; ++some) {
    const auto place =
        std::upper_bound(queue_.begin(), some, *some, [](const Operation* a, const Operation* b) {
          return std::pair(a->signature.root, a->signature.tag) <
                 std::pair(b->signature.root, b->signature.tag);
        });
    std::rotate(place, some, some + 1);
  }
  auto* const stream = static_cast<Stream>(stream_);
  for (auto some = queue_.begin(); some != end; ++some) {
    session_->events().wait((*some)->ready, stream_);
    (*some)->state = Operation::State::kGiven;
    (*some)->given_at = std::chrono::steady_clock::now();
    given_.push_back(*some);
  }
  queue_.erase(queue_.begin(), end);
  flush_ = false;
  check(api().GroupStart(), "GroupStart");
  int result = kSuccess;
  for (const Operation* operation : given_) {
    if (!well(result)) break;
    const Signature& s = operation->signature;
    const auto bytes = static_cast<std::size_t>(operation->data.bytes());
    result = s.kind == Kind::kSend ? api().Send(operation->memory, bytes, kUint8, s.root, comm_, stream)
                                   : api().Recv(operation->memory, bytes, kUint8, s.root, comm_, stream);
  }
  const int ended = api().GroupEnd();
  after_call(well(result) ? ended : result, well(result) ? "GroupEnd" : "Send or ncclRecv");
}

}  // namespace tenon::nccl_transport
