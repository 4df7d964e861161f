// State shared by the communicators of one process: the port and the thread that serves it, the groups,
// epochs, lost ranks, totals. The thread holds the mutex while it handles frames and releases it while it
// waits.
#pragma once

#include "group.hpp"

#include <tenon/ring/transport.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

TENON_ABI_BEGIN

class RingEngine final : private FramePort::Events {
 public:
  RingEngine(std::unique_ptr<FramePort> port, const WorldSpec& world, std::string name);
  ~RingEngine() override;

  std::shared_ptr<ring::Group> open(int world_rank, const GroupSpec& spec);
  void cancel(std::string_view reason);
  LinkCounts counts(int world_rank, Purpose purpose);
  /// Sends frames that others still need and ends the thread. Repeatable.
  void stop();

  // For groups, with the lock held.
  std::mutex& mutex() { return mutex_; }
  const std::string& name() const { return name_; }
  Clock& clock() const { return *world_.clock; }
  double deadline_s() const { return world_.deadline_s; }
  /// Returns why a rank no longer takes part: "its connection closed"; "" while it does.
  const std::string& gone(int rank) const { return gone_[rank]; }
  LinkCounts& totals(Purpose purpose) { return totals_[static_cast<std::size_t>(purpose)]; }
  /// Returns false once no thread serves the port.
  bool serves() const { return serves_; }
  void post(int rank, const FrameHeader& header, std::span<const std::byte> payload);
  /// Makes the thread call pump() of the group soon.
  void mark(ring::Group& group);
  /// For the engine's thread only.
  FramePort& port() { return *port_; }

 private:
  /// A control frame, or a note that a group has something to send.
  struct Control {
    bool pumps = false;
    std::uint64_t group = 0;  // group to pump
    int to = 0;
    FrameHeader header;
    std::array<std::byte, 256> bytes{};
    std::string text;  // longer payloads: failures, and all_to_all of many members
  };
  struct Arrival {
    FrameHeader header;
    std::shared_ptr<ring::Group> group;  // of a part with a receiver
    ring::Flight* flight = nullptr;
  };

  void run();
  void serve();
  void flush();
  Control& next_in_outbox();
  void end_all(const std::string& why);
  int check_group(int world_rank, const GroupSpec& spec) const;
  void refuse_or_adopt_epoch(const GroupSpec& spec);
  void retire(int rank, std::uint32_t epoch);
  void forget_ended();
  std::uint64_t key_of(const GroupSpec& spec);
  void on_control(int from, const FrameHeader& header, std::span<const std::byte> payload);
  void set_gone(int rank, const std::string& why);

  FramePort::Landing begin(int from, const FrameHeader& header) override;
  void end(int from) override;
  void sent(const void* owner) override;
  void lost(int peer, const std::string& why) override;

  const std::unique_ptr<FramePort> port_;
  const WorldSpec world_;
  const std::string name_;
  const int rank_;

  std::mutex mutex_;
  bool stopping_ = false, serves_ = true, woken_ = false;
  std::string cancelled_, broken_;
  // A group is shared by its communicator and, until all ends are closed, by late frames.
  std::map<std::uint64_t, std::shared_ptr<ring::Group>> groups_;
  std::map<std::uint64_t, std::uint64_t> openings_;  // number of openings of a name, by its hash
  std::vector<std::uint32_t> newest_epoch_;          // by rank
  std::vector<std::string> gone_;                    // by rank
  std::array<LinkCounts, kPurposes> totals_{};
  std::vector<Control> outbox_;
  std::size_t outbox_used_ = 0;
  std::size_t pumps_ = 0;  // outbox entries that pump groups
  // Used only by the thread.
  std::vector<Arrival> arrivals_;                // by rank
  std::vector<std::vector<std::byte>> control_;  // by rank
  std::vector<std::vector<std::byte>> staging_;  // by rank
  std::thread thread_;
};

TENON_ABI_END
