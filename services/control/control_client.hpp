// One process's end of the control plane over TCP (control_server.hpp): the ControlPlane of its rank, and
// exchanges of texts with all others.
#pragma once

#include "control/control_wire.hpp"

#include <tenon/control.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

TENON_ABI_BEGIN

struct ControlClientSpec {
  std::string server;  ///< "host:port"
  int rank = 0;
  int ranks = 1;
  int trainers = 1;  ///< the first ranks, which take part in slots and votes; the others are servers
  double deadline_s = 60;
  std::string token;
  std::string version;  ///< of this program; all ranks must have the same one
};

/// Thread-safe. Every wait ends: with an answer, with DeadlineError, or with CancelledError after the run's
/// first failure, which a lost connection to the server is too.
class ControlClient final : public ControlPlane {
 public:
  /// Tries until the deadline, since the server may start later. Throws DeadlineError when no server answers,
  /// Error(kConfig) when the server refuses.
  explicit ControlClient(const ControlClientSpec& spec);
  ~ControlClient() override;

  /// As InprocessControl::on_failure; runs on the connection's thread.
  int on_failure(std::function<void(const std::string&)> callback);
  /// For tests: closes the connection as the death of the process does.
  void close_abruptly();
  /// Called when a signal at some rank, or at `tenon launch`, asks the run to stop. Runs on the connection's
  /// thread. An earlier request is learnt at the first slot.
  void on_interrupt(std::function<void()> callback);
  /// As request(), without waiting for the slot.
  void ask(std::uint32_t actions, std::string_view reason);
  /// The texts of all ranks, in rank order. One at a time per lane. Collective.
  std::vector<std::string> exchange(ControlLane lane, const std::string& text);

  /// Some rank died, and the others are asked to keep their state. It counts as a failure, so every wait
  /// ends.
  bool interrupted() const;
  /// After that: says that this rank has stopped and keeps what it has. Returns where to go on; nothing when
  /// the run has failed meanwhile, or when no answer came within `seconds`.
  std::optional<Continuation> hold(double seconds);
  /// A wait of this rank ended at its deadline: a failure, or an interruption where the run outlives deaths.
  void miss(int rank, std::string_view message);

  std::uint32_t begin_slot(int rank, std::int64_t slot) override;
  std::int64_t request(std::uint32_t actions, std::string_view reason) override;
  bool commit(int rank, std::int64_t slot, bool yes) override;
  void fail(int rank, int exit_status, std::string_view message) override;
  bool failed() const override;
  std::string failure() const override;
  int failure_status() const override;
  std::uint64_t bytes() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

TENON_ABI_END
