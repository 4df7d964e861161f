// The transport `thread`: ranks are threads of this process and memory is shared, yet every rank counts what
// a ring over a network would send, and under a link model every operation takes the time that such a ring
// would take.
#pragma once

#include "group.hpp"
#include "world.hpp"

#include <tenon/plugin.hpp>
#include <tenon/transport.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::thread_transport {

/// Thread-safe after connect(). Communicators may outlive it, but not the run's clock.
class ThreadTransport final : public Transport {
 public:
  static constexpr ComponentInfo kInfo{.id = "thread",
                                       .summary = "ranks as threads of one process, over shared memory"};

  ThreadTransport() = default;
  explicit ThreadTransport(const Options&) {}  // the core's [transport] tables come with connect()

  void connect(const WorldSpec& world) override;
  std::span<const int> local_ranks() const override { return ranks_; }
  std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group) override;
  void cancel(std::string_view reason) override;
  LinkCounts counts(int world_rank, Purpose purpose) const override;
  void* query(std::string_view) override { return nullptr; }

 private:
  int check_group(int world_rank, const GroupSpec& spec) const;
  void refuse_or_adopt_epoch(const GroupSpec& spec);
  std::shared_ptr<Group> find_or_make(int member, const GroupSpec& spec);

  std::shared_ptr<World> world_;
  std::vector<int> ranks_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::vector<std::uint32_t> newest_epoch_;  // by world rank
  std::string cancelled_;                    // why, "" before
};

}  // namespace tenon::thread_transport
