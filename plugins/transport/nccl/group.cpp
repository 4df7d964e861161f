// Connection, operations, waiting and ending of a group (group.hpp), in this order.
#include "group.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace tenon::nccl_transport {

// Connection of members (group.hpp): the first one creates NCCL's id, or decides that the communicator of an
// older epoch is shrunk to them; the others ask its board.

namespace {

constexpr auto kAskAgain = std::chrono::milliseconds(3);
constexpr double kAnswerSeconds = 1;

int member_of(int rank, int world, const GroupSpec& spec) {
  const auto refuse = [&](const std::string& what) {
    fail_run(fmt::format("transport.nccl: rank {} opens '{}' of {}: {}", rank, spec.name,
                         ranks_text({spec.ranks.begin(), spec.ranks.end()}), what));
  };
  int member = -1;
  for (std::size_t i = 0; i < spec.ranks.size(); ++i) {
    const int some = spec.ranks[i];
    if (some < 0 || some >= world) refuse(fmt::format("the world has ranks 0 ... {}", world - 1));
    if (std::find(spec.ranks.begin(), spec.ranks.begin() + static_cast<std::ptrdiff_t>(i), some) !=
        spec.ranks.begin() + static_cast<std::ptrdiff_t>(i))
      refuse(fmt::format("rank {} is listed twice", some));
    if (some == rank) member = static_cast<int>(i);
  }
  if (member < 0) refuse("it is not a member");
  if (static_cast<int>(spec.purpose) >= kPurposes) refuse("unknown purpose");
  return member;
}

/// FNV-1a: the same at all members, on all machines.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string hex_of(const UniqueId& id) {
  std::string hex;
  for (const char byte : id.bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

bool read_hex(std::string_view hex, UniqueId& id) {
  if (hex.size() != 2 * kUniqueIdBytes) return false;
  const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  for (std::size_t i = 0; i < kUniqueIdBytes; ++i)
    id.bytes[i] = static_cast<char>(16 * digit(hex[2 * i]) + digit(hex[2 * i + 1]));
  return true;
}

}  // namespace

Group::Group(std::shared_ptr<Session> session, const GroupSpec& spec, int member)
    : session_(std::move(session)),
      name_(spec.name),
      ranks_(spec.ranks.begin(), spec.ranks.end()),
      purpose_(spec.purpose),
      epoch_(spec.epoch),
      deadline_s_(spec.deadline_s > 0 ? spec.deadline_s : session_->deadline_s()),
      member_(member) {
  const std::string what = fmt::format("{} of {} in {}", name_, fmt::join(ranks_, ","), epoch_);
  key_ = fmt::format("{:016x}.{}", hash_of(what), session_->opening(what));
}

Group::~Group() = default;

std::shared_ptr<Group> Group::open(const std::shared_ptr<Session>& session, const GroupSpec& spec) {
  const int member = member_of(session->rank(), session->ranks(), spec);
  if (session->device() == nullptr) {
    fail_config(
        fmt::format("transport.nccl: rank {} opens '{}' and has no device; ranks without one (servers, "
                    "[parallel] servers) need another transport, e.g. transport.type = \"socket\"",
                    session->rank(), spec.name));
  }
  const std::shared_ptr<Group> group(new Group(session, spec, member));
  session->enter(group);
  Parked parent;
  if (session->shrinks()) parent = session->take_parent(group->name_, group->epoch_, group->ranks_);
  const std::lock_guard lock(group->mutex_);
  group->parent_ = std::move(parent);
  if (!group->failed()) group->begin();
  return group;
}

void Group::begin() {
  stream_ = session_->streams().make_stream();
  if (parent_.comm != nullptr) {
    const std::lock_guard words(words_.mutex);
    words_.can = "yes";
  }
  state_ = member_ > 0 ? State::kSeeking : State::kDeciding;
  if (member_ == 0 && parent_.comm == nullptr) make_id();
}

void Group::make_id() {
  UniqueId id{};
  check(api().GetUniqueId(&id), "GetUniqueId");
  {
    const std::lock_guard words(words_.mutex);
    words_.id = "id " + hex_of(id);
  }
  join(id);
}

void Group::seek() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_at_ < kAskAgain) return;
  asked_at_ = now;
  const Answer answer = session_->ask(ranks_[0], "id " + key_, kAnswerSeconds);
  if (!answer.reached) return;  // waiting members detect whether it is gone
  const std::string_view text = answer.text;
  UniqueId id{};
  if (text == "shrink") {
    shrink();
  } else if (text.substr(0, 3) == "id ") {
    if (!read_hex(text.substr(3), id))
      fail_run(fmt::format("transport.nccl: rank {} tells an id of '{}' that is none", ranks_[0], name_));
    join(id);
  }
}

