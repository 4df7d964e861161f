// A rank's communicator, and opening and epochs of the thread transport (thread_transport.hpp).
#include "thread_transport.hpp"

#include "group.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/communicator_arguments.hpp>
#include <tenon/sdk/fixed_order.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <string>

namespace tenon::thread_transport {

/// One rank's end of a group as a Communicator: makes the checks of a single member, then calls the group.
class ThreadCommunicator final : public Communicator {
 public:
  // Shared: a group lives as long as the last of its ends, in any thread.
  ThreadCommunicator(std::shared_ptr<Group> group, int member);
  ~ThreadCommunicator() override;

  int rank() const override { return member_; }
  int size() const override { return group_->size(); }
  Request start_send(TensorView data, int to, int tag) override;
  Request start_receive(TensorView data, int from, int tag) override;
  Request start_all_reduce(TensorView data, ReduceOp op) override;
  Request start_reduce_scatter(TensorView data, ReduceOp op) override;
  Request start_all_gather(TensorView data) override;
  Request start_broadcast(TensorView data, int root) override;
  Request start_reduce(TensorView data, int root, ReduceOp op) override;
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override;
  bool done(Request request) override { return group_->done(member_, request); }
  void wait(Request request) override { group_->wait(member_, request); }
  void barrier() override;
  LinkCounts counts() const override { return group_->counts(member_); }
  void cancel(std::string_view reason) override { group_->cancel(reason); }

 private:
  const std::shared_ptr<Group> group_;
  const int member_;
  const CommunicatorArguments arguments_;
  const int exceptions_;  // in flight when it was opened
};

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<Group> group, int member)
    : group_(std::move(group)),
      member_(member),
      arguments_(group_->name(), group_->ranks()[member], group_->size()),
      exceptions_(std::uncaught_exceptions()) {}

ThreadCommunicator::~ThreadCommunicator() {
  group_->close_end(member_, std::uncaught_exceptions() > exceptions_);
}

Request ThreadCommunicator::start_send(TensorView data, int to, int tag) {
  arguments_.check_view("send", data);
  arguments_.check_member("send", to);
  return group_->start_message(member_, true, data, to, tag);
}

Request ThreadCommunicator::start_receive(TensorView data, int from, int tag) {
  arguments_.check_view("receive", data);
  arguments_.check_member("receive", from);
  return group_->start_message(member_, false, data, from, tag);
}

Request ThreadCommunicator::start_all_reduce(TensorView data, ReduceOp op) {
  arguments_.check_view("all_reduce", data);
  check_reducible(data.dtype, op);
  return group_->start(member_, {Kind::kAllReduce, data.dtype, data.shape, op, 0}, {.data = data});
}

Request ThreadCommunicator::start_reduce_scatter(TensorView data, ReduceOp op) {
  arguments_.check_rows("reduce_scatter", data);
  check_reducible(data.dtype, op);
  return group_->start(member_, {Kind::kReduceScatter, data.dtype, data.shape, op, 0}, {.data = data});
}

Request ThreadCommunicator::start_all_gather(TensorView data) {
  arguments_.check_rows("all_gather", data);
  return group_->start(member_, {Kind::kAllGather, data.dtype, data.shape, ReduceOp::kSum, 0},
                       {.data = data});
}

Request ThreadCommunicator::start_broadcast(TensorView data, int root) {
  arguments_.check_view("broadcast", data);
  arguments_.check_member("broadcast", root);
  return group_->start(member_, {Kind::kBroadcast, data.dtype, data.shape, ReduceOp::kSum, root},
                       {.data = data});
}

Request ThreadCommunicator::start_reduce(TensorView data, int root, ReduceOp op) {
  arguments_.check_view("reduce", data);
  arguments_.check_member("reduce", root);
  check_reducible(data.dtype, op);
  return group_->start(member_, {Kind::kReduce, data.dtype, data.shape, op, root}, {.data = data});
}

Request ThreadCommunicator::start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts,
                                             TensorView receive,
                                             std::span<const std::int64_t> receive_counts) {
  arguments_.check_all_to_all(send, send_counts, receive, receive_counts);
  return group_->start(
      member_, {Kind::kAllToAll, send.dtype, {}, ReduceOp::kSum, 0},
      {.data = send, .receive = receive, .send_counts = send_counts, .receive_counts = receive_counts});
}

void ThreadCommunicator::barrier() {
  wait(group_->start(member_, {}, {}));
}

void ThreadTransport::connect(const WorldSpec& world) {
  if (world_) fail_run("transport.thread: connected twice");
  if (world.ranks < 1)
    fail_config(fmt::format("transport.thread: {} ranks, expected at least 1", world.ranks));
  if (!(world.deadline_s > 0)) {
    fail_config(
        fmt::format("transport.thread: the deadline is {} s, expected more than 0", world.deadline_s));
  }
  const LinkSpec& link = world.link;
  if (!(link.bandwidth_bits_per_s >= 0 && link.latency_s >= 0 && link.jitter_s >= 0)) {
    fail_config(fmt::format("transport.link: bandwidth {}, latency {} and jitter {} must not be negative",
                            link.bandwidth_bits_per_s, link.latency_s, link.jitter_s));
  }
  if (!world.clock) fail_run("transport.thread: connected without a clock");
  if (world.rendezvous != nullptr) {
    fail_config(
        "transport.thread: its ranks are threads of one process, but this process is one rank of several; "
        "start it without a launcher, or choose a transport of processes, e.g. --set transport.type=socket");
  }
  world_ = std::make_shared<World>(world);
  ranks_.resize(world.ranks);
  std::iota(ranks_.begin(), ranks_.end(), 0);
  newest_epoch_.assign(ranks_.size(), 0);
}

