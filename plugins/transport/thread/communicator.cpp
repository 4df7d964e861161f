// Calls of communicator.hpp, each with the checks that one member can make.
#include "communicator.hpp"

#include <tenon/sdk/fixed_order.hpp>

#include <cstddef>
#include <exception>

namespace tenon::thread_transport {

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<Group> group, int member)
    : group_(std::move(group)),
      member_(member),
      arguments_(group_->name(), group_->ranks()[static_cast<std::size_t>(member)], group_->size()),
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

}  // namespace tenon::thread_transport
