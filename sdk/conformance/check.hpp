// One promise of a contract and the code that tests it. A check runs alone in its own process, so it may
// crash, hang or leave files; it passes by returning.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tenon::conformance {

class Subject;

struct Check {
  const char* name;     ///< "optimizer.resumes": kind or group, then the promise
  const char* kind;     ///< "optimizer/1"; "" = any component; nullptr = the file as a whole
  const char* summary;  ///< the promise in one line, for --list and the documentation
  void (*run)(Subject&);
  int seconds = 20;                 ///< time limit
  bool counts_allocations = false;  ///< needs libtenon_watch_malloc.so preloaded
};

/// The promise is broken; the text says what was done, expected and found.
struct Failure {
  std::string text;
};
/// The promise does not apply to this component; the text says why.
struct NotApplicable {
  std::string text;
};
[[noreturn]] void fail(const std::string& text);
[[noreturn]] void not_applicable(const std::string& reason);

std::span<const Check> plugin_checks();
std::span<const Check> component_checks();
std::span<const Check> run_checks();
std::span<const Check> layer_checks();
std::span<const Check> layer_gradient_checks();
std::span<const Check> model_checks();
std::span<const Check> optimizer_checks();
std::span<const Check> optimizer_row_checks();
std::span<const Check> schedule_checks();
std::span<const Check> dataset_checks();
std::span<const Check> simulator_checks();
std::span<const Check> precision_checks();
std::span<const Check> sync_checks();
std::span<const Check> recovery_checks();
std::span<const Check> transport_checks();
std::span<const Check> device_checks();
std::span<const Check> device_quant_checks();
std::span<const Check> observer_checks();

/// In the order in which they run.
std::vector<Check> all_checks();
/// Returns null when there is no check of this name.
const Check* find_check(const std::vector<Check>& checks, const std::string& name);

}  // namespace tenon::conformance
