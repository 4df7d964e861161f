// A member's view of its group: every call with the checks that one member can make.
#pragma once

#include "group.hpp"

#include <tenon/sdk/communicator_arguments.hpp>
#include <tenon/transport.hpp>

#include <memory>

namespace tenon::nccl_transport {

/// Accepts views in device memory and in host memory; the latter go through buffers on the device.
class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(std::shared_ptr<Group> group);
  ~NcclCommunicator() override;

  int rank() const override { return group_->member(); }
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
  bool done(Request request) override { return group_->done(request); }
  void wait(Request request) override { group_->wait(request); }
  void barrier() override;
  LinkCounts counts() const override { return group_->counts(); }
  void cancel(std::string_view reason) override { group_->cancel(reason); }

 private:
  const std::shared_ptr<Group> group_;
  const CommunicatorArguments arguments_;
  const int exceptions_;
};

}  // namespace tenon::nccl_transport
