// Source `phase_model` (contract power/1): modelled watts of a rank from the phases of its training thread.
// Each phase has a level, and the load approaches it by a first-order response. Levels are assumptions.
#pragma once

#include <tenon/phases.hpp>
#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

#include <array>
#include <atomic>
#include <cstdint>

namespace tenon::phase_model {

/// Phases from one thread to another, without locks and without a wait. The writer never sees whether there
/// is a reader; a reader that is more than kRoom phases late loses the oldest ones.
class PhaseTrack {
 public:
  static constexpr std::uint64_t kRoom = 8192;
  struct Event {
    Phase phase = Phase::kIdle;
    double at_s = 0;
  };

  /// The writer: two stores. `at_s` is kept in nanoseconds, up to two years.
  void put(Phase phase, double at_s);
  /// The reader: the next event, if it began by `until_s`.
  bool take(double until_s, Event& event);
  /// Events that the reader came too late for. Called by the reader.
  std::uint64_t lost() const { return lost_; }

 private:
  std::array<std::atomic<std::uint64_t>, kRoom> words_{};  ///< nanoseconds, then 8 bits of phase
  std::atomic<std::uint64_t> written_{0};
  std::uint64_t read_ = 0, lost_ = 0;
};

/// An option: power in a phase, of rated_watts.
constexpr OptionSpec share(const char* phase, const char* value, const char* doc) {
  return option::real(phase, value).between(0, 10).doc_text(doc);
}

class PhaseModel final : public PowerSourceBase, public PhaseObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("rated_watts", "200").between(1e-6, 1e9).in_unit("W").doc_text("of one rank's processor"),
      option::real("rise_s", "0.005").between(0, 1e4).in_unit("s").doc_text("time constant of a rise"),
      option::real("fall_s", "0.02").between(0, 1e4).in_unit("s").doc_text("time constant of a fall"),
      share("idle", "0.3", "power between phases, of rated_watts; the shares are assumptions, not measured"),
      share("forward", "0.95", "in the forward pass"),
      share("backward", "1.0", "in the backward pass"),
      share("optimizer", "0.8", "in the optimizer"),
      share("compute", "0.95", "in a slot outside these three"),
      share("communication", "0.45", "while the rank waits for bytes"),
      share("wait", "0.45", "while it waits for other ranks"),
      share("data", "0.5", "while it prepares batches"),
      share("evaluate", "0.95", "in an evaluation"),
      share("save", "0.4", "while it saves"),
      share("generate", "0.95", "while the model makes samples"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "phase_model", .summary = "modelled watts of each rank, by its phases", .options = kOptions};

  explicit PhaseModel(const Options& options);

  bool every_rank() const override { return true; }
  PowerSourceInfo open(int rank) override;
  /// The mean since the last value, so that no phase is too short to count.
  double read(double now_s) override;
  void* query(std::string_view interface_id) override;
  void on_phase(Phase phase, double at_s) override { track_.put(phase, at_s); }

  /// Phases that came and went unseen, because values were asked for too rarely.
  std::uint64_t lost() const { return track_.lost(); }

 private:
  /// Lets the load follow its level until then, and adds its energy.
  void advance(double to_s);

  double rated_w_, rise_s_, fall_s_;
  std::array<double, kPhases> levels_w_{};
  PhaseTrack track_;
  bool begun_ = false;
  double at_s_ = 0, watts_ = 0, level_w_ = 0;
  double energy_j_ = 0, value_s_ = 0;  ///< since the last value, and its moment
};

}  // namespace tenon::phase_model
