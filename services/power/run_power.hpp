// The [power] of a rank: its source, read on a thread of its own, its actuator, and what both leave in the
// run's folder. Neither changes a bit of the run, and either may fail without ending it.
#pragma once

#include "loop/parts.hpp"
#include "loop/time_account.hpp"
#include "plugin/guard.hpp"
#include "power/power_sampler.hpp"
#include "run/world.hpp"

#include <tenon/power.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::train {

class RunPower final : public PhaseObserver {
 public:
  /// Makes the components. Throws Error(kConfig) for one without the role, for an actuator whose options
  /// cannot serve this rank, and under the simulated clock.
  RunPower(World& world, int rank, Parts& parts, RankHost& host);
  ~RunPower() override;

  /// Before the first slot: power.rank<r>.csv, of a later segment power.rank<r>.slot<n>.csv, begins in the
  /// folder, and the actuator starts.
  void begin(TimeAccount& account, const std::string& folder, std::int64_t first_slot);
  /// After the last slot, or when the run fails: both end, and the record is written.
  void end() noexcept;
  /// Numbers for the summary, under names that say what is modelled.
  void metrics(const std::function<void(std::string_view, double)>& sink) const;

  void on_phase(Phase phase, double at_s) override;

 private:
  struct Actuator {
    Part<Power> component;
    PowerActuator* role = nullptr;
    PhaseObserver* phases = nullptr;
    std::string ended = {};  ///< why it was given up
  };

  int local_rank() const;
  PowerPlace place() const;
  void make_source(const config::CheckedComponent& checked);
  void make_actuator(config::CheckedComponent& checked);
  template <typename Call>
  bool drive(Call&& body);
  void say(std::string_view what, std::string_view why);
  std::string record();

  World& world_;
  int rank_;
  Parts& parts_;
  RankHost& host_;
  TimeAccount* account_ = nullptr;  ///< while the run is on
  std::string stem_;                ///< path of the files without their ends
  std::shared_ptr<SourceComponent> source_;
  GuardContext source_names_;
  std::unique_ptr<PowerSampler> sampler_;
  std::optional<PowerReadings> readings_;
  std::optional<Actuator> actuator_;
};

}  // namespace tenon::train
