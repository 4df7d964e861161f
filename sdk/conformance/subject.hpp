// A check of a contract, and its subject: one component of one file, one case of it.
#pragma once

#include "case_file.hpp"

#include <tenon/plugin.hpp>
#include <tenon/runtime.hpp>
#include <tenon/testing/components.hpp>

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::conformance {

class Subject;

/// One promise of a contract and the code that tests it. A check runs alone in its own process, so it may
/// crash, hang or leave files; it passes by returning.
struct Check {
  const char* name;     ///< "optimizer.resumes": kind or group, then the promise
  const char* kind;     ///< "optimizer/1"; "" = any component; nullptr = the file as a whole
  const char* summary;  ///< the promise in one line, for --list and the documentation
  void (*run)(Subject&);
  int seconds = 20;                 ///< time limit
  bool counts_allocations = false;  ///< needs libtenon_watch_malloc.so preloaded
  const char* needs = "";           ///< the check without which this one cannot tell
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
std::span<const Check> power_checks();
std::span<const Check> transform_checks();
std::span<const Check> reward_checks();
std::span<const Check> tokenizer_checks();
std::span<const Check> tier_checks();
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

/// A whole run around the component (world.hpp).
struct RunRequest {
  int ranks = 1;
  int steps = 8;
  std::vector<std::string> sets = {};  ///< laid over the case's own
  std::string folder = "run";          ///< below scratch()
  bool resume = false;
  int stop_after = 0;  ///< slots after which the run is asked to stop, as by a signal; 0 = never
  int kill_after = 0;  ///< slots after which its process is killed; it runs in a process of its own
  bool count_allocations = false;
};

/// The subject of a check: one component of one file, one case of it, and functions to create it, to run it
/// with shipped components, and to draw data from the seed.
class Subject {
 public:
  struct Spec {
    std::filesystem::path file;
    std::string component;  ///< "optimizer.lion"; "" for the file as a whole
    Case given;
    std::uint64_t seed = 1;
    std::filesystem::path scratch;          ///< an empty folder
    std::string device = "cpu";             ///< type of the device on which other kinds are tested
    std::vector<std::string> plugins = {};  ///< files and folders of other plugins that it needs
  };
  explicit Subject(Spec spec);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  const std::filesystem::path& file() const { return spec_.file; }
  const std::string& component() const { return spec_.component; }
  const Case& given() const { return spec_.given; }
  std::uint64_t seed() const { return spec_.seed; }
  const std::filesystem::path& scratch() const { return spec_.scratch; }
  const std::string& plugin_id() const { return plugin_id_; }
  /// "optimizer/1".
  const std::string& kind() const { return kind_; }
  /// The unambiguous type in a configuration: "acme.lion/lion".
  std::string type() const;

  /// The plugin files of a run: this one, those that the case file names, of TENON_PLUGIN_PATH and the
  /// shipped ones; of each id the first.
  std::vector<std::string> plugin_files() const;
  /// A registry of those files, created on first use.
  Registry& registry();
  testing::QuietHost& host() { return host_; }
  /// The component under test with the options of the case.
  template <typename Interface>
  testing::Made<Interface> make() {
    return testing::make_from<Interface>(registry(), host(), type(), spec_.given.options);
  }
  /// A shipped component, with options as TOML lines.
  template <typename Interface>
  testing::Made<Interface> shipped(std::string_view type, std::string_view toml) {
    return testing::make<Interface>(registry(), host(), type, toml);
  }
  /// The device of the check, opened with one thread: "reference" for plain loops, "auto" for the fastest
  /// kernels. Other devices than the processor have one choice.
  Device& device(std::string_view kernels = "auto");
  /// Throws NotApplicable if the component is a device that this machine lacks, or is tested on one.
  void require_hardware();
  /// Other kinds than devices are tested on the processor.
  bool on_processor() const { return spec_.device == "cpu"; }
  /// Returns false if there is no device for each of this many ranks, as with several ranks and one GPU.
  bool has_room(int ranks) const { return ranks <= places_; }
  /// Opens another device, owned by the caller.
  testing::Made<Device> another_device(std::string_view kernels, int threads = 1);
  /// Returns whether the component under test declares a TENON_CAP_... bit.
  bool declares(std::uint64_t capability);
  /// Throws NotApplicable if the component declares that it is nondeterministic.
  void require_determinism();
  /// require_determinism(), on the processor: elsewhere no thread of the host computes.
  void require_same_bits_on_threads();
  /// Layers by type from the registry.
  LayerFactory& layers();

  /// Inputs to try on a layer: those of its case, or those that usual layers take.
  std::vector<std::vector<Input>> inputs_to_try() const;

  /// The configuration of a run around the component; RunRequest::sets and the case's are in it.
  Config run_config(const RunRequest& request);
  /// Builds the run of a configuration and trains nothing. What refuses it throws.
  void check(const Config& config) const;
  /// Trains. Errors before the first slot throw; the result may say "failed". A killed run has status
  /// "killed".
  RunResult train(const RunRequest& request);
  /// The same of a configuration that was made from run_config().
  RunResult train(const Config& config, const RunRequest& request);
  /// Calls train(), and fail() unless the run ended as expected; `what` begins the message.
  RunResult train_well(const RunRequest& request, const std::string& what);
  /// Throws Error(kConfig) if the run ended with one on another device than the processor: it refused the
  /// device.
  void require_taken(const RunResult& result);

 private:
  struct OpenDevice {
    std::string kernels;
    testing::Made<Device> device;
  };

  Spec spec_;
  std::string plugin_id_, kind_;
  int places_ = std::numeric_limits<int>::max();
  testing::QuietHost host_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<LayerFactory> layers_;
  std::vector<OpenDevice> devices_;
};

/// An error's text without the list of all places in which a component was searched for.
std::string brief(std::string_view text);

/// Runs one check in the child process; returns "pass", "fail TEXT" or "skip TEXT".
std::string run_check(const Check& check, Subject::Spec spec);

// The components of a conformance run that no plugin ships: data of any shape, a loss that takes any values,
// and an observer that ends the run or opens the windows in which allocations are counted.

/// Plugin `tenon.conformance`:
///   dataset conformance_data      fields = ["x:real:8", "ids:i32:4:10"] (name, dtype, shape per sample,
///   numbers below),
///                                 attributes = ["vocabulary=10"], batch, planted (the last real field
///                                 follows the first)
///   layer   conformance_absorb    a loss of any number of values whose first extent is the batch
///   model   conformance_net       two linear layers with GELU and a squared error on fields x, t
///   model   conformance_anything  conformance_absorb of all fields
///   observer conformance_ending   stops or kills the run after `slots`, opens windows of the allocation
///   watch
///   sync, precision      sync_watch.hpp
const tenon_plugin_v1_t& world_plugin();

}  // namespace tenon::conformance
