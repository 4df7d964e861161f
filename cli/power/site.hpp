// The simulator of a site: phases of workers become loads, policies act on a worker and on the sum of
// workers. Everything that comes out of it is modelled. It reads no file.
#pragma once

#include "power/phase_log.hpp"

#include <tenon/power.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::power {

/// Power and activity of a worker in a phase; the load approaches a level by a first-order response.
struct Level {
  std::string phase;
  double share = 0;               ///< of the rated power
  double activity = 0;            ///< of the workload
  double rise_s = 0, fall_s = 0;  ///< time constants; 0 = at once
};

struct Levels {
  std::string name, note, path;
  double rated_watts = 1;
  std::vector<Level> levels;

  /// Throws Error(kConfig) that names the phases there are.
  const Level& of(const std::string& phase) const;
};

/// A load in equal intervals, with what policies are told beside the watts.
struct Load {
  double rate_hz = 1000;
  std::vector<double> watts, activity;
  std::size_t job_begin = 0,
              job_end = 0;  ///< samples of the job; of a sum those in which all workers have it

  std::size_t size() const { return watts.size(); }
  Trace trace() const { return {rate_hz, watts}; }
};

/// The load of a worker from `begin_s` to `end_s` of its log's clock; idle outside of the log. Each interval
/// has the mean level of its phases.
Load load_of(const PhaseLog& log, const Levels& levels, double rate_hz, double begin_s, double end_s);

/// What a policy did to a load.
struct Played {
  std::string policy;            ///< its type
  std::vector<double> in, out;   ///< watts; `in` is the load as the policy saw it
  std::vector<double> charge_j;  ///< empty where nothing is stored
  double burnt_j = 0, withheld_j = 0, charged_j = 0, discharged_j = 0;
  std::int64_t violations = 0;
  std::vector<std::pair<std::string, double>> account;
};

/// A policy in a chain.
struct ChainLink {
  std::string type;
  PowerPolicy* policy = nullptr;
};

struct ChainResult {
  Load load;  ///< after all policies
  std::vector<Played> steps;
  double delay_s = 0;  ///< by which throttling made the job longer
};

/// Applies policies in their order, each to what the one before lets through. A policy that does a share w of
/// an interval's work moves the load on by w of an interval: throttled work comes later, and all policies see
/// the load so stretched. Throws Error(kConfig) where the work never ends.
ChainResult play(const Load& load, std::span<const ChainLink> chain, const PowerSetup& setup);

/// Where workers begin.
struct Workers {
  int count = 1;
  double jitter_s = 0;  ///< deviation of a worker's offset, drawn once (normal)
  std::uint64_t seed = 1;
};

/// Offset of each worker in whole samples.
std::vector<std::int64_t> worker_offsets(const Workers& workers, double rate_hz);

/// The sum of `workers` loads: worker w has the load w mod loads.size(), moved by its offset. Before its
/// first and after its last sample a load keeps that value.
Load sum_of(std::span<const Load> loads, std::span<const std::int64_t> offsets, double constant_watts);

}  // namespace tenon::power
