// The kind of studies with [run_sites]: every arm is trained once per seed under the simulated clock with the
// observer `trace`, and the phases of its ranks make the load of a site, which `tenon power` simulates and
// meters. Duties and lines stand beside closed forms. Times are simulated, powers are modelled.
#pragma once

#include "reproduce/arms.hpp"
#include "reproduce/sites.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// An entry of [[run_sites.arm]].
struct RoundCase {
  std::string arm;
  std::int64_t slots = 1;    ///< of a round, at whose end replicas exchange
  bool closed_form = false;  ///< a round is `slots` times the computing of a slot, then one exchange
};

class RunSites : public Arms {
 public:
  std::string site;              ///< configuration of `tenon power`; absolute
  std::vector<std::string> set;  ///< over it
  double compute_s = 0;          ///< declared, of a slot
  double exchange_s = 0;         ///< of all parameters over the link of the runs
  std::int64_t first = 0;        ///< slot from which phases count
  double tolerance = 0.05;       ///< against closed forms, relative
  std::vector<RoundCase> cases;

  /// The entry of an arm, or that of one without any.
  RoundCase of(const std::string& arm) const;

  std::string_view table() const override { return "run_sites"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  Outcome run(const StudyFile& study, const Size& size, const Request& request,
              ab::RunnerOptions runner) const override;
  std::string tables(const StudyResult& result) const override;
  std::string every_run(const StudyResult& result) const override;
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;
  std::string legend(const StudyResult& result) const override { return ""; }

 protected:
  StudyFile as_runs(const StudyFile& given, const Size& size, const std::string& folder) const override;
};

/// Share of the time that computes where rounds of H slots of c seconds end with m seconds of exchange:
/// H c / (H c + m).
double round_duty(std::int64_t slots, double compute_s, double exchange_s);

/// Variance of a load of two levels with one duty over that of the same levels with another:
/// d (1 - d) / (d_1 (1 - d_1)).
double variance_ratio(double duty, double duty_of_first);

/// The load of an arm with one seed.
struct RunLoad {
  std::int64_t seed = 1;
  double duty = 0;         ///< share of the ranks' time that computes, in the trace
  double slot_s = 0;       ///< in the trace, mean
  double variance = 0;     ///< of the load, rated powers squared
  double rated_watts = 1;  ///< of the site
  /// Its band share is of the energy of the baseline with the same seed.
  power::Reading reading;
  power::Trace shown;  ///< some seconds, in rated powers
};

struct LoadArm {
  std::size_t arm = 0;  ///< of the study
  RoundCase rounds;
  std::vector<RunLoad> runs;  ///< of completed runs

  double mean(double RunLoad::*value) const;
  double mean_of(double power::Reading::*value) const;
};

/// An arm against its closed forms and its trace.
struct LoadNumbers {
  std::optional<double> closed_duty, closed_ratio;  ///< computed from the study's c and m
  double closed_hz = 0;                             ///< 1 / (H c + m), else 1 / (H T), T as in the trace
  double duty = 0, slot_s = 0;
  double hz = 0;                        ///< as metered
  double ratio_by_duty = 0, ratio = 0;  ///< of variances: from duties in the traces; as metered
  double range = 0, band_percent = 0;   ///< rated powers; of the baseline's energy
  double off_duty() const { return ratio / ratio_by_duty - 1; }
};

struct RunSitesResult : KindNumbers {
  std::vector<LoadArm> arms;                  ///< those with a completed run
  double first_duty = 0, first_variance = 0;  ///< of the baseline, means over seeds
  double band_low_hz = 0, band_high_hz = 0;
};

/// Means over seeds.
LoadNumbers load_numbers(const RunSites& kind, const RunSitesResult& result, const LoadArm& arm);

/// What a simulated site says of a run: `reference` is the mean square of the baseline's load.
RunLoad load_of_run(const power::SimulatedSite& site, std::int64_t seed, std::int64_t slots,
                    std::optional<double> reference);

}  // namespace tenon::reproduce
