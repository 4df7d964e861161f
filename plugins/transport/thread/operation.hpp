// One collective in flight: its members' arguments, and its arithmetic, divided into units that any member
// may run. Every element's sum has a fixed order (docs/reductions.md), so the assignment and timing of units
// do not matter. No locking or waiting here: see group.hpp.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/sdk/traffic.hpp>
#include <tenon/transport.hpp>
#include <transport_common/operations.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::thread_transport {

using transport_common::Buffers;
using transport_common::Kind;
using transport_common::Signature;

/// One member's buffers.
struct Part {
  bool joined = false;
  bool waiting = false;
  bool finished = false;  // its wait has ended
  double wait_begin = 0;
  TensorView data;
  TensorView receive;
  std::vector<std::int64_t> send_counts, receive_counts;
  std::vector<const void*> inputs;  // scratch of the units that this member runs
};

struct Operation {
  bool open = false;
  std::uint64_t number = 0;
  Signature signature;
  std::vector<Part> parts;  // by member
  int joined = 0;
  int finished = 0;
  bool sealed = false;  // all have joined and agree: no further input is needed
  std::int64_t units = 0;
  std::int64_t next_unit = 0;
  std::int64_t units_done = 0;
  int running = 0;       // members inside a unit
  double joined_at = 0;  // when the last member joined, in seconds of the run's clock
  double link_s = 0;     // link time by the model
  double end = 0;        // earliest end by the model
  ClockEvent changed;

  bool computed() const { return sealed && units_done == units; }
  /// Prepares the operation for use, keeping its memory.
  void reset(std::uint64_t operation_number, const Signature& agreed, int members);
};

/// Returns the number of units, once all have joined.
std::int64_t unit_count(const Operation& operation);
/// Runs one unit on behalf of member `runner`.
void run_unit(Operation& operation, std::int64_t unit, int runner);
/// Returns "", or the two members of an all-to-all that disagree on their counts; `ranks` are their world
/// ranks.
std::string count_mismatch(const Operation& operation, std::span<const int> ranks);
/// Returns the traffic that `member` sends, by closed form.
Traffic traffic_of(const Signature& signature, const Part& part, int member, int members);
/// Returns the time on the link, once all have joined.
LinkTime time_of(const Operation& operation, const LinkSpec& link);

}  // namespace tenon::thread_transport
