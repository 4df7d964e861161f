// Source `rapl` (contract power/1): watts of this machine's processor packages, from the energy counters of
// Linux's powercap. Memory and the whole platform (psys) are left out.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::rapl {

/// Seconds of a clock that counts as the hardware does, whatever the run's clock is.
double steady_seconds();

class Rapl final : public PowerSourceBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::path("root", "'/sys/class/powercap'").made_later().doc_text("folder of the powercap zones"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "rapl", .summary = "watts of processor packages, by their energy counters", .options = kOptions};

  explicit Rapl(const Options& options, double (*clock)() = steady_seconds);

  PowerSourceInfo open(int rank) override;
  double read(double now_s) override;
  double joules() override;

 private:
  struct Package {
    std::string name, file;           ///< of its counter
    std::int64_t last = 0, most = 0;  ///< microjoules; the counter goes on from 0 after `most`
  };

  std::int64_t count_of(const std::string& file) const;
  /// Adds what the counters have counted.
  void update();

  std::string root_;
  double (*clock_)();
  std::vector<Package> packages_;
  std::int64_t sum_uj_ = 0, value_uj_ = 0;  ///< since open(); at the last value
  double value_s_ = 0;
};

}  // namespace tenon::rapl
