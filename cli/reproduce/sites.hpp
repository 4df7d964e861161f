// The kind of studies with [sites]: nothing is trained; arms are configurations of `tenon power`, simulated
// once per seed. The energy of floors stands beside its closed form, ramps, range and band beside the limits
// of the site. All of its numbers are modelled or computed.
#pragma once

#include "reproduce/study_kind.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// An entry of [[sites.arm]].
struct SiteCase {
  std::string arm;
  double step_jitter = 0;    ///< deviation of a step's length, of its length
  bool closed_form = false;  ///< the energy of its floor has one
  bool limits = true;        ///< it is in the table of limits and in the figure
  std::string expected;      ///< what was expected beforehand, for the table
};

class Sites : public StudyKind {
 public:
  double tolerance = 0.005;  ///< of energies against closed forms, relative; where levels are reached at once
  std::vector<SiteCase> cases;

  /// The entry of an arm, or that of one without any.
  SiteCase of(const std::string& arm) const;

  std::string_view table() const override { return "sites"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  bool counts_steps() const override { return false; }
  std::string size_text(const StudyFile& study, const Size& size) const override;
  Outcome run(const StudyFile& study, const Size& size, const Request& request,
              ab::RunnerOptions runner) const override;
  std::string tables(const StudyResult& result) const override;
  std::string every_run(const StudyResult& result) const override;
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;
};

/// A load of two levels under a floor.
struct FloorForm {
  double low = 0, duty = 0, floor = 0;
  bool at_once = true;  ///< levels are reached without rise and fall times, as the closed form has it
  /// Extra energy by closed form, per cent: (1 - d)(floor - low) / mean, the high level being 1.
  double percent() const { return 100 * (1 - duty) * (floor - low) / (duty + (1 - duty) * low); }
};

/// Throws Error(kConfig) unless the load has two levels, 1 and one below, and one policy, a floor between
/// them.
FloorForm floor_form(const power::Plan& plan);

/// Draws the length of every step of a script, once per repetition; its phases keep their shares. Throws
/// Error(kConfig) where the phases are those of a run.
void draw_steps(power::Plan& plan, double deviation, std::uint64_t seed);

/// An arm with one seed, after all of its policies.
struct SiteRun {
  std::int64_t seed = 1;
  power::Reading reading;
  double rated_watts = 1;
  double energy_percent = 0, longer_percent = 0;  ///< of the load without policies
};

struct SiteArm {
  std::size_t arm = 0;  ///< of the study
  std::vector<SiteRun> runs;
  std::optional<FloorForm> form;
  power::Trace shown;  ///< some seconds of the first seed, in rated powers

  double mean(double SiteRun::*value) const;
  /// Part of the verdict: 0 ramp up, 1 ramp down, 2 range, 3 band share.
  double mean_of_part(std::size_t part) const;
  /// Simulated energy over the closed form, minus 1.
  double off_form() const { return mean(&SiteRun::energy_percent) / form->percent() - 1; }
  /// Whether the closed form holds for the load and the energy is further from it than that.
  bool misses_form(double tolerance) const;
};

struct SitesResult : KindNumbers {
  power::GridSpec spec;
  std::vector<SiteArm> arms;
};

// Pieces that studies of sites share.

/// Length of what a figure shows of a load.
inline constexpr double kShownSeconds = 20;

/// The last seconds of a trace, at most kShownSeconds, in rated powers.
power::Trace shown_part(const power::Trace& trace, double rated_watts);

struct LoadPanel {
  std::string title;
  power::Trace load;  ///< in rated powers
};

/// Loads over time, one below the other on one scale.
std::string load_figure(const StudyResult& result, const std::string& caption,
                        const std::vector<LoadPanel>& panels);

/// Adds machine and program of what this process simulates; the times are those of now.
void add_this_process(Provenance& out);

}  // namespace tenon::reproduce