void Group::decide() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_at_ < kAskAgain) return;
  asked_at_ = now;
  for (int other = 1; other < size(); ++other) {
    const Answer answer = session_->ask(rank_of(other), "can " + key_, kAnswerSeconds);
    if (answer.reached && answer.text == "no") return make_id();
    if (!answer.reached || answer.text != "yes") return;
  }
  {
    const std::lock_guard words(words_.mutex);
    words_.id = "shrink";
  }
  shrink();
}

void Group::join(const UniqueId& id) {
  if (parent_.comm != nullptr) session_->abort(std::exchange(parent_.comm, nullptr));
  session_->streams().make_current();
  Config config;
  config.blocking = 0;
  state_ = State::kJoining;
  check(api().CommInitRankConfig(&comm_, size(), id, member_, &config), "CommInitRankConfig");
  settle();
}

// NCCL stores the new communicator when it is created, and reports the progress on the old one.
void Group::shrink() {
  state_ = State::kShrinking;
  int state = kSuccess;
  check(api().CommGetAsyncError(parent_.comm, &state), "CommGetAsyncError");
  if (state == kInProgress) return;
  if (!shrink_called_) {
    if (parent_.comm == nullptr) fail_run(fmt::format("transport.nccl: '{}' cannot be shrunk here", name_));
    std::vector<int> gone;
    for (std::size_t i = 0; i < parent_.ranks.size(); ++i) {
      if (std::find(ranks_.begin(), ranks_.end(), parent_.ranks[i]) == ranks_.end())
        gone.push_back(static_cast<int>(i));
    }
    session_->streams().make_current();
    Config config;
    config.blocking = 0;
    shrink_called_ = true;
    check(api().CommShrink(parent_.comm, gone.data(), static_cast<int>(gone.size()), &made_, &config,
                           kShrinkAbort),
          "CommShrink");
    return;
  }
  session_->library().check(state, "CommShrink", parent_.comm);
  if (made_ == nullptr) return;
  comm_ = std::exchange(made_, nullptr);
  state_ = State::kJoining;
  settle();
}

void Group::settle() {
  int state = kSuccess;
  check(api().CommGetAsyncError(comm_, &state), "CommGetAsyncError");
  if (state == kInProgress) return;
  check(state, shrink_called_ ? "CommShrink" : "CommInitRankConfig");
  state_ = State::kReady;
  // Not destroyed: its other members may be dead, and a destroy may wait for them.
  if (parent_.comm != nullptr) session_->abort(std::exchange(parent_.comm, nullptr));
}

void Group::forget_comm() {
  comm_ = nullptr;
  parent_.comm = nullptr;
  busy_ = false;
  state_ = State::kGone;
}

Parked Group::give_comm() {
  Parked given{name_, epoch_, ranks_, comm_, false};
  forget_comm();
  return given;
}

std::string Group::answer(std::string_view verb, std::string_view argument) const {
  const std::lock_guard words(words_.mutex);
  if (!words_.failure.empty()) return words_.failure;
  if (verb == "id") return words_.id;
  if (verb == "can") return words_.can;
  std::uint64_t number = 0;
  for (const char c : argument) number = 10 * number + static_cast<std::uint64_t>(c - '0');
  const bool known = words_.started > number && words_.started - number <= words_.recent.size();
  return fmt::format("at {}|{}", words_.started,
                     known ? signature_text(words_.recent[number % words_.recent.size()]) : "");
}

