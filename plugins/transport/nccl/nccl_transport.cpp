// Connecting of nccl_transport.hpp; other calls are forwarded.
#include "nccl_transport.hpp"

#include "communicator.hpp"

#include <tenon/error.hpp>
#include <tenon/ring/check_world.hpp>

namespace tenon::nccl_transport {

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
