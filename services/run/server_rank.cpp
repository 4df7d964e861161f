// The life of a server rank (server_rank.hpp).
#include "run/server_rank.hpp"

#include "loop/replica.hpp"

#include "loop/parts.hpp"
#include "plugin/guard.hpp"
#include "run/world.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sync.hpp>
#include <tenon/sync_extra.hpp>

#include <fmt/format.h>

namespace tenon::train {
namespace {

/// Longest silence of a trainer: longer than evaluations, saves and slots of any length.
constexpr double kTrainerSilenceSeconds = 24.0 * 3600;

class Node final : public ServerNode {
 public:
  Node(World& world, int rank, RankHost& host) : world_(world), rank_(rank), host_(host) {}
  int server() const override { return rank_ - trainers(); }
  int servers() const override { return static_cast<int>(world_.settings.parallel.servers); }
  int trainers() const override { return static_cast<int>(world_.settings.parallel.trainers()); }
  int parts() const override { return static_cast<int>(world_.settings.parallel.ranks_per_replica()); }
  Host& host() override { return host_; }
  std::unique_ptr<Communicator> open(int trainer, std::string_view name, Purpose purpose) override {
    if (trainer < 0 || trainer >= trainers()) {
      fail_plugin(fmt::format("a server opens '{}' to trainer {}; there are {}", name, trainer, trainers()));
    }
    const int members[] = {trainer, rank_};
    return world_.links.transport->open(rank_,
                                        {members, pair_name(name), purpose, 0, kTrainerSilenceSeconds});
  }

 private:
  World& world_;
  int rank_;
  RankHost& host_;
};

}  // namespace

void run_server(World& world, int rank) {
  set_parallel_threads(1);
  PauseGate gate(*world.clock, world.settings.run.deadline);
  HostSpec spec;
  spec.rank = rank;
  spec.world_size = static_cast<int>(world.settings.parallel.world());
  // After all replicas in the order of ties.
  spec.replica = static_cast<int>(world.settings.parallel.ranks + rank - world.settings.parallel.trainers());
  spec.deadline_s = world.settings.run.deadline;
  spec.clock = world.clock.get();
  spec.control = world.links.control.get();
  RankHost host(spec, gate);
  const config::CheckedComponent* const named = world.checked.component("sync");
  const auto refuse = [&](std::string_view who, std::string_view why) {
    fail_config(
        fmt::format("parallel.servers = {}: {} places nothing on servers{}{}; set it to 0, or choose "
                    "a strategy around a centre that servers hold",
                    world.settings.parallel.servers, who, why.empty() ? "" : ": ", why));
  };
  if (named == nullptr) refuse("a run without a [sync] table", "");
  const config::CheckedComponent chosen = named->copy();
  world.registry.create_inner(*chosen.options, host);
  const std::unique_ptr<ResolvedOptions, InnerEnd> inner(chosen.options.get());
  const Component<Sync> sync = world.registry.create<Sync>(chosen.type, *chosen.options, host);
  const GuardContext names{"", chosen.type, rank, -1};
  auto* serving = guard(names, [&] { return static_cast<SyncServer*>(sync->query(SyncServer::kId)); });
  const std::string who = fmt::format("sync strategy '{}'", chosen.type);
  if (serving == nullptr) refuse(who, "");
  const std::string_view declines = guard(names, [&] { return serving->declines(); });
  if (!declines.empty()) refuse(who, declines);
  Node node(world, rank, host);
  guard(names, [&] { serving->serve(node); });
}

}  // namespace tenon::train
