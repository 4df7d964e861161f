// Connecting, failing and ending of session.hpp.
#include "session.hpp"

#include "group.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tenon::nccl_transport {
namespace {

constexpr std::string_view kHead = "tenon-nccl/1";
/// Other ranks may end later than this one; an orderly end in NCCL needs all of them.
constexpr double kQuietEndSeconds = 2;

std::string random_token() {
  std::uint64_t words[2] = {};
  static_cast<void>(!::getrandom(words, sizeof words, 0));
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

/// Returns whether `part` is a proper subsequence of `whole`.
bool is_part(const std::vector<int>& part, const std::vector<int>& whole) {
  std::size_t at = 0;
  for (const int rank : whole) at += at < part.size() && part[at] == rank ? 1 : 0;
  return at == part.size() && part.size() < whole.size();
}

}  // namespace

void Failure::raise() const {
  if (kind == Kind::kCancelled) throw CancelledError(text);
  if (kind == Kind::kDeadline) throw DeadlineError(text);
  fail_run(text);
}

std::string Failure::words() const {
  std::string line = (kind == Kind::kCancelled ? "cancelled " : "failed ") + text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

void add(LinkCounts& to, const LinkCounts& more) {
  to.bytes_sent += more.bytes_sent;
  to.messages_sent += more.messages_sent;
  to.operations += more.operations;
  to.blocked_seconds += more.blocked_seconds;
  to.transfer_seconds += more.transfer_seconds;
}

Session::Session(const WorldSpec& world, const Settings& settings)
    : library_(settings.library),
      rank_(world.rendezvous->rank()),
      ranks_(world.ranks),
      deadline_s_(world.deadline_s),
      shrink_(settings.shrink && library_.shrinks()),
      rendezvous_(*world.rendezvous) {
  const std::string token = random_token();
  board_ = std::make_unique<Board>(token, settings.interface,
                                   [this](std::string_view question) { return answer(question); });
  const std::vector<std::string> all = rendezvous_.exchange(
      fmt::format("{} {} {} {}", kHead, library_.version(), token, board_->place().text()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::string_view text = all[rank];
    const auto word = [&] {
      const auto end = std::min(text.find(' '), text.size());
      const std::string_view first = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      return std::string(first);
    };
    if (word() != kHead) {
      fail_run(
          fmt::format("transport.nccl: rank {} announced '{}', expected to begin with {}; all ranks run "
                      "the same program and transport",
                      rank, all[rank].substr(0, 200), kHead));
    }
    if (const std::string version = word(); version != library_.version()) {
      fail_config(fmt::format(
          "transport.nccl: rank {} has NCCL {} and rank {} has {}; give all machines one version, e.g. by "
          "transport.library",
          rank, version, rank_, library_.version()));
    }
    tokens_.push_back(word());
    places_.push_back(BoardPlace::read(text, static_cast<int>(rank)));
  }
}

Session::~Session() = default;

void Session::attach(Device& device) {
  auto* const streams = static_cast<DeviceStreams*>(device.query(DeviceStreams::kId));
  auto* const events = static_cast<DeviceEvents*>(device.query(DeviceEvents::kId));
  if (device.space() != MemorySpace::kCuda || streams == nullptr || events == nullptr) {
    fail_config(
        "transport.nccl: the run's device is not one of CUDA, whose memory is all that NCCL reaches; set "
        "device.type = \"cuda\", or transport.type = \"socket\"");
  }
  const std::vector<std::string> all = rendezvous_.exchange(streams->identity());
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (all[a] != all[b]) continue;
      fail_config(fmt::format(
          "transport.nccl: ranks {} and {} have the same device, {}; NCCL takes one rank for each GPU. Start "
          "fewer ranks on that machine, give each its own with device.index or CUDA_VISIBLE_DEVICES, or take "
          "transport.type = \"socket\"",
          a, b, all[a]));
    }
  }
  const std::lock_guard lock(mutex_);
  device_ = &device;
  streams_ = streams;
  events_ = events;
}

Answer Session::ask(int rank, const std::string& question, double seconds) {
  const std::size_t index = rank;
  BoardPlace place;
  {
    const std::lock_guard lock(places_mutex_);
    place = places_[index];
  }
  Answer answer = nccl_transport::ask(place, tokens_[index], question, seconds);
  const std::lock_guard lock(places_mutex_);
  places_[index] = std::move(place);
  return answer;
}

std::string Session::answer(std::string_view question) {
  const auto first = std::min(question.find(' '), question.size());
  const std::string_view verb = question.substr(0, first);
  question.remove_prefix(std::min(first + 1, question.size()));
  const auto second = std::min(question.find(' '), question.size());
  const std::string key(question.substr(0, second));
  question.remove_prefix(std::min(second + 1, question.size()));
  const std::lock_guard lock(mutex_);
  for (const auto& group : groups_) {
    if (group->key() == key) return group->answer(verb, question);
  }
  if (const auto found = last_words_.find(key); found != last_words_.end()) return found->second;
  return cancelled_ ? cancelled_.words() : "unknown";
}

std::uint64_t Session::opening(const std::string& what) {
  const std::lock_guard lock(mutex_);
  return openings_[what]++;
}

void Session::enter(const std::shared_ptr<Group>& group) {
  const std::lock_guard lock(mutex_);
  if (group->epoch() < epoch_) {
    fail_run(
        fmt::format("transport.nccl: '{}' of epoch {} is refused, rank {} is in epoch {}; take the "
                    "membership of the control plane and open it again",
                    group->name(), group->epoch(), rank_, epoch_));
  }
  for (const auto& other : groups_) {
    if (other->name() != group->name() || other->ranks() != group->ranks() ||
        other->epoch() != group->epoch())
      continue;
    fail_run(
        fmt::format("transport.nccl: rank {} has '{}' open already; names are unique among the open "
                    "communicators of the same ranks",
                    rank_, group->name()));
  }
  if (group->epoch() > epoch_) {
    epoch_ = group->epoch();
    end_comms(
        groups_,
        {Failure::Kind::kError,
         fmt::format("transport.nccl: a communicator of an older epoch is used, but rank {} is in epoch {}",
                     rank_, epoch_)},
        false);
  }
  groups_.push_back(group);
  const Failure& why = cancelled_ ? cancelled_ : broken_;
  if (cancelled_ || (broken_ && group->epoch() <= broken_epoch_)) end_comms({group}, why, true);
  tend_parked();
}

void Session::leave(const Group& group, const std::string& last_words) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const auto& some) { return some.get() == &group; });
  if (!group.key().empty()) last_words_[group.key()] = last_words;
  tend_parked();
}

