// The part of a run's configuration that the core owns: [run], [init], [parallel], [plugins], [emulate],
// [[fault]], [power], [[evaluate]] and [tables] without their components, and single keys of tables that
// otherwise belong to a component ([device] threads, [sync] buffers, [transport.link], graph edits of
// [model]). Such a table legally holds both; each key goes to its owner.
#pragma once

#include <tenon/config.hpp>
#include <tenon/recovery.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN
namespace config {

/// [run]
struct RunSettings {
  std::optional<std::string> name;  ///< absent: the configuration file's name
  std::uint64_t seed = 1;
  std::uint64_t seed_init = 1, seed_order = 1, seed_rounding = 1;  ///< `seed` unless given
  std::int64_t steps = 0;                                          ///< slots
  std::optional<std::int64_t> max_samples, max_tokens,
      max_bytes;  ///< further budgets; the first reached ends the run
  std::optional<double> max_seconds;
  std::int64_t eval_every = 0;    ///< slots; 0 = only at the end
  std::int64_t eval_batches = 0;  ///< 0 = the whole validation split
  bool evaluate_first = false;    ///< before the first slot
  bool evaluate_on_stop = false;  ///< when a signal ends the run
  std::int64_t log_every = 10;    ///< slots
  std::int64_t accumulate = 1;    ///< micro-batches per slot
  double clip = 0;                ///< global gradient norm; 0 = off
  bool stop_on_nan = true;
  double deadline = 300;                    ///< seconds of a single wait
  std::int64_t witness_every = 0;           ///< slots between slots whose tensors are recorded; 0 = none
  std::vector<std::string> witness_layers;  ///< patterns of nodes whose outputs are among them
};

/// [init]: the weights that a run begins with, from another run.
struct InitSettings {
  enum class What : std::uint8_t { kWeights, kOptimizer, kEverything };
  std::string from;                  ///< a run, an attempt of one, or a model folder; absolute
  What what = What::kWeights;        ///< each with those before it
  std::optional<std::int64_t> step;  ///< checkpoint; absent: the newest
  std::vector<std::string> rename;   ///< "THERE=HERE", each with at most one '*'
  bool draw_missing = false, drop_extra = false;
  std::vector<std::string> frozen;  ///< patterns of parameters that are not trained
  Origin origin;
};

/// [[evaluate]]: further data that the run is evaluated on; its component has the table "evaluate[i].data".
struct EvaluateSettings {
  std::string name;                   ///< metrics are val.NAME/...
  std::optional<std::int64_t> every;  ///< slots, 0 = only at the end; absent: [run] eval_every
  Origin origin;
};

/// [device], keys of the core.
struct DeviceSettings {
  std::int64_t threads = 0;  ///< per rank; 0 = the machine's cores shared among the ranks on it
  std::string kernels = "auto";
};

/// [parallel]
struct ParallelSettings {
  std::int64_t ranks = 1;    ///< replicas
  std::vector<int> grid;     ///< mesh of a replica; empty = one rank
  std::int64_t workers = 1;  ///< per replica
  std::int64_t servers = 0;
  /// Rows of tables that are sharded over the replicas: read and updated when a replica asks for them, not by
  /// all replicas in the same slots.
  bool rows_on_request = false;

