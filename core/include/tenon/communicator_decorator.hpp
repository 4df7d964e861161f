// Base of a communicator around another one: everything goes to the inner one, so a decorator overrides what
// it changes and calls CommunicatorDecorator's version to reach it.
#pragma once

#include <tenon/transport.hpp>

#include <utility>

TENON_ABI_BEGIN

class CommunicatorDecorator : public Communicator {
 public:
  explicit CommunicatorDecorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  ~CommunicatorDecorator() override;
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Request start_send(TensorView data, int to, int tag) override { return inner_->start_send(data, to, tag); }
  Request start_receive(TensorView data, int from, int tag) override {
    return inner_->start_receive(data, from, tag);
  }
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    return inner_->start_all_reduce(data, op);
  }
  Request start_reduce_scatter(TensorView data, ReduceOp op) override {
    return inner_->start_reduce_scatter(data, op);
  }
  Request start_all_gather(TensorView data) override { return inner_->start_all_gather(data); }
  Request start_broadcast(TensorView data, int root) override { return inner_->start_broadcast(data, root); }
  Request start_reduce(TensorView data, int root, ReduceOp op) override {
    return inner_->start_reduce(data, root, op);
  }
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    return inner_->start_all_to_all(send, send_counts, receive, receive_counts);
  }
  bool done(Request request) override { return inner_->done(request); }
  void wait(Request request) override { inner_->wait(request); }
  void barrier() override { inner_->barrier(); }
  LinkCounts counts() const override { return inner_->counts(); }
  void cancel(std::string_view reason) override { inner_->cancel(reason); }

 protected:
  std::unique_ptr<Communicator> inner_;
};

TENON_ABI_END