void Session::help_others(const Group* but) {
  Groups others;
  {
    const std::lock_guard lock(mutex_);
    others = groups_;
    tend_parked();
  }
  for (const auto& group : others) {
    if (group.get() == but) continue;
    const std::unique_lock lock(group->mutex(), std::try_to_lock);
    if (lock.owns_lock()) group->pump();
  }
}

void Session::break_all(const Failure& failure, std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  if (!broken_ || broken_epoch_ < epoch) broken_ = failure, broken_epoch_ = epoch;
  if (broken_.kind != Failure::Kind::kCancelled)
    broken_ = {Failure::Kind::kCancelled, fmt::format("rank {} failed: {}", rank_, failure.text)};
  Groups ended;
  for (const auto& group : groups_) {
    if (group->epoch() <= epoch) ended.push_back(group);
  }
  end_comms(ended, broken_, false);
}

void Session::break_one(const Group& group, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  for (const auto& some : groups_) {
    if (some.get() == &group) return end_comms({some}, failure, false);
  }
}

void Session::cancel(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_) cancelled_ = {Failure::Kind::kCancelled, std::string(reason)};
  end_comms(groups_, cancelled_, true);
}

void Session::end() {
  board_.reset();
  std::unique_lock lock(mutex_);
  const bool was_cancelled = static_cast<bool>(cancelled_);
  cancelled_ = {Failure::Kind::kError, "transport.nccl: a communicator is used after its transport ended"};
  const auto limit = std::chrono::steady_clock::now() +
                     std::chrono::duration<double>(std::min(deadline_s_, kQuietEndSeconds));
  tend_parked();
  const auto quiet = [&] {
    return std::none_of(parked_.begin(), parked_.end(), [](const Parked& some) { return some.finalizes; });
  };
  while (!broken_ && !was_cancelled && !quiet() && std::chrono::steady_clock::now() < limit) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
    tend_parked();
  }
  end_comms(groups_, cancelled_, true);
}

