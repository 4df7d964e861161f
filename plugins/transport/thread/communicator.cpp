// Argument checks of communicator.hpp. A wrong argument is refused before anybody else can be left waiting on
// it.
#include "communicator.hpp"

#include <tenon/fixed_order.hpp>

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <functional>

namespace tenon::thread_transport {

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<Group> group, int member)
    : group_(std::move(group)), member_(member), exceptions_(std::uncaught_exceptions()) {}

ThreadCommunicator::~ThreadCommunicator() {
  group_->close_end(member_, std::uncaught_exceptions() > exceptions_);
}

Request ThreadCommunicator::start_send(TensorView data, int to, int tag) {
  check_view("send", data);
  check_member("send", to);
  return group_->start_message(member_, true, data, to, tag);
}

Request ThreadCommunicator::start_receive(TensorView data, int from, int tag) {
  check_view("receive", data);
  check_member("receive", from);
  return group_->start_message(member_, false, data, from, tag);
}

Request ThreadCommunicator::start_all_reduce(TensorView data, ReduceOp op) {
  check_view("all_reduce", data);
  check_reducible(data.dtype, op);
  return group_->start(member_, {Kind::kAllReduce, data.dtype, data.shape, op, 0}, {.data = data});
}

Request ThreadCommunicator::start_reduce_scatter(TensorView data, ReduceOp op) {
  check_rows("reduce_scatter", data);
  check_reducible(data.dtype, op);
  return group_->start(member_, {Kind::kReduceScatter, data.dtype, data.shape, op, 0}, {.data = data});
}

Request ThreadCommunicator::start_all_gather(TensorView data) {
  check_rows("all_gather", data);
  return group_->start(member_, {Kind::kAllGather, data.dtype, data.shape, ReduceOp::kSum, 0},
                       {.data = data});
}

Request ThreadCommunicator::start_broadcast(TensorView data, int root) {
  check_view("broadcast", data);
  check_member("broadcast", root);
  return group_->start(member_, {Kind::kBroadcast, data.dtype, data.shape, ReduceOp::kSum, root},
                       {.data = data});
}

Request ThreadCommunicator::start_reduce(TensorView data, int root, ReduceOp op) {
  check_view("reduce", data);
  check_member("reduce", root);
  check_reducible(data.dtype, op);
  return group_->start(member_, {Kind::kReduce, data.dtype, data.shape, op, root}, {.data = data});
}

Request ThreadCommunicator::start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts,
                                             TensorView receive,
                                             std::span<const std::int64_t> receive_counts) {
  check_counts("all_to_all", send, send_counts);
  check_counts("all_to_all", receive, receive_counts);
  if (send.dtype != receive.dtype) {
    refuse("all_to_all", fmt::format("sends {} and receives {}; the types must be equal",
                                     dtype_name(send.dtype), dtype_name(receive.dtype)));
  }
  const std::less<const std::byte*> before;
  const auto* sent = static_cast<const std::byte*>(send.data);
  const auto* received = static_cast<const std::byte*>(receive.data);
  if (!send.empty() && !receive.empty() && before(sent, received + receive.bytes()) &&
      before(received, sent + send.bytes())) {
    refuse("all_to_all", "the send and receive buffers overlap");
  }
  return group_->start(
      member_, {Kind::kAllToAll, send.dtype, {}, ReduceOp::kSum, 0},
      {.data = send, .receive = receive, .send_counts = send_counts, .receive_counts = receive_counts});
}

void ThreadCommunicator::barrier() {
  wait(group_->start(member_, {}, {}));
}

void ThreadCommunicator::refuse(std::string_view call, const std::string& what) const {
  fail_run(fmt::format("{} on '{}' by rank {}: {}", call, group_->name(),
                       group_->ranks()[static_cast<std::size_t>(member_)], what));
}

void ThreadCommunicator::check_view(std::string_view call, const TensorView& view) const {
  if (view.space != MemorySpace::kHost)
    refuse(call, "the tensor is not in host memory, all that this transport reaches");
  if (view.data == nullptr && view.elements() != 0)
    refuse(call, fmt::format("no data for {}", view.shape.text()));
}

void ThreadCommunicator::check_member(std::string_view call, int member) const {
  if (member >= 0 && member < size()) return;
  refuse(call, fmt::format("member {} does not exist; the group has members 0 ... {}", member, size() - 1));
}

void ThreadCommunicator::check_rows(std::string_view call, const TensorView& view) const {
  check_view(call, view);
  if (view.shape.rank() < 1 || view.shape[0] != size()) {
    refuse(call, fmt::format("the tensor is {}, expected one row for each of the {} members",
                             view.shape.text(), size()));
  }
  if (view.elements() / size() * dtype_bits(view.dtype) % 8 != 0) {
    refuse(call, fmt::format("a row of {} {} ends inside a byte", dtype_name(view.dtype), view.shape.text()));
  }
}

void ThreadCommunicator::check_counts(std::string_view call, const TensorView& view,
                                      std::span<const std::int64_t> counts) const {
  check_view(call, view);
  if (counts.size() != static_cast<std::size_t>(size())) {
    refuse(call, fmt::format("{} counts, expected one for each of the {} members", counts.size(), size()));
  }
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    if (count < 0 || count > view.elements() - total) {
      refuse(call, fmt::format("a count of {} does not fit a tensor of {} elements", count, view.elements()));
    }
    if (count * dtype_bits(view.dtype) % 8 != 0) {
      refuse(call, fmt::format("{} elements of {} end inside a byte", count, dtype_name(view.dtype)));
    }
    total += count;
  }
  if (total != view.elements()) {
    refuse(call,
           fmt::format("the counts add up to {}, but the tensor has {} elements", total, view.elements()));
  }
}

}  // namespace tenon::thread_transport
