// Links the installed tenon::ring: a header of a frame is read as it was written, and a transport is made of
// a port.
#include <tenon/clock.hpp>
#include <tenon/ring/check_world.hpp>
#include <tenon/ring/transport.hpp>

#include <cstdio>

namespace {

class NoPeers final : public tenon::FramePort {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  void send(int, const tenon::FrameHeader&, std::span<const std::byte>, const void*) override {}
  void poll(Events&, double) override {}
  void wake() override {}
  void release(const void*) override {}
  void close(double) override {}
};

}  // namespace

int main() {
  tenon::FrameHeader read;
  const tenon::FrameHeader written{.kind = tenon::FrameKind::kData, .number = 7};
  if (!tenon::read_frame_header(tenon::write_frame_header(written), read).empty() || read.number != 7)
    return 1;
  const auto clock = tenon::make_wall_clock();
  tenon::WorldSpec world;
  world.ranks = 1;
  world.deadline_s = 1;
  world.clock = clock.get();
  const tenon::RingTransport transport(std::make_unique<NoPeers>(), world, "transport.consumer");
  try {
    tenon::check_process_world(world, "transport.consumer");
  } catch (const std::exception& error) {
    std::puts(error.what());  // it was started alone
    return 0;
  }
  return 2;
}
