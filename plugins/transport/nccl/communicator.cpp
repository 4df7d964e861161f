// Calls of communicator.hpp.
#include "communicator.hpp"

#include <tenon/sdk/fixed_order.hpp>

#include <exception>

namespace tenon::nccl_transport {
namespace {

/// The checks concern shapes and counts, so both memories are accepted.
TensorView anywhere(TensorView view) {
  view.space = MemorySpace::kHost;
  return view;
}

void check_reduced(DType dtype, ReduceOp op) {
  check_reducible(dtype, op);
  reduced_type(dtype);
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<Group> group)
    : group_(std::move(group)),
      arguments_(group_->name(), group_->rank_of(group_->member()), group_->size()),
      exceptions_(std::uncaught_exceptions()) {}

NcclCommunicator::~NcclCommunicator() {
  group_->close(std::uncaught_exceptions() > exceptions_);
}

Request NcclCommunicator::start_send(TensorView data, int to, int tag) {
  arguments_.check_view("send", anywhere(data));
  arguments_.check_member("send", to);
  return group_->start({Kind::kSend, data.dtype, ReduceOp::kSum, to, tag, data.shape}, data);
}

Request NcclCommunicator::start_receive(TensorView data, int from, int tag) {
  arguments_.check_view("receive", anywhere(data));
  arguments_.check_member("receive", from);
  return group_->start({Kind::kReceive, data.dtype, ReduceOp::kSum, from, tag, data.shape}, data);
}

Request NcclCommunicator::start_all_reduce(TensorView data, ReduceOp op) {
  arguments_.check_view("all_reduce", anywhere(data));
  check_reduced(data.dtype, op);
  return group_->start({Kind::kAllReduce, data.dtype, op, 0, 0, data.shape}, data);
}

Request NcclCommunicator::start_reduce_scatter(TensorView data, ReduceOp op) {
  arguments_.check_rows("reduce_scatter", anywhere(data));
  check_reduced(data.dtype, op);
  return group_->start({Kind::kReduceScatter, data.dtype, op, 0, 0, data.shape}, data);
}

Request NcclCommunicator::start_all_gather(TensorView data) {
  arguments_.check_rows("all_gather", anywhere(data));
  return group_->start({Kind::kAllGather, data.dtype, ReduceOp::kSum, 0, 0, data.shape}, data);
}

Request NcclCommunicator::start_broadcast(TensorView data, int root) {
  arguments_.check_view("broadcast", anywhere(data));
  arguments_.check_member("broadcast", root);
  return group_->start({Kind::kBroadcast, data.dtype, ReduceOp::kSum, root, 0, data.shape}, data);
}

Request NcclCommunicator::start_reduce(TensorView data, int root, ReduceOp op) {
  arguments_.check_view("reduce", anywhere(data));
  arguments_.check_member("reduce", root);
  check_reduced(data.dtype, op);
  return group_->start({Kind::kReduce, data.dtype, op, root, 0, data.shape}, data);
}

Request NcclCommunicator::start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts,
                                           TensorView receive, std::span<const std::int64_t> receive_counts) {
  arguments_.check_all_to_all(anywhere(send), send_counts, anywhere(receive), receive_counts);
  return group_->start({Kind::kAllToAll, send.dtype, ReduceOp::kSum, 0, 0, {}}, send, receive, send_counts,
                       receive_counts);
}

void NcclCommunicator::barrier() {
  wait(group_->start({}, {}));
}

}  // namespace tenon::nccl_transport
