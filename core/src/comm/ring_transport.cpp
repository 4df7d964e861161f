// A member's end of a ring group as a Communicator, and the facade that transports hold (ring_transport.hpp).
#include <tenon/ring_transport.hpp>
#include <tenon/sdk/communicator_arguments.hpp>
#include <tenon/sdk/fixed_order.hpp>

#include "comm/ring_engine.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

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
    return group_->start({.kind = kind, .dtype = data.dtype, .op = op, .root = root, .shape = data.shape},
                         {.data = data});
  }

  // Keeps the mutex alive for as long as there is a group under it.
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

void check_process_world(const WorldSpec& world, std::string_view name) {
  if (world.ranks < 1) fail_config(fmt::format("{}: {} ranks, expected at least 1", name, world.ranks));
  if (!(world.deadline_s > 0))
    fail_config(fmt::format("{}: the deadline is {} s, expected more than 0", name, world.deadline_s));
  if (world.clock == nullptr) fail_run(fmt::format("{}: connected without a clock", name));
  if (world.clock->simulated()) {
    fail_config(
        fmt::format("{}: the simulated clock orders threads of one process, but these ranks are "
                    "processes; set transport.clock.type = \"wall\", or transport.type = \"thread\"",
                    name));
  }
  const LinkSpec& link = world.link;
  if (link.bandwidth_bits_per_s != 0 || link.latency_s != 0 || link.jitter_s != 0) {
    fail_config(
        fmt::format("{}: [transport.link] models a link, but this transport has a real one; remove the "
                    "table, or set transport.type = \"thread\"",
                    name));
  }
  if (world.rendezvous == nullptr) {
    fail_config(
        fmt::format("{}: its ranks are processes, and this one was started alone; start them with "
                    "tenon launch -n {} -- train ..., or set transport.type = \"thread\"",
                    name, world.ranks));
  }
  const int rank = world.rendezvous->rank(), ranks = world.rendezvous->ranks();
  if (ranks != world.ranks || rank < 0 || rank >= ranks) {
    fail_config(
        fmt::format("{}: the configuration has {} ranks ([parallel]), but {} processes were started and "
                    "this one is rank {}; start as many as there are ranks",
                    name, world.ranks, ranks, rank));
  }
}

TENON_ABI_END
