// Source `cpu_activity` (contract power/1): the share of this machine's cores that are busy, or the share of
// the usable cores that this process keeps busy. A proxy of power, and never watts.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

#include <cstdint>
#include <string>

namespace tenon::cpu_activity {

/// Seconds of two clocks of this process; tests set their own.
struct Clocks {
  double (*wall)();
  double (*processor)();  ///< that all threads of the process have computed
};
Clocks system_clocks();

/// Jiffies of all cores since the machine started.
struct Jiffies {
  std::int64_t busy = 0, all = 0;
};

/// From the first line of /proc/stat. Throws Error(kRun) for any other text; `file` is for its message.
Jiffies jiffies_of(const std::string& line, const std::string& file);

class CpuActivity final : public PowerSourceBase {
 public:
  enum class Scope : std::uint8_t { kMachine, kProcess };
  static constexpr auto kScopes =
      option::choice<Scope>({{"machine", Scope::kMachine}, {"process", Scope::kProcess}});
  static constexpr OptionSpec kOptions[] = {
      option::text("scope", "'machine'")
          .one_of(kScopes)
          .doc_text("machine: all cores, from /proc/stat in jiffies of 10 ms; process: the CPU clock of rank "
                    "0's process, which is finer"),
      option::path("stat", "'/proc/stat'").made_later().doc_text("counters of the machine's cores"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "cpu_activity", .summary = "share of cores that are busy (a proxy)", .options = kOptions};

  explicit CpuActivity(const Options& options, Clocks clocks = system_clocks());

  PowerSourceInfo open(int rank) override;
  double read(double now_s) override;

 private:
  double of_machine();
  double of_process();

  Scope scope_;
  std::string file_;
  Clocks clocks_;
  int cores_ = 1;
  Jiffies last_;
  double last_wall_s_ = 0, last_processor_s_ = 0;
};

}  // namespace tenon::cpu_activity
