// Connection of members (group.hpp): the first one creates NCCL's id, or decides that the communicator of an
// older epoch is shrunk to them; the others ask its board.
#include "group.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tenon::nccl_transport {
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

}  // namespace tenon::nccl_transport
