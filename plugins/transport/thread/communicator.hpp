// One rank's end of a group as a Communicator: makes the checks of a single member, then calls the group.
#pragma once

#include "group.hpp"

#include <tenon/sdk/communicator_arguments.hpp>
#include <tenon/transport.hpp>

#include <memory>

namespace tenon::thread_transport {

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

}  // namespace tenon::thread_transport