// Passes operations to NCCL and tracks them in its stream (group.hpp). Every function holds the group's lock.

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
    operation.memory = buffers_[operation.buffer].memory;
    const TensorView there = on_device(operation.data, operation.memory);
    if (reads_all(s, member_)) device.copy(operation.data, there);
    if (s.kind == Kind::kAllGather)
      device.copy(operation.data.rows(member_, member_ + 1), there.rows(member_, member_ + 1));
  }
  if (operation.receive.space == MemorySpace::kHost && !operation.receive.empty()) {
    operation.receive_buffer = take_buffer(operation.receive.bytes());
    operation.into = buffers_[operation.receive_buffer].memory;
  }
  session_->events().record(operation.ready, session_->streams().stream());
}

int Group::take_buffer(std::int64_t bytes) {
  const std::size_t wanted = bytes;
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
    if (*index >= 0) buffers_[*index].taken = false;
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
    poll_stream();
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

void Group::poll_stream() {
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
  const std::size_t bytes = operation.data.bytes();
  const std::size_t rows = size(), row = bytes / rows;
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
    const std::size_t index = other;
    const std::size_t sent = dtype_bytes(dtype, operation.send_counts[index]);
    const std::size_t received = dtype_bytes(dtype, operation.receive_counts[index]);
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
    const std::size_t bytes = operation->data.bytes();
    result = s.kind == Kind::kSend ? api().Send(operation->memory, bytes, kUint8, s.root, comm_, stream)
                                   : api().Recv(operation->memory, bytes, kUint8, s.root, comm_, stream);
  }
  const int ended = api().GroupEnd();
  after_call(well(result) ? ended : result, well(result) ? "GroupEnd" : "Send or ncclRecv");
}

// Waiting and ending (group.hpp). NCCL reports neither late ranks nor the state of others, so a long wait
// asks their boards for members that are gone, have cancelled, have closed, or have started something else.

namespace {

constexpr double kFirstLook = 0.2, kNextLook = 1, kLookSeconds = 1;
/// Number of members asked at once, unless the deadline has passed.
constexpr std::size_t kAsked = 8;
/// Limit for a device to release the memory of aborted operations.
constexpr double kDrainSeconds = 10;

Time after(Time time, double seconds) {
  constexpr double kYear = 3.2e7;
  return time + std::chrono::duration_cast<Time::duration>(
                    std::chrono::duration<double>(std::clamp(seconds, 0.0, kYear)));
}

double seconds_since(Time begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Returns whether this is a message held back for more messages.
bool holds_messages(const Operation& operation) {
  return operation.state == Operation::State::kQueued && is_message(operation.signature.kind);
}

/// Long waits yield the processor.
void pause(Time begin) {
  const double waited = seconds_since(begin);
  if (waited < 50e-6) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(waited < 2e-3 ? 20 : 200));
}

}  // namespace

void Group::fail(const Failure& failure) {
  ended_ = true;
  if (failure_) return;
  failure_ = failure;
  const std::lock_guard words(words_.mutex);
  words_.failure = failure.words();
}

std::string Group::described(const Operation& operation) const {
  const std::string what = signature_text(operation.signature);
  return is_message(operation.signature.kind) ? fmt::format("{} of '{}'", what, name_)
                                              : fmt::format("{} #{} of '{}'", what, operation.number, name_);
}

bool Group::done(Request request) {
  std::unique_lock lock(mutex_);
  const Operation* const operation = find(request.id);
  flush_ = operation != nullptr && holds_messages(*operation);
  pump();
  flush_ = false;
  return operation == nullptr || failure_ || operation->state == Operation::State::kFinished;
}

