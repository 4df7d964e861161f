// Calls that may wait for other ranks have twice their deadline: the transport itself ends them at the
// deadline, and only one that does not hangs.
#include "loop/guarded_transport.hpp"

#include "plugin/process_end.hpp"

#include <utility>

namespace tenon::train {
namespace {

constexpr float kWaits = 2;

class GuardedCommunicator final : public CommunicatorDecorator {
 public:
  GuardedCommunicator(std::unique_ptr<Communicator> inner, const CallNames& names)
      : CommunicatorDecorator(std::move(inner)), names_(names) {}
  ~GuardedCommunicator() override {
    const GuardContext here = names_.context();
    const PluginCallScope scope(here);
    inner_.reset();
  }
  int rank() const override {
    return names_.call([&] { return inner_->rank(); });
  }
  int size() const override {
    return names_.call([&] { return inner_->size(); });
  }
  Request start_send(TensorView data, int to, int tag) override {
    return names_.waiting_call([&] { return inner_->start_send(data, to, tag); });
  }
  Request start_receive(TensorView data, int from, int tag) override {
    return names_.waiting_call([&] { return inner_->start_receive(data, from, tag); });
  }
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    return names_.waiting_call([&] { return inner_->start_all_reduce(data, op); });
  }
  Request start_reduce_scatter(TensorView data, ReduceOp op) override {
    return names_.waiting_call([&] { return inner_->start_reduce_scatter(data, op); });
  }
  Request start_all_gather(TensorView data) override {
    return names_.waiting_call([&] { return inner_->start_all_gather(data); });
  }
  Request start_broadcast(TensorView data, int root) override {
    return names_.waiting_call([&] { return inner_->start_broadcast(data, root); });
  }
  Request start_reduce(TensorView data, int root, ReduceOp op) override {
    return names_.waiting_call([&] { return inner_->start_reduce(data, root, op); });
  }
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    return names_.waiting_call(
        [&] { return inner_->start_all_to_all(send, send_counts, receive, receive_counts); });
  }
  bool done(Request request) override {
    return names_.waiting_call([&] { return inner_->done(request); });
  }
  void wait(Request request) override {
    names_.waiting_call([&] { inner_->wait(request); });
  }
  void barrier() override {
    names_.waiting_call([&] { inner_->barrier(); });
  }
  LinkCounts counts() const override {
    return names_.call([&] { return inner_->counts(); });
  }
  void cancel(std::string_view reason) override {
    names_.call([&] { inner_->cancel(reason); });
  }

 private:
  const CallNames names_;
};

}  // namespace

GuardedTransport::GuardedTransport(Component<Transport> transport, double deadline_s)
    : transport_(std::move(transport)), deadline_s_(deadline_s) {}

// The run's watch has ended by now.
GuardedTransport::~GuardedTransport() {
  const CallNames of_end = names(-1, kWatchedElsewhere);
  const GuardContext here = of_end.context();
  const plugin::HangWatch watch(here, "destroy", kWaits * deadline_s_);
  transport_ = {};
}

CallNames GuardedTransport::names(int world_rank, float patience) const {
  const ComponentRef& ref = transport_.handle().ref();
  return {ref.plugin, ref.name, world_rank, nullptr, nullptr, patience};
}

void GuardedTransport::connect(const WorldSpec& world) {
  names(-1, kWaits).waiting_call([&] { transport_->connect(world); });
}

std::span<const int> GuardedTransport::local_ranks() const {
  return names(-1).call([&] { return transport_->local_ranks(); });
}

std::unique_ptr<Communicator> GuardedTransport::open(int world_rank, const GroupSpec& group) {
  auto opened = names(world_rank, kWaits).waiting_call([&] { return transport_->open(world_rank, group); });
  const double longest = group.deadline_s > 0 ? group.deadline_s : deadline_s_;
  return std::make_unique<GuardedCommunicator>(
      std::move(opened), names(world_rank, kWaits * static_cast<float>(longest / deadline_s_)));
}

// The run has failed when it cancels, and its watch may be who calls: another one looks at this call.
void GuardedTransport::cancel(std::string_view reason) {
  const CallNames of_cancel = names(-1, kWatchedElsewhere);
  const GuardContext here = of_cancel.context();
  const plugin::HangWatch watch(here, "cancel", kWaits * deadline_s_);
  of_cancel.call([&] { transport_->cancel(reason); });
}

LinkCounts GuardedTransport::counts(int world_rank, Purpose purpose) const {
  return names(world_rank).call([&] { return transport_->counts(world_rank, purpose); });
}

void* GuardedTransport::query(std::string_view interface_id) {
  void* const found = names(-1).call([&] { return transport_->query(interface_id); });
  if (found == nullptr) return nullptr;
  const auto offered = [&](auto*& noted) -> void* {
    using Offered = std::remove_pointer_t<std::remove_reference_t<decltype(noted)>>;
    noted = static_cast<Offered*>(found);
    return static_cast<Offered*>(this);
  };
  if (interface_id == Rendezvous::kId) return offered(rendezvous_);
  if (interface_id == NotRepeatable::kId) return offered(not_repeatable_);
  if (interface_id == DeviceTransport::kId) return offered(device_transport_);
  return found;
}

int GuardedTransport::rank() const {
  return names(-1).call([&] { return rendezvous_->rank(); });
}

int GuardedTransport::ranks() const {
  return names(-1).call([&] { return rendezvous_->ranks(); });
}

std::vector<std::string> GuardedTransport::exchange(const std::string& text) {
  return names(-1, kWaits).waiting_call([&] { return rendezvous_->exchange(text); });
}

std::string GuardedTransport::reason() const {
  return names(-1).call([&] { return not_repeatable_->reason(); });
}

std::string GuardedTransport::missing() {
  return names(-1).call([&] { return device_transport_->missing(); });
}

void GuardedTransport::attach(int world_rank, Device& device) {
  names(world_rank, kWaits).waiting_call([&] { device_transport_->attach(world_rank, device); });
}

}  // namespace tenon::train