// Communicators that share a device would wait for each other's kernels if they were ended one by one.
void Session::end_comms(const Groups& groups, const Failure& failure, bool for_good) {
  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<Comm> aborted, revoked;
  for (const auto& group : groups) {
    locks.emplace_back(group->mutex());
    group->fail(failure);
    if (group->comm() == nullptr && group->parent() == nullptr) continue;
    if (shrink_ && !for_good && group->ready()) {
      if (group->revoke()) revoked.push_back(group->comm());
      continue;
    }
    for (const Comm comm : {group->comm(), group->parent()}) {
      if (comm != nullptr) aborted.push_back(comm);
    }
    group->forget_comm();
  }
  if (for_good) {
    for (const Parked& some : parked_) aborted.push_back(some.comm);
    parked_.clear();
  }
  if (aborted.empty() && revoked.empty()) return;
  const Api& api = library_.api();
  // Ignores the results: the failure has its text, and nothing else can be done.
  api.GroupStart();
  for (const Comm comm : aborted) api.CommAbort(comm);
  for (const Comm comm : revoked) api.CommRevoke(comm, kRevokeDefault);
  api.GroupEnd();
}

void Session::abort(Comm comm) {
  library_.api().CommAbort(comm);
}

void Session::park(Parked parked) {
  const std::lock_guard lock(mutex_);
  parked_.push_back(std::move(parked));
}

Parked Session::take_parent(const std::string& name, std::uint32_t epoch, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const std::string& its_name, std::uint32_t its_epoch,
                        const std::vector<int>& its_ranks) {
    return its_name == name && its_epoch < epoch && is_part(ranks, its_ranks);
  };
  for (auto some = parked_.begin(); some != parked_.end(); ++some) {
    if (some->finalizes || !fits(some->name, some->epoch, some->ranks)) continue;
    Parked found = std::move(*some);
    parked_.erase(some);
    return found;
  }
  for (const auto& group : groups_) {
    if (!fits(group->name(), group->epoch(), group->ranks())) continue;
    const std::lock_guard its(group->mutex());
    if (group->failed() && group->ready() && group->comm() != nullptr) return group->give_comm();
  }
  return {};
}

void Session::tend_parked() {
  const Api& api = library_.api();
  std::erase_if(parked_, [&](const Parked& some) {
    if (!some.finalizes) return false;
    int state = kSuccess;
    if (api.CommGetAsyncError(some.comm, &state) != kSuccess) state = kInternalError;
    if (state == kInProgress) return false;
    state == kSuccess ? api.CommDestroy(some.comm) : api.CommAbort(some.comm);
    return true;
  });
}

void Session::count(Purpose purpose, const LinkCounts& more) {
  const std::lock_guard lock(counts_mutex_);
  add(counts_[static_cast<std::size_t>(purpose)], more);
}

LinkCounts Session::counts(Purpose purpose) const {
  const std::lock_guard lock(counts_mutex_);
  return counts_[static_cast<std::size_t>(purpose)];
}

}  // namespace tenon::nccl_transport
