// Output of `tenon conformance`: a table that grows while the checks run, a list, or JSON.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace tenon::cli {

enum class Outcome : std::uint8_t { kNotRun, kPassed, kFailed, kNotApplicable, kSuppressed };

/// A check of one case of one component ("" = of the file).
struct ConformanceCheck {
  std::string name, component;
  int number = 0;         ///< of the case
  std::string case_name;  ///< "" = the component's defaults
  int seconds = 20;
  bool counts_allocations = false;
  std::string summary;
  std::string suppression;  ///< why it is suppressed; "" = it is not
  Outcome outcome = Outcome::kNotRun;
  std::string text;  ///< of a failure, or why it does not apply
  double took_s = 0;
};

struct ConformancePlan {
  std::string file, cases;  ///< as on the command line
  std::string plugin, version;
  std::uint64_t seed = 1;
  std::string device;  ///< as on the command line; "" = the processor
  std::vector<ConformanceCheck> checks;
};

/// Names with their promises, under the components that they are run for.
std::string conformance_list(const ConformancePlan& plan);
std::string conformance_json(const ConformancePlan& plan);

/// Prints each check as it ends and a summary after the last one. `out` null: prints nothing.
class ConformanceTable {
 public:
  ConformanceTable(const ConformancePlan& plan, std::ostream* out);
  void add(const ConformanceCheck& check);
  void end();

 private:
  const ConformancePlan& plan_;
  std::ostream* out_;
  std::string heading_;
};

}  // namespace tenon::cli
