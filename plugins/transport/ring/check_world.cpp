// Worlds that transports of processes reject (check_world.hpp). An object of its own in the archive: `nccl`
// uses nothing else of the library.
#include <tenon/ring/check_world.hpp>

#include <tenon/clock.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

TENON_ABI_BEGIN

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
