// State shared by all groups of one transport: the world, the links of its ranks, the totals of sent data.
#pragma once

#include <tenon/sdk/traffic.hpp>

#include <tenon/clock.hpp>
#include <tenon/transport.hpp>

#include <atomic>
#include <mutex>
#include <span>
#include <vector>

namespace tenon::thread_transport {

/// One wait, in seconds of the run's clock (LinkCounts).
struct Waited {
  double blocked = 0, late = 0, transfer = 0;
};

/// Thread-safe.
class World {
 public:
  explicit World(const WorldSpec& spec);

  const WorldSpec& spec() const { return spec_; }
  Clock& clock() const { return *spec_.clock; }

  /// Returns the link of a transfer between `ranks`: the slowest one.
  LinkSpec link_of(std::span<const int> ranks) const;
  /// Reserves the outgoing links of `ranks` for `transfer_s`, from `earliest` or from when the last of them
  /// is free. Returns when the transfer begins, in seconds of the run's clock.
  double reserve_links(std::span<const int> ranks, double earliest, double transfer_s);

  void count_started(int rank, Purpose purpose, const Traffic& traffic);
  void count_waited(int rank, Purpose purpose, const Waited& waited);
  LinkCounts totals(int rank, Purpose purpose) const;

 private:
  struct Totals {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> messages{0};
    std::atomic<std::uint64_t> operations{0};
    std::atomic<double> blocked{0};
    std::atomic<double> late{0};
    std::atomic<double> transfer{0};
  };
  std::size_t slot(int rank, Purpose purpose) const;

  const WorldSpec spec_;
  std::mutex links_mutex_;
  std::vector<double> link_free_;  // by rank
  std::vector<Totals> totals_;     // by rank and purpose
};

}  // namespace tenon::thread_transport