std::unique_ptr<Communicator> ThreadTransport::open(int world_rank, const GroupSpec& spec) {
  if (!world_) fail_run("transport.thread: open before connect");
  const int member = check_group(world_rank, spec);
  const std::lock_guard lock(mutex_);
  refuse_or_adopt_epoch(spec);
  std::shared_ptr<Group> group = find_or_make(member, spec);
  if (!cancelled_.empty()) group->cancel(cancelled_);
  auto communicator = std::make_unique<ThreadCommunicator>(group, member);
  group->open_end(member, spec.deadline_s);
  return communicator;
}

void ThreadTransport::cancel(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_.empty()) return;
  cancelled_ = reason;
  for (const auto& group : groups_) group->cancel(reason);
}

LinkCounts ThreadTransport::counts(int world_rank, Purpose purpose) const {
  const bool known = world_ && world_rank >= 0 && world_rank < static_cast<int>(ranks_.size()) &&
                     static_cast<int>(purpose) < kPurposes;
  return known ? world_->totals(world_rank, purpose) : LinkCounts{};
}

int ThreadTransport::check_group(int world_rank, const GroupSpec& spec) const {
  const auto refuse = [&](const std::string& what) {
    fail_run(fmt::format("transport.thread: rank {} opens '{}' of ranks {}: {}", world_rank, spec.name,
                         fmt::join(spec.ranks, ", "), what));
  };
  int member = -1;
  for (std::size_t i = 0; i < spec.ranks.size(); ++i) {
    const int rank = spec.ranks[i];
    if (rank < 0 || rank >= static_cast<int>(ranks_.size())) {
      refuse(fmt::format("the world has ranks 0 ... {}", ranks_.size() - 1));
    }
    if (std::find(spec.ranks.begin(), spec.ranks.begin() + static_cast<std::ptrdiff_t>(i), rank) !=
        spec.ranks.begin() + static_cast<std::ptrdiff_t>(i)) {
      refuse(fmt::format("rank {} is listed twice", rank));
    }
    if (rank == world_rank) member = static_cast<int>(i);
  }
  if (member < 0) refuse("it is not a member");
  if (static_cast<int>(spec.purpose) >= kPurposes) refuse("unknown purpose");
  return member;
}

// A newer epoch ends the communicators of older ones that share a rank with it, because not all their members
// will join.
void ThreadTransport::refuse_or_adopt_epoch(const GroupSpec& spec) {
  for (const int rank : spec.ranks) {
    const std::uint32_t newest = newest_epoch_[rank];
    if (newest <= spec.epoch) continue;
    fail_run(fmt::format(
        "transport.thread: '{}' of epoch {} is refused, rank {} is in epoch {}; take the membership "
        "of the control plane and open it again",
        spec.name, spec.epoch, rank, newest));
  }
  for (const int rank : spec.ranks) newest_epoch_[rank] = spec.epoch;
  for (const auto& group : groups_) {
    if (group->epoch() >= spec.epoch) continue;
    const auto ranks = group->ranks();
    const auto shared = std::find_if(ranks.begin(), ranks.end(), [&](int rank) {
      return std::find(spec.ranks.begin(), spec.ranks.end(), rank) != spec.ranks.end();
    });
    if (shared == ranks.end()) continue;
    group->retire(fmt::format("operation refused: '{}' belongs to epoch {}, but rank {} is in epoch {}",
                              group->name(), group->epoch(), *shared, spec.epoch));
  }
}

// A name may be opened again once closed; a rank joins the oldest group in which it has not been yet.
std::shared_ptr<Group> ThreadTransport::find_or_make(int member, const GroupSpec& spec) {
  std::erase_if(groups_, [](const auto& group) { return group->all_closed(); });
  for (const auto& group : groups_) {
    const bool same =
        group->epoch() == spec.epoch && group->name() == spec.name &&
        std::equal(group->ranks().begin(), group->ranks().end(), spec.ranks.begin(), spec.ranks.end());
    if (!same) continue;
    const int rank = spec.ranks[member];
    const Group::End end = group->end_of(member);
    if (end == Group::End::kOpen) {
      fail_run(
          fmt::format("transport.thread: rank {} has '{}' open already; names are unique among the open "
                      "communicators of the same ranks",
                      rank, spec.name));
    }
    if (end == Group::End::kClosed) continue;
    if (group->purpose() != spec.purpose) {
      fail_run(fmt::format("transport.thread: rank {} opens '{}' for {}, another rank for {}", rank,
                           spec.name, purpose_name(spec.purpose), purpose_name(group->purpose())));
    }
    return group;
  }
  return groups_.emplace_back(std::make_shared<Group>(world_, spec));
}

}  // namespace tenon::thread_transport

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.transport_thread",
                               .version = "0.1.0",
                               .summary = "bytes between ranks that are threads of one process"},
             tenon::thread_transport::ThreadTransport)