  std::int64_t ranks_per_replica() const;  ///< product of grid
  /// World ranks 0 ... trainers() - 1 hold a part of a replica; servers come after them.
  std::int64_t trainers() const { return ranks * ranks_per_replica(); }
  std::int64_t world() const { return trainers() + servers; }
};

/// [transport.link]
struct LinkSettings {
  double bandwidth = std::numeric_limits<double>::infinity();  ///< bytes/s
  double latency = 0;                                          ///< seconds
  double jitter = 0;                                           ///< seconds
};

/// [transport.clock]: costs of computing under the simulated clock, in seconds.
struct CostSettings {
  std::optional<double> compute_seconds;  ///< forward and backward of one micro-batch; absent: calibrated
  double backward_share = 2.0 / 3;
  double optimizer_seconds = 0, mix_seconds = 0;
  bool calibrate = false;
  std::vector<double> speed;  ///< by rank; empty: 1
};

/// [[transport.straggler]]
struct StragglerSettings {
  enum class Kind : std::uint8_t { kFactor, kExponential, kPause, kLink };
  std::vector<std::int64_t> ranks;
  Kind kind = Kind::kFactor;
  double factor = 1;
  double mean = 0;  ///< fraction of a slot's compute
  std::int64_t step = 0;
  double seconds = 0;
};

/// [transport], keys of the core.
struct TransportSettings {
  std::optional<LinkSettings> link;  ///< absent: the link is not limited
  bool simulated_clock = false;
  CostSettings costs;
  std::vector<StragglerSettings> stragglers;
};

/// [power], keys of the core.
struct PowerSettings {
  double rate_hz = 100;  ///< readings of the source per second
};

/// [[tables.place]]; its components have the tables "tables.place[i].tier" and ".state".
struct TablePlace {
  std::string match;  ///< pattern of names of parameters
  bool has_state = false;
  Origin origin;
};

/// [[tables.budget]]; its component has the table "tables.budget[i].tier".
struct TableBudget {
  std::int64_t bytes = 0;  ///< of each rank
  Origin origin;
};

/// [tables]: where row tables live.
struct TableSettings {
  std::vector<TablePlace> places;
  std::vector<TableBudget> budgets;
  bool plan = false;
  std::string accesses;       ///< run with counts of rows; "": a power law
  double power_law = 1;       ///< its exponent
  std::int64_t prefetch = 0;  ///< slots
};

/// [[fault]]
struct FaultSettings {
  enum class Kind : std::uint8_t { kCrash, kHang, kSlow, kLink, kFlip };
  enum class Phase : std::uint8_t { kSlot, kForward, kBackward, kCollective, kUpdate };
  enum class What : std::uint8_t { kOutput, kGradient, kWeight, kState };
  std::int64_t rank = 0;
  std::int64_t step = 0;
  Kind kind = Kind::kCrash;
  Phase phase = Phase::kSlot;
  double seconds = 0;                ///< how long hang, slow or link lasts; 0 = for good
  std::optional<std::int64_t> peer;  ///< the other end of a broken link; absent: all of them
  What what = What::kOutput;         ///< flip: the kind of tensor
  std::string tensor;                ///< flip: "NODE", "NODE:1", "PARAMETER" or "optimizer.SLOT/PARAMETER"
  std::int64_t bit = 0;              ///< flip: from the first byte of this rank's part, lowest bit first
  Origin origin;
};

/// When domains of an emulated cluster fail: a renewal process whose times between failures have this law.
struct FailureLaw {
  double hours = 0;       ///< length of the job
  double mean_hours = 0;  ///< between failures; 0 = none
  double shape = 1;       ///< of the gamma law; 1 = exponential
  int shards = 1;
  int lost = 1;      ///< domains that each failure takes
  int at_least = 0;  ///< draws with fewer failures are drawn again
  std::uint64_t seed = 1;
};

struct EmulatedFailure {
  double hour = 0;  ///< of productive time
  std::vector<int> shards;
  bool operator==(const EmulatedFailure& other) const = default;
};

/// [emulate]: the run represents a job of this many hours on a cluster.
struct EmulateSettings {
  double hours = 0;
  FailureDomains domains;  ///< hashed
  FailureLaw law;          ///< its seed: [emulate] seed, else [run] seed
  ClusterCosts costs;
  std::vector<EmulatedFailure> scripted;  ///< [[emulate.failure]]
};

enum class BufferPolicy : std::uint8_t { kAverage, kLocal, kBroadcast };

inline constexpr auto kBuffers = option::choice<BufferPolicy>({{"average", BufferPolicy::kAverage},
                                                               {"local", BufferPolicy::kLocal},
                                                               {"broadcast", BufferPolicy::kBroadcast}});
/// Whether a parameter that one side alone has is refused.
inline constexpr auto kInitWhat =
    option::choice<InitSettings::What>({{"weights", InitSettings::What::kWeights},
                                        {"weights+optimizer", InitSettings::What::kOptimizer},
                                        {"everything", InitSettings::What::kEverything}});
inline constexpr auto kMissing = option::choice<bool>({{"refuse", false}, {"draw", true}});
inline constexpr auto kExtra = option::choice<bool>({{"refuse", false}, {"drop", true}});
inline constexpr auto kStragglers =
    option::choice<StragglerSettings::Kind>({{"factor", StragglerSettings::Kind::kFactor},
                                             {"exponential", StragglerSettings::Kind::kExponential},
                                             {"pause", StragglerSettings::Kind::kPause},
                                             {"link", StragglerSettings::Kind::kLink}});
inline constexpr auto kFaults = option::choice<FaultSettings::Kind>({{"crash", FaultSettings::Kind::kCrash},
                                                                     {"hang", FaultSettings::Kind::kHang},
                                                                     {"slow", FaultSettings::Kind::kSlow},
                                                                     {"link", FaultSettings::Kind::kLink},
                                                                     {"flip", FaultSettings::Kind::kFlip}});
inline constexpr auto kFlipped =
    option::choice<FaultSettings::What>({{"output", FaultSettings::What::kOutput},
                                         {"gradient", FaultSettings::What::kGradient},
                                         {"weight", FaultSettings::What::kWeight},
                                         {"state", FaultSettings::What::kState}});
inline constexpr auto kFaultPhases =
    option::choice<FaultSettings::Phase>({{"slot", FaultSettings::Phase::kSlot},
                                          {"forward", FaultSettings::Phase::kForward},
                                          {"backward", FaultSettings::Phase::kBackward},
                                          {"collective", FaultSettings::Phase::kCollective},
                                          {"update", FaultSettings::Phase::kUpdate}});

/// [recovery]: what the core asks of checkpoints before it goes on from one.
struct RecoverySettings {
  std::int64_t fallbacks = 3;  ///< older generations that an attempt may take in place of newer ones
  bool canary = true;          ///< losses are recorded beside checkpoints, and compared
};

struct CoreSettings {
  RunSettings run;
  std::optional<InitSettings> init;
  std::vector<EvaluateSettings> evaluate;
  DeviceSettings device;
  ParallelSettings parallel;
  TransportSettings transport;
  BufferPolicy buffers = BufferPolicy::kAverage;
  RecoverySettings recovery;
  std::vector<FaultSettings> faults;
  PowerSettings power;
  TableSettings tables;
  std::optional<EmulateSettings> emulate;
  std::vector<std::string> plugin_paths;  ///< absolute
};

/// A table whose `type` names a component.
struct ComponentSection {
  /// "optimizer"; "power.source"; "evaluate.data", one in each [[evaluate]]; "tables.place.tier"
  std::string_view table;
  std::string_view kind;  ///< "optimizer/1"
  bool is_list = false;   ///< [[observe]]
  bool required = false;
};
std::span<const ComponentSection> component_sections();

/// Options of the core in a table ("run", "device", "transport.clock", "fault", "model.insert"); empty for
/// others.
std::span<const OptionSpec> core_specs(std::string_view table);
/// Tables and lists of tables within a table of the core: "link" in "transport", "data" in "evaluate".
std::vector<std::string> core_children(std::string_view table);
/// Whether a table of the core is an element of a list: [[fault]].
bool is_core_list(std::string_view table);
/// All keys of the core in a table, sub-tables included: what a change of `type` leaves alone.
std::vector<std::string> core_keys(std::string_view table);
/// Tables that a run may have, for messages: "run", "device", ...
std::vector<std::string> top_level_tables();

/// A table that a file may have, as the schemas of files for editors describe it.
struct TableSpecs {
  std::string path;  ///< "run", "transport.straggler"; "" = the file itself
  std::span<const OptionSpec> specs = {};
  bool is_list = false;        ///< [[fault]]
  std::string_view kind = {};  ///< of the component that its `type` names; "" = no component
  /// `type` and mandatory options may be absent: [[model.override]].
  bool overrides = false;
  bool open = false;  ///< any key, whose meaning belongs to another file
};
/// Every table of a run.
std::vector<TableSpecs> run_tables();

/// A component named in the configuration, validated and not yet made.
struct CheckedComponent {
  std::string table;  ///< "optimizer"; "observe[1]"; "evaluate[0].data"; "tables.place[0].tier"
  std::string kind;
  std::string type;
  Origin type_origin;
  std::unique_ptr<ResolvedOptions> options;

