// A member's communicator, and the connecting of nccl_transport.hpp; other calls are forwarded.
#include "nccl_transport.hpp"

#include "group.hpp"

#include <tenon/error.hpp>
#include <tenon/ring/check_world.hpp>
#include <tenon/sdk/communicator_arguments.hpp>
#include <tenon/sdk/fixed_order.hpp>
#include <tenon/transport.hpp>

#include <exception>
#include <memory>

namespace tenon::nccl_transport {

// A member's view of its group: every call with the checks that one member can make.

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

NcclTransport::NcclTransport(const Options& options)
    : fast_nondeterministic_(options.boolean("fast_nondeterministic")),
      settings_{.library = std::string(options.text("library")),
                .interface = std::string(options.text("interface")),
                .shrink = options.boolean("shrink")} {}

NcclTransport::~NcclTransport() {
  if (session_) session_->end();
}

// Reports missing requirements of the machine first: they are the same for all ranks, and other ranks may not
// exist yet.
void NcclTransport::connect(const WorldSpec& world) {
  if (session_) fail_run("transport.nccl: connected twice");
  if (const std::string lacks = missing(); !lacks.empty()) fail_config(lacks);
  check_process_world(world, "transport.nccl");
  session_ = std::make_shared<Session>(world, settings_);
}

Session& NcclTransport::session() const {
  if (!session_) fail_run("transport.nccl: used before connect");
  return *session_;
}

std::span<const int> NcclTransport::local_ranks() const {
  return {&session().rank(), 1};
}

std::unique_ptr<Communicator> NcclTransport::open(int world_rank, const GroupSpec& group) {
  if (world_rank != session().rank())
    fail_run("transport.nccl: a communicator is opened for a rank of another process");
  return std::make_unique<NcclCommunicator>(Group::open(session_, group));
}

void NcclTransport::cancel(std::string_view reason) {
  if (session_) session_->cancel(reason);
}

LinkCounts NcclTransport::counts(int world_rank, Purpose purpose) const {
  return session_ && world_rank == session_->rank() ? session_->counts(purpose) : LinkCounts{};
}

void* NcclTransport::query(std::string_view interface_id) {
  if (interface_id == DeviceTransport::kId) return static_cast<DeviceTransport*>(this);
  if (interface_id == NotRepeatable::kId) return static_cast<NotRepeatable*>(this);
  return nullptr;
}

std::string NcclTransport::missing() {
  if (!fast_nondeterministic_) {
    return "transport.nccl: NCCL's sums follow an order of its own, so a run is not repeatable bit by bit; "
           "set "
           "transport.fast_nondeterministic = true to accept that, or take transport.type = \"socket\", "
           "whose sums "
           "have a fixed order";
  }
  try {
    const Library opened(settings_.library);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void NcclTransport::attach(int world_rank, Device& device) {
  if (world_rank != session().rank())
    fail_run("transport.nccl: a device is attached for a rank of another process");
  session().attach(device);
}

std::string NcclTransport::reason() const {
  return "sums follow the order of NCCL (transport.fast_nondeterministic)";
}

}  // namespace tenon::nccl_transport

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.transport_nccl",
                               .version = "0.1.0",
                               .summary = "bytes between GPUs of several processes, over NVIDIA's NCCL"},
             tenon::nccl_transport::NcclTransport)
