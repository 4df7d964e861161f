// Failures by schedule ([[fault]]): a rank that dies, hangs, is slow, loses its link or has a bit turned over
// (bit_flips.hpp) in a given slot, so that the reaction of a run can be tested. A resumed attempt injects
// nothing: it comes after the fault.
#pragma once

#include "config/run_schema.hpp"

#include <tenon/clock.hpp>
#include <tenon/control.hpp>

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

struct FaultSpec {
  const std::vector<config::FaultSettings>* faults = nullptr;  ///< of all ranks; outlives this
  int rank = 0;
  Clock* clock = nullptr;
  ControlPlane* control = nullptr;
  double deadline_s = 60;
  bool own_process = false;     ///< the rank is all of its process
  std::int64_t first_slot = 0;  ///< faults of earlier slots have happened before a roll-back
};

/// Any thread of the rank.
class Faults {
 public:
  explicit Faults(const FaultSpec& spec);

  /// Marks faults of slots up to `slot` as happened, in a process that died.
  void happened_through(std::int64_t slot);
  /// The rank is about to run slot t: arms faults due from here on, and carries out those before a slot.
  void begin_slot(std::int64_t t);
  /// The rank enters this phase. Throws the error of a fault that is due.
  void at(config::FaultSettings::Phase phase);
  /// Before each operation of a communicator with these members (world ranks).
  void before_operation(std::span<const int> members, std::string_view operation);

  /// Bits that are to be turned over, at any time.
  std::vector<config::FaultSettings> all_flips() const;
  /// Whether one of this kind is due.
  bool flips(config::FaultSettings::What what) const;
  /// Takes one that is due, if there is one; of `tensor`, unless that is "".
  std::optional<config::FaultSettings> take_flip(config::FaultSettings::What what,
                                                 std::string_view tensor = {});

 private:
  struct Armed {
    config::FaultSettings fault;
    bool broken = false;  ///< a link that is down for good
  };
  void carry_out(const config::FaultSettings& fault, std::string_view where);
  void hang(const std::string& text);

  FaultSpec spec_;
  std::atomic<bool> any_;  ///< something is armed, or may be
  mutable std::mutex mutex_;
  std::vector<config::FaultSettings> waiting_;
  std::vector<Armed> armed_;
  std::int64_t slot_ = -1;
};

}  // namespace tenon::train
