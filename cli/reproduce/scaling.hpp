// The kind of studies with [scaling]: every arm at every number of trainers becomes an arm of its own,
// "easgd.5", whose steps divide a fixed number of samples among the trainers. Rates, speedups, losses and
// sync gaps are computed once from the runs, and tables, JSON and figure only print them.
#pragma once

#include "reproduce/arms.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

class Scaling : public Arms {
 public:
  std::vector<std::int64_t> points;           ///< numbers of trainers, ascending
  std::string alone;                          ///< arm that runs at one trainer only, for all others
  std::vector<std::string> measured;          ///< arms under the wall clock
  std::vector<std::int64_t> measured_points;  ///< numbers of trainers of those

  bool is_measured(const std::string& arm) const;

  std::string_view table() const override { return "scaling"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  void check_without(const StudyFile& study, Problems& problems) const override;
  bool counts_steps() const override { return false; }
  bool has_points() const override { return true; }
  std::string size_text(const StudyFile& study, const Size& size) const override;
  void size_json(JsonWriter& json, const StudyFile& study, const Size& size) const override;
  std::string tables(const StudyResult& result) const override;
  std::string every_run(const StudyResult& result) const override;
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;
  std::string legend(const StudyResult& result) const override { return ""; }

 protected:
  StudyFile as_runs(const StudyFile& given, const Size& size, const std::string& folder) const override;
  bool runs_alone(const StudyFile& study, const ab::Job& job) const override;
};

/// The study with an arm per arm and point. The arm `alone` has the point 1, and no other arm of the same
/// clock has it; an arm under the wall clock has the measured points. Throws Error(kConfig) naming the arm
/// whose configuration has no data.batch, whose samples cannot be divided among the trainers in whole
/// batches, or whose clock is not the one that the study names.
StudyFile at_points(const StudyFile& study, const Size& size);

/// Number of arms that at_points makes, without reading any configuration.
std::size_t point_count(const StudyFile& study, const Size& size);

/// "easgd.5": the arm `name` at `trainers`.
std::string point_name(const std::string& name, std::int64_t trainers);

/// A run as the model of sync gaps sees it; bytes and seconds by the run's clock.
struct ExchangeModel {
  bool foreground =
      false;  ///< every `interval` slots, while the workers wait; else one after the other, in the background
  double trainers = 1, servers = 0;
  double interval = 0;     ///< slots
  double bytes = 0;        ///< that a trainer sends in one exchange
  double bandwidth = 0;    ///< bytes/s of one direction of a link; infinite without a link model
  double latency = 0;      ///< seconds
  double pieces = 1;       ///< transfers into which an exchange is divided, one after the other
  double rest = 0;         ///< seconds between two exchanges of a trainer
  double poll = 0;         ///< seconds between two polls of a collective transfer
  double slots_per_s = 0;  ///< of one trainer
};

/// Slots between two exchanges of a trainer: `interval` in the foreground, else rate x seconds of an
/// exchange. With n servers that is the time of the trainer's link for S bytes up and S down with a request
/// for each of P pieces, 2 S / B + 3 P L + rest, or, if longer, that of the servers' links for K trainers, K
/// S / (n B). A ring takes S / B + P (2 (K-1) L + poll / 2) + rest, S being what a trainer sends. Empty
/// without a link model.
std::optional<double> predicted_gap(const ExchangeModel& model);

/// Trainers beyond which the servers' links cannot answer exchanges every `interval` slots: interval x
/// servers x bandwidth / (bytes x rate). Empty in the background, without servers and without a link model.
std::optional<double> predicted_saturation(const ExchangeModel& model);

/// Samples per second of one run between the first and the last line of training metrics, which excludes the
/// start and the evaluation at the end. Empty with fewer than two lines.
std::optional<double> examples_per_second(const ab::RunRecord& run);
/// Slots of all trainers over their completed syncs. Empty when there was none.
std::optional<double> average_sync_gap(const ab::RunRecord& run);
ExchangeModel exchange_model(const ab::RunRecord& run);

struct MeanAndRange {
  std::size_t n = 0;
  double mean = 0, low = 0, high = 0;
};

/// An arm at one number of trainers; means over the seeds that have a value.
struct PointResult {
  std::size_t index = 0;  ///< among the arms of the study at its points
  std::string arm, title;
  std::int64_t trainers = 0;
  bool measured = false;
  bool shared = false;  ///< the run of `alone`, shared by this arm

  std::optional<double> examples_per_s, speedup, linear_percent;
  std::optional<MeanAndRange> loss;
  std::optional<double> sync_gap, longest_sync_gap, predicted_gap;
  std::optional<double> elp;                       ///< examples in flight: batch x workers x trainers
  std::optional<double> bytes;                     ///< that left a trainer, mean
  std::optional<double> sync_bytes;                ///< of them weights
  std::optional<double> waited_s, waited_percent;  ///< of a trainer, for bytes and for others
  std::optional<double> server_percent;            ///< of the time that a server's link was sending weights
};

struct ScalingArm {
  std::string name, title;
  bool measured = false;
  std::vector<PointResult> points;     ///< ascending, the shared one included
  std::optional<double> saturates_at;  ///< trainers, predicted at the smallest point with several
};

/// The arms of the file with their points; `alone` has no entry of its own if others share it.
std::vector<ScalingArm> scaling_arms(const StudyResult& result);

}  // namespace tenon::reproduce
