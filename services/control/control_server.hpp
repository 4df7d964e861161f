// The hub of the control plane of ranks that are processes: one TCP connection per rank, one thread, the
// state machine of control_state.hpp. `tenon launch` runs it, or the process of rank 0.
#pragma once

#include "control/control_wire.hpp"

#include <tenon/control.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

TENON_ABI_BEGIN

struct ControlServerSpec {
  int ranks = 1;
  double deadline_s =
      60;  ///< of votes and exchanges, from the first arrival; that of the ranks once they are connected
  double hello_s = 10;                ///< a connection that does not name its rank within it is closed
  std::string address = "127.0.0.1";  ///< to listen on
  std::uint16_t port = 0;             ///< 0: any free one
  std::string token;                  ///< ranks must bring the same one
  /// Returns how rank `rank` ended, once its connection is lost: "its process was killed by signal 9
  /// (Killed)"; "" while that is not known. Asked for up to a second, from the server's thread. May be empty.
  std::function<std::string(int rank)> describe_exit;
  /// The death of a rank, the loss of its device, or a missed deadline, is no failure of the run but
  /// interrupts it: ranks keep their state, held() says which, and resume_ranks() or give_up() ends their
  /// wait.
  bool outlives_deaths = false;
};

/// Thread-safe. A connection that closes without a goodbye is the failure of its rank.
class ControlServer {
 public:
  /// Throws Error(kRun) if the address cannot be listened on.
  explicit ControlServer(ControlServerSpec spec);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  std::uint16_t port() const;
  /// As ControlPlane::request, on behalf of no rank.
  void request(std::uint32_t actions, const std::string& reason);
  void fail(int rank, int exit_status, const std::string& message);
  bool failed() const;
  std::string failure() const;  ///< "" when none
  int failure_status() const;

  /// Reports the death of `rank`, which the launcher saw. Only where the run outlives deaths.
  void interrupt(int rank, const std::string& how);
  std::string interruption() const;  ///< "" when none
  /// The interruption is the run's failure after all.
  void give_up();
  std::vector<int> held() const;  ///< ranks that have stopped and keep their state, ascending
  bool any_slot_begun() const;
  /// Sends `next` to the held ranks; any other rank no longer belongs to the run.
  void resume_ranks(const Continuation& next);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

TENON_ABI_END
