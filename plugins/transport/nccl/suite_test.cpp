// The suite of transports of processes (plugins/transport/ring/testing): its tensors are in host memory, so
// they go through buffers on the device. The fake library's sums have the order that the suite expects.
#include "test_world.hpp"

namespace tenon::testing {

std::unique_ptr<ProcessWorld> make_process_world(int ranks, double deadline_s) {
  fake_nccl_reset();
  return std::make_unique<nccl_transport::NcclWorld>(ranks, deadline_s);
}

}  // namespace tenon::testing