void Group::wait(Request request) {
  const Time begin = std::chrono::steady_clock::now();
  const Time limit = after(begin, deadline_s_);
  Time look = after(begin, kFirstLook);
  std::unique_lock lock(mutex_);
  Operation* const operation = find(request.id);
  if (operation == nullptr || request.id == 0) {
    fail_run(
        fmt::format("transport.nccl: rank {} waits twice for a request of '{}', or for one that '{}' did "
                    "not give",
                    session_->rank(), name_, name_));
  }
  while (true) {
    flush_ = holds_messages(*operation);
    pump();
    flush_ = false;
    if (failure_ || operation->state == Operation::State::kFinished) break;
    lock.unlock();
    pause(begin);
    const Time now = std::chrono::steady_clock::now();
    if (now >= look || now >= limit) {
      const Failure found = look_around(*operation, now >= limit);
      if (found && found.all) {
        const std::lock_guard again(mutex_);
        if (operation->state != Operation::State::kFinished) {
          fail(found);
          ended_ = false;
        }
      } else if (found) {
        session_->break_one(*this, found);
      }
      look = after(now, kNextLook);
    }
    if (seconds_since(begin) > 1e-3) session_->help_others(this);
    lock.lock();
  }
  if (failure_ && !ended_) {
    const Failure failure = failure_;
    lock.unlock();
    session_->break_all(failure, epoch_);
    lock.lock();
  }
  const double waited = seconds_since(begin);
  add_counts({.blocked_seconds = waited});
  // An operation that the device has finished succeeds, even if a later one failed.
  if (operation->state == Operation::State::kFinished) {
    copy_back(*operation);
    drop(*operation);
    return;
  }
  const Failure failure = failure_;
  drain(*operation);
  drop(*operation);
  lock.unlock();
  failure.raise();
}

Failure Group::look_around(const Operation& operation, bool at_deadline) {
  const bool message = is_message(operation.signature.kind);
  const std::string mine = signature_text(operation.signature);
  std::vector<int> late, asked;
  const std::size_t members = ranks_.size(), count = at_deadline ? members : std::min(members, kAsked);
  for (std::size_t i = 0; i < count; ++i) {
    const auto other = static_cast<int>(next_asked_++ % members);
    if (message && other != operation.signature.root && !at_deadline) continue;
    if (other != member_) asked.push_back(other);
  }
  for (const int other : asked) {
    const int rank = rank_of(other);
    const Answer answer = session_->ask(
        rank, fmt::format("at {} {}", key_, message ? started_ : operation.number), kLookSeconds);
    const std::string_view text = answer.text;
    if (!answer.reached) {
      if (text == "Connection refused" || text == "Connection reset by peer") {
        return {Failure::Kind::kError,
                fmt::format("transport.nccl: rank {} is gone: nothing answers at its port ({}), during {}",
                            rank, text, described(operation))};
      }
      late.push_back(rank);
    } else if (text.substr(0, 10) == "cancelled ") {
      return {Failure::Kind::kCancelled, std::string(text.substr(10)), false};
    } else if (text.substr(0, 7) == "failed ") {
      return {Failure::Kind::kCancelled, std::string(text.substr(7))};
    } else if (text == "unknown") {
      late.push_back(rank);
    } else {
      std::uint64_t started = 0;
      std::size_t at = text.find(' ') + 1;
      for (; at < text.size() && text[at] != '|'; ++at)
        started = 10 * started + static_cast<std::uint64_t>(text[at] - '0');
      const std::string_view theirs = text.substr(std::min(at + 1, text.size()));
      const bool joined = started > operation.number;
      if (message) continue;
      if (!joined && text.substr(0, 6) == "closed") {
        return {Failure::Kind::kError, fmt::format("transport.nccl: rank {} closed '{}' without joining {}",
                                                   rank, name_, described(operation))};
      }
      if (!joined) late.push_back(rank);
      if (joined && !theirs.empty() && theirs != mine) {
        return {Failure::Kind::kError,
                fmt::format(
                    "transport.nccl: members disagree on operation #{} of '{}': rank {} started {}, rank {} "
                    "started {}",
                    operation.number, name_, session_->rank(), mine, rank, theirs)};
      }
    }
  }
  if (!at_deadline) return {};
  std::string text;
  if (!late.empty()) {
    text =
        fmt::format("{} did not join {} within {:g} s", ranks_text(late), described(operation), deadline_s_);
  } else if (message) {
    text = fmt::format("{} did not end within {:g} s: rank {} has not started its end, or NCCL is stuck",
                       described(operation), deadline_s_, rank_of(operation.signature.root));
  } else {
    text = fmt::format(
        "{} did not end within {:g} s, though all ranks joined it: NCCL is stuck, which "
        "NCCL_DEBUG=INFO tells more of",
        described(operation), deadline_s_);
  }
  return {Failure::Kind::kDeadline, text + "; see its log, or raise [run] deadline if it is rightly slow"};
}

