// The phases of workers over time: from timelines of a run (trace.rank*.json) or from a script. Also traces
// of power from CSV files. Readers of outside bytes: every message names file and line.
#pragma once

#include "power/meter.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::power {

struct Phase {
  double begin_s = 0, end_s = 0;
  std::string name;
};

/// Consecutive phases of one worker, without gaps.
struct PhaseLog {
  std::string source;  ///< "trace.rank0.json", "script"
  std::vector<Phase> phases;
  std::vector<std::string> notes;

  double begin_s() const { return phases.front().begin_s; }
  double end_s() const { return phases.back().end_s; }
};

/// Phases that a timeline may have, in the order of preference where spans overlap.
const std::vector<std::string>& trace_phases();

/// A timeline as the observer `trace` writes it, one event a line. At each instant the phase is
/// "communication" where the rank waits for bytes or for other ranks, else what it computes ("forward",
/// "backward", "optimizer"), "evaluate", "data", "save", and "idle" in between. Costs that a simulated clock
/// declares outside of these (an update, a mixing slot) are "optimizer". A damaged last line is where the
/// file was cut off: what comes before is read, and a note says so. Spans of slots from `end_slot` on are
/// left out; a log without phases is what remains of a file that has no others. Throws Error(kConfig) for
/// damage elsewhere, for times that are not finite or negative, and for a file without spans.
PhaseLog parse_timeline(std::string_view text, const std::string& path,
                        std::int64_t end_slot = std::numeric_limits<std::int64_t>::max());

/// A file of a rank, trace.rankR.json or, of a run that was resumed at a slot, trace.rankR.slotN.json.
struct TimelineFile {
  int rank = 0;
  std::int64_t first_slot = 0;
};
/// False for other names.
bool is_timeline(std::string_view file, TimelineFile& out);

/// The timelines of a run, by first slot and rank; a file that has nothing before the next segment is empty.
using Segments = std::map<std::int64_t, std::map<int, PhaseLog>>;

/// One log per rank. The clock of a resumed run starts anew, so a segment begins where the last rank of the
/// one before ended; a rank that has not come so far is idle until then.
std::vector<PhaseLog> joined(const Segments& segments);

/// Throws Error(kConfig) unless there is a time that all logs share.
void require_overlap(const std::vector<PhaseLog>& logs);

/// A trace of power: lines "seconds,watts" after an optional heading, whose second column "share" makes it a
/// trace of shares. The first line that begins with '#' says where the numbers come from; further ones, and
/// empty lines, are left out. Throws Error(kConfig) for a number that is none, not finite or negative, for
/// times that repeat, go back, leave a gap or are unequally spaced (by more than 1 % of the step), and for
/// fewer than four samples.
Trace parse_power_csv(std::string_view text, const std::string& path);

}  // namespace tenon::power
