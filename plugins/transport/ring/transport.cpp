// A member's end of a ring group as a Communicator, and the facade for transports (transport.hpp).
#include <tenon/ring/transport.hpp>
#include <tenon/sdk/communicator_arguments.hpp>
#include <tenon/sdk/fixed_order.hpp>

#include "engine.hpp"

#include <exception>

TENON_ABI_BEGIN

namespace {

using ring::Kind;

class RingCommunicator final : public Communicator {
 public:
  RingCommunicator(std::shared_ptr<RingEngine> engine, std::shared_ptr<ring::Group> group, int world_rank)
      : engine_(std::move(engine)),
        group_(std::move(group)),
        arguments_(group_->name(), world_rank, group_->size()),
        exceptions_(std::uncaught_exceptions()) {}
  ~RingCommunicator() override { group_->close(std::uncaught_exceptions() > exceptions_); }

  int rank() const override { return group_->member(); }
  int size() const override { return group_->size(); }
  Request start_send(TensorView data, int to, int tag) override {
    arguments_.check_view("send", data);
    arguments_.check_member("send", to);
    return group_->start_message(true, data, to, tag);
  }
  Request start_receive(TensorView data, int from, int tag) override {
    arguments_.check_view("receive", data);
    arguments_.check_member("receive", from);
    return group_->start_message(false, data, from, tag);
  }
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    arguments_.check_view("all_reduce", data);
    check_reducible(data.dtype, op);
    return start(Kind::kAllReduce, data, op, 0);
  }
  Request start_reduce_scatter(TensorView data, ReduceOp op) override {
    arguments_.check_rows("reduce_scatter", data);
    check_reducible(data.dtype, op);
    return start(Kind::kReduceScatter, data, op, 0);
  }
  Request start_all_gather(TensorView data) override {
    arguments_.check_rows("all_gather", data);
    return start(Kind::kAllGather, data, ReduceOp::kSum, 0);
  }
  Request start_broadcast(TensorView data, int root) override {
    arguments_.check_view("broadcast", data);
    arguments_.check_member("broadcast", root);
    return start(Kind::kBroadcast, data, ReduceOp::kSum, root);
  }
  Request start_reduce(TensorView data, int root, ReduceOp op) override {
    arguments_.check_view("reduce", data);
    arguments_.check_member("reduce", root);
    check_reducible(data.dtype, op);
    return start(Kind::kReduce, data, op, root);
  }
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    arguments_.check_all_to_all(send, send_counts, receive, receive_counts);
    return group_->start(
        {.kind = Kind::kAllToAll, .dtype = send.dtype},
        {.data = send, .receive = receive, .send_counts = send_counts, .receive_counts = receive_counts});
  }
  bool done(Request request) override { return group_->done(request); }
  void wait(Request request) override { group_->wait(request); }
  void barrier() override { group_->wait(group_->start({}, {})); }
  LinkCounts counts() const override { return group_->counts(); }
  void cancel(std::string_view reason) override { group_->cancel(reason); }

 private:
  Request start(Kind kind, const TensorView& data, ReduceOp op, int root) {
    return group_->start({.kind = kind, .dtype = data.dtype, .shape = data.shape, .op = op, .root = root},
                         {.data = data});
  }

  // Keeps the mutex alive as long as a group uses it.
  const std::shared_ptr<RingEngine> engine_;
  const std::shared_ptr<ring::Group> group_;
  const CommunicatorArguments arguments_;
  const int exceptions_;  // in flight when it was opened
};

}  // namespace

RingTransport::RingTransport(std::unique_ptr<FramePort> port, const WorldSpec& world, std::string name)
    : rank_(port->rank()), engine_(std::make_shared<RingEngine>(std::move(port), world, std::move(name))) {}

RingTransport::~RingTransport() {
  engine_->stop();
}

std::unique_ptr<Communicator> RingTransport::open(int world_rank, const GroupSpec& group) {
  return std::make_unique<RingCommunicator>(engine_, engine_->open(world_rank, group), world_rank);
}

void RingTransport::cancel(std::string_view reason) {
  engine_->cancel(reason);
}

LinkCounts RingTransport::counts(int world_rank, Purpose purpose) const {
  return engine_->counts(world_rank, purpose);
}

TENON_ABI_END