// The caller may free its memory once a wait has ended, also after a failure.
void Group::drain(Operation& operation) {
  if (operation.state != Operation::State::kGiven && operation.state != Operation::State::kInStream) return;
  const Time limit = after(std::chrono::steady_clock::now(), std::min(kDrainSeconds, deadline_s_));
  const Time begin = std::chrono::steady_clock::now();
  try {
    session_->events().record(operation.done, stream_);
    while (!session_->events().reached(operation.done) && std::chrono::steady_clock::now() < limit)
      pause(begin);
  } catch (const Error&) {
    // A lost device no longer accesses memory.
  }
}

void Group::copy_back(Operation& operation) {
  Device& device = *session_->device();
  const Signature& s = operation.signature;
  const auto copy = [&](const TensorView& to, int buffer) {
    TensorView from = to;
    from.data = buffers_[buffer].memory;
    from.space = MemorySpace::kCuda;
    const bool row = s.kind == Kind::kReduceScatter;
    device.copy(row ? from.rows(member_, member_ + 1) : from, row ? to.rows(member_, member_ + 1) : to);
  };
  if (operation.receive_buffer >= 0) copy(operation.receive, operation.receive_buffer);
  if (operation.buffer < 0 || s.kind == Kind::kSend || s.kind == Kind::kAllToAll) return;
  if (s.kind == Kind::kBroadcast && s.root == member_) return;
  if (s.kind == Kind::kReduce && s.root != member_) return;
  copy(operation.data, operation.buffer);
}

void Group::add_counts(const LinkCounts& more) {
  {
    const std::lock_guard lock(counts_mutex_);
    add(counts_, more);
  }
  session_->count(purpose_, more);
}

LinkCounts Group::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

void Group::cancel(std::string_view reason) {
  session_->break_one(*this, {Failure::Kind::kCancelled, std::string(reason)});
}

void Group::close(bool abandoned) {
  std::unique_lock lock(mutex_);
  std::string left;
  for (const auto& operation : operations_) {
    if (operation->state != Operation::State::kFree && operation->state != Operation::State::kFinished)
      left = described(*operation) + " in flight";
  }
  if (!failure_ && (abandoned || !left.empty())) {
    const Failure why{Failure::Kind::kCancelled, fmt::format("rank {} closed '{}' with {}", session_->rank(),
                                                             name_, left.empty() ? "an exception" : left)};
    lock.unlock();
    session_->break_one(*this, why);
    lock.lock();
  }
  const bool failed = static_cast<bool>(failure_);
  for (const auto& operation : operations_) drain(*operation);
  const std::string words = failed ? failure_.words() : fmt::format("closed {}|", started_);
  Comm comm = std::exchange(comm_, nullptr);
  const bool kept = failed && state_ == State::kReady;
  const int finalized =
      comm != nullptr && !failed && state_ == State::kReady ? api().CommFinalize(comm) : kInvalidUsage;
  const bool finalizes = finalized == kSuccess || finalized == kInProgress;
  state_ = State::kGone;
  // The session's lock comes before this group's.
  lock.unlock();
  if (comm != nullptr && (finalizes || kept))
    session_->park({name_, epoch_, ranks_, std::exchange(comm, nullptr), finalizes});
  session_->leave(*this, words);
  if (comm != nullptr) session_->abort(comm);
  if (parent_.comm != nullptr) session_->abort(std::exchange(parent_.comm, nullptr));
  release_memory();
}

void Group::release_memory() {
  Device* const device = session_->device();
  for (Buffer& some : buffers_) {
    if (some.memory != nullptr) device->release(some.memory, some.bytes);
  }
  buffers_.clear();
  if (barrier_memory_ != nullptr)
    device->release(std::exchange(barrier_memory_, nullptr), sizeof(std::int32_t));
  for (const auto& operation : operations_) {
    session_->events().release_event(operation->ready);
    session_->events().release_event(operation->done);
  }
  operations_.clear();
  if (stream_ != nullptr) session_->streams().release_stream(std::exchange(stream_, nullptr));
}

}  // namespace tenon::nccl_transport
