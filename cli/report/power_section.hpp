// The record of a run's [power] (power.rank<r>.json and .csv in its folder), on the run's page.
#pragma once

#include <tenon/files.hpp>

#include <string>
#include <vector>

namespace tenon::report {

/// One segment of one rank. Figures that the record has not are NaN.
struct PowerRecord {
  std::string file;  ///< "power.rank0"
  std::string source, sensor, origin, unit, ended;
  double rated = 0, rate_hz = 0, rows = 0, held_rows = 0, seconds = 0, update_hz = 0, mean = 0, lowest = 0,
         highest = 0, joules = 0, counted_joules = 0;
  std::string actuator, actuator_ended;
  std::vector<std::pair<std::string, double>> account;
};

/// In the order of names; empty for a run without [power]. Throws Error(kRun) with the path of an invalid
/// file.
std::vector<PowerRecord> read_power(FileSystem& files, const std::string& attempt);

/// Section of the page: the readings over time, their figures, and what actuators did. "" without records.
std::string power_section(FileSystem& files, const std::string& attempt);

}  // namespace tenon::report
