// All-reduce with direct calls of NCCL: a communicator of its own, one call per operation, and no more than
// is needed to know that the device is through. The baseline of gpu_nccl for the transport.
#pragma once

#include "nccl_device.hpp"

#include "library.hpp"

#include <tenon/transport.hpp>

#include <cstring>

namespace tenon::bench::gpu {

class OwnNccl {
 public:
  /// Collective over the ranks that meet at `place`.
  OwnNccl(const nccl_transport::Library& library, Rendezvous& place, Device& device)
      : library_(library), streams_(ability<DeviceStreams>(device)), events_(ability<DeviceEvents>(device)) {
    streams_.make_current();
    nccl_transport::UniqueId id{};
    if (place.rank() == 0) library_.check(library_.api().GetUniqueId(&id), "GetUniqueId", nullptr);
    const std::string text = place.exchange(std::string(id.bytes, sizeof id.bytes)).front();
    if (text.size() != sizeof id.bytes) fail_run("gpu_nccl: rank 0 sent no id of NCCL");
    std::memcpy(id.bytes, text.data(), sizeof id.bytes);
    nccl_transport::Config config;
    config.blocking = 0;
    library_.check(library_.api().CommInitRankConfig(&comm_, place.ranks(), id, place.rank(), &config),
                   "CommInitRankConfig", nullptr);
    settle("CommInitRankConfig");
    stream_ = streams_.make_stream();
    event_ = events_.make_event();
  }
  ~OwnNccl() {
    if (library_.api().CommFinalize(comm_) == nccl_transport::kInProgress) poll();
    library_.api().CommDestroy(comm_);
    events_.release_event(event_);
    streams_.release_stream(stream_);
  }
  OwnNccl(const OwnNccl&) = delete;
  OwnNccl& operator=(const OwnNccl&) = delete;

  /// `data`: f32 in the device's memory.
  void all_reduce(const TensorView& data) {
    library_.check(library_.api().AllReduce(data.data, data.data, static_cast<std::size_t>(data.elements()),
                                            nccl_transport::kFloat32, nccl_transport::kSum, comm_,
                                            static_cast<nccl_transport::Stream>(stream_)),
                   "AllReduce", comm_);
    settle("AllReduce");
    events_.record(event_, stream_);
    while (!events_.reached(event_)) {
    }
  }

 private:
  int poll() {
    int state = nccl_transport::kInProgress;
    while (state == nccl_transport::kInProgress) {
      if (library_.api().CommGetAsyncError(comm_, &state) != nccl_transport::kSuccess)
        return nccl_transport::kInternalError;
    }
    return state;
  }
  void settle(const char* call) { library_.check(poll(), call, comm_); }

  const nccl_transport::Library& library_;
  DeviceStreams& streams_;
  DeviceEvents& events_;
  nccl_transport::Comm comm_ = nullptr;
  void *stream_ = nullptr, *event_ = nullptr;
};

}  // namespace tenon::bench::gpu
