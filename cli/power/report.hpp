// Results of `tenon power` for people and programs: table.md, power.json, traces.csv, and the text that the
// command prints. Numbers of the simulator are called modelled wherever they appear.
#pragma once

#include "power/simulation.hpp"

#include <string>

namespace tenon::power {

std::string table_markdown(const Plan& plan, const SimulationResult& result);
std::string result_json(const Plan& plan, const SimulationResult& result);
/// seconds, then watts of every stage: "modelled_w:unmitigated", ...
std::string traces_csv(const SimulationResult& result);
/// The lines of the command.
std::string closing_text(const Plan& plan, const SimulationResult& result);

/// `tenon power meter`: a reading of a trace that a user brought or a run has recorded.
/// `rated`: in the trace's unit.
std::string reading_text(const Reading& reading, const Trace& trace, const GridSpec& spec, double rated,
                         bool rated_given, const std::string& path);
std::string reading_json(const Reading& reading, const Trace& trace, const GridSpec& spec, double rated,
                         const std::string& path);

}  // namespace tenon::power
