// The kind of studies with [filler]: a filling workload in a simulated site, which starts late by several
// delays, and the real one of this program in runs, beside equal runs without it. The former is modelled, the
// latter measured on this machine.
#pragma once

#include "report/power_section.hpp"
#include "reproduce/arms.hpp"
#include "reproduce/sites.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

class FillerStudy : public Arms {
 public:
  std::string site;              ///< configuration of `tenon power`; absolute
  std::vector<std::string> set;  ///< over it
  std::string policy;            ///< inline table of the filler, without n_on
  double period_s = 1e-3;        ///< between two of its looks
  std::vector<double> delays_s;

  std::string_view table() const override { return "filler"; }
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
  std::string legend(const StudyResult&) const override { return ""; }

 protected:
  bool runs_alone(const StudyFile&, const ab::Job&) const override { return true; }
};

/// A filler that starts so long after the waits begin, modelled. Without a delay: no filler.
struct LateFiller {
  std::optional<double> delay_s;
  double band_share = 0, range = 0, energy_percent = 0;  ///< of the energy without one; rated powers
  power::Trace shown;
};

/// A run, measured.
struct FilledRun {
  std::int64_t seed = 0;
  double slot_s = 0;
  double time_ratio = 0;                                ///< to the baseline's run of the same seed
  bool same_weights = false;                            ///< as that run's, to the bit
  double mean = 0, lowest = 0, highest = 0;             ///< of the source's readings
  std::vector<std::pair<std::string, double>> account;  ///< of rank 0's actuator; empty without one
};

struct FilledArm {
  std::size_t arm = 0;  ///< of the study
  std::vector<FilledRun> runs;
};

struct FillerResult : KindNumbers {
  std::vector<LateFiller> late;
  std::vector<FilledArm> arms;
};

/// Lowest, median and highest.
struct PairSpread {
  double low = 0, median = 0, high = 0;
};
PairSpread pair_spread(const std::vector<double>& values);

}  // namespace tenon::reproduce