  /// For another rank, whose component has options of its own.
  CheckedComponent copy() const { return {table, kind, type, type_origin, options->unmade()}; }
};

/// The component of a table; null when the configuration has no such table.
CheckedComponent* find_component(std::span<CheckedComponent> components, std::string_view table);

struct CheckedRun {
  CoreSettings core;
  std::vector<CheckedComponent> components;  ///< in the order of component_sections()
  Value model_edits;                         ///< the members layer, override, remove, insert of [model]
  Config resolved;                           ///< defaults filled in
  std::vector<std::string> warnings;

  CheckedComponent* component(std::string_view table) { return find_component(components, table); }
};

/// Validates a whole run. Throws Error(kConfig) with one line per problem. `extra_tables` are legal and
/// passed on unread: kinds that the core does not know (simulator).
CheckedRun check_run(const Config& config, const ComponentCatalog& catalog,
                     std::span<const std::string> extra_tables);

/// Validates [model], [precision] and [device] alone, as check_run does, and reads no other table: for what a
/// model is apart from a run. The result has these components and the model's edits.
CheckedRun check_model(const Config& config, const ComponentCatalog& catalog);

/// Whether runs/NAME is a folder below runs/: one name, or several joined by '/', none of them empty, ".",
/// ".." or "latest" (the link to a run's newest attempt), or with control characters.
bool is_safe_name(std::string_view name);

/// [plugins] paths alone, made absolute: needed before the catalog can be built.
std::vector<std::string> plugin_paths(const Config& config);

}  // namespace config
TENON_ABI_END
