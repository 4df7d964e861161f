// Spec tables of the core's own sections. Reading them into settings: run_check.cpp.
#include "config/run_schema.hpp"

#include <algorithm>

TENON_ABI_BEGIN
namespace config {
namespace {

using option::boolean;
using option::integer;
using option::integers;
using option::path;
using option::paths;
using option::real;
using option::reals;
using option::text;
using option::texts;

constexpr const char* kOnNan[] = {"stop", "continue", nullptr};
constexpr const char* kClocks[] = {"wall", "simulated", nullptr};
constexpr const char* kRows[] = {"step", "request", nullptr};
constexpr const char* kFailureLaws[] = {"none", "exponential", "gamma", nullptr};

constexpr OptionSpec kRun[] = {
    text("name", nullptr).doc_text("name of the run folder; the configuration file's name unless given"),
    integer("seed", "1").at_least(0).doc_text("seed of every random number that has no seed of its own"),
    integer("seed_init", nullptr).at_least(0).doc_text("seed of initial weights"),
    integer("seed_order", nullptr).at_least(0).doc_text("seed of the order of samples"),
    integer("seed_rounding", nullptr).at_least(0).doc_text("seed of stochastic rounding"),
    integer("steps", nullptr).mandatory().at_least(1).in_unit("slots").doc_text("length of the run in slots"),
    integer("max_samples", nullptr).at_least(1).in_unit("samples").doc_text("stop after this many samples"),
    integer("max_tokens", nullptr).at_least(1).in_unit("tokens").doc_text("stop after this many tokens"),
    real("max_seconds", nullptr)
        .at_least(0)
        .in_unit("s")
        .doc_text("stop after this much time on the run's clock"),
    integer("max_bytes", nullptr).at_least(1).in_unit("bytes").doc_text("stop after this many bytes sent"),
    integer("eval_every", "0")
        .at_least(0)
        .in_unit("slots")
        .doc_text("slots between evaluations; 0 = at the end only"),
    integer("eval_batches", "0").at_least(0).in_unit("batches").doc_text("batches of an evaluation; 0 = all"),
    boolean("evaluate_first", "false").doc_text("evaluate also before the first slot"),
    boolean("evaluate_on_stop", "false")
        .doc_text("evaluate also when a signal ends the run, once it has saved"),
    integer("log_every", "10").at_least(1).in_unit("slots").doc_text("slots between training metrics"),
    integer("accumulate", "1")
        .between(1, 2147483647)
        .in_unit("micro-batches")
        .doc_text("micro-batches per slot"),
    real("clip", "0").at_least(0).doc_text("largest global gradient norm; 0 = no clipping"),
    text("on_nan", "'stop'").one_of(kOnNan).doc_text("what a loss that is not finite does to the run"),
    real("deadline", "300")
        .at_least(0.001)
        .in_unit("s")
        .doc_text("longest single wait, and longest pass of one layer"),
    integer("witness_every", "0")
        .at_least(0)
        .in_unit("slots")
        .doc_text("slots between slots of which a digest of each tensor is recorded; 0 = none"),
    texts("witness_layers", "['*']")
        .doc_text("patterns of nodes whose outputs are recorded there: \"block.*.mlp\""),
};

constexpr OptionSpec kInit[] = {
    path("from", nullptr)
        .mandatory()
        .doc_text("run, attempt of one, or model folder whose weights this run begins with"),
    text("what", "'weights'")
        .one_of(kInitWhat)
        .doc_text("also the optimizer's state, or everything: a fork, which goes on at the same slot"),
    integer("step", nullptr)
        .at_least(0)
        .in_unit("slots")
        .doc_text("which of its checkpoints; the newest unless given"),
    texts("rename", "[]")
        .doc_text(
            "\"THERE=HERE\": parameters that have another name there; one * on each side stands for the "
            "same text"),
    text("missing", "'refuse'")
        .one_of(kMissing)
        .doc_text("parameters of this model that are not there: refuse the run, or draw them"),
    text("extra", "'refuse'")
        .one_of(kExtra)
        .doc_text("parameters there that this model has not: refuse the run, or drop them"),
    texts("frozen", "[]").doc_text("patterns of parameters that are not trained: \"*.wte.*\""),
};

constexpr OptionSpec kEvaluate[] = {
    text("name", nullptr)
        .mandatory()
        .doc_text("of its metrics, which are val.NAME/...: letters, digits, '_' and '-'"),
    integer("every", nullptr)
        .at_least(0)
        .in_unit("slots")
        .doc_text("slots between its evaluations, 0 = at the end only; run.eval_every unless given"),
};

constexpr OptionSpec kDevice[] = {
    integer("threads", "0")
        .between(0, 4096)
        .in_unit("threads")
        .doc_text("threads per rank; 0 = the machine's cores, shared"),
    text("kernels", "'auto'").doc_text("kernel set by name; auto = the best one that the processor runs"),
};

constexpr OptionSpec kParallel[] = {
    integer("ranks", "1").at_least(1).at_most(1 << 20).doc_text("replicas"),
    integers("grid", "[]").at_least(1).at_most(1 << 20).doc_text("mesh of each replica; empty = one rank"),
    integer("workers", "1").between(1, 4096).doc_text("workers per replica"),
    integer("servers", "0")
        .at_least(0)
        .at_most(1 << 20)
        .doc_text(
            "ranks without a model, numbered after all others, that hold the central state of a strategy"),
    text("rows", "'step'")
        .one_of(kRows)
        .doc_text("of tables sharded over the replicas: all replicas read and update them in the same slots, "
                  "or each asks their owners when it needs them"),
};

constexpr OptionSpec kLink[] = {
    real("bandwidth", "inf").at_least(1).in_unit("bytes/s").doc_text("of one direction of a link"),
    real("latency", "0").at_least(0).in_unit("s").doc_text("added to every message"),
    real("jitter", "0").at_least(0).in_unit("s").doc_text("largest random addition to the latency"),
};
constexpr OptionSpec kClock[] = {
    text("type", "'wall'")
        .one_of(kClocks)
        .doc_text("real time, or time simulated from compute and link costs"),
    real("compute_seconds", nullptr)
        .at_least(0)
        .in_unit("s")
        .doc_text(
            "cost of forward and backward of one micro-batch; the simulated clock needs it, or calibrate"),
    real("backward_share", "0.6666666666666666")
        .between(0, 1)
        .doc_text("share of compute_seconds; gradient buckets become ready spread over it"),
    real("optimizer_seconds", "0").at_least(0).in_unit("s").doc_text("an applied update"),
    real("mix_seconds", "0").at_least(0).in_unit("s").doc_text("a slot that mixes weights"),
    boolean("calibrate", "false")
        .doc_text("measure these costs in the first slots instead; results then depend on the machine"),
    reals("speed", "[]").doc_text("relative compute speed of each rank; empty = 1 for all"),
};

constexpr OptionSpec kStraggler[] = {
    integers("ranks", nullptr).mandatory().at_least(0).doc_text("the ranks that lag"),
    text("kind", nullptr).mandatory().one_of(kStragglers).doc_text("how they lag"),
    real("factor", "1")
        .at_least(1e-6)
        .doc_text("factor: compute-time multiplier; link: share of the bandwidth that is left"),
    real("mean", "0")
        .at_least(0)
        .in_unit("steps")
        .doc_text("exponential: mean of a random delay in each slot, as a fraction of its compute"),
    integer("step", "0")
        .at_least(0)
        .in_unit("slots")
        .doc_text("pause: the slot before which the rank pauses"),
    real("seconds", "0").at_least(0).in_unit("s").doc_text("pause: its length"),
};

constexpr OptionSpec kSync[] = {
    text("buffers", "'average'")
        .one_of(kBuffers)
        .doc_text("what happens to buffers (batch-norm statistics) at a sync"),
};

constexpr OptionSpec kRecovery[] = {
    integer("fallbacks", "3")
        .between(0, 1000)
        .in_unit("generations")
        .doc_text("how often an attempt may take an older checkpoint because the newest one is damaged or "
                  "its canary differs; then it ends with an error"),
    boolean("canary", "true")
        .doc_text("record the first loss after each checkpoint, and compare it before training goes on "
                  "from that checkpoint"),
};

constexpr OptionSpec kPower[] = {
    real("rate_hz", "100").between(0.1, 10000).in_unit("1/s").doc_text("readings of the source per second"),
};

constexpr const char* kPlans[] = {"none", "auto", nullptr};
constexpr OptionSpec kTableKeys[] = {
    integer("prefetch", "0")
        .between(0, 16)
        .in_unit("slots")
        .doc_text("how many slots ahead a tier hears which rows it will be asked for; 0 = never"),
    text("plan", "'none'")
        .one_of(kPlans)
        .doc_text("auto: the budgets are filled with the rows that are read most per byte; tables of a "
                  "[[tables.place]] keep theirs"),
    path("accesses", nullptr)
        .doc_text(
            "run whose observer `tables` counted the rows, for the plan and for the hits that tenon check "
            "expects; absent: a power law"),
    real("power_law", "1")
        .between(0, 10)
        .doc_text(
            "without `accesses`: the k-th most frequent row of a table is taken to be read k^-power_law "
            "times as often as the first, and all tables equally often"),
};
constexpr OptionSpec kPlace[] = {
    text("match", nullptr)
        .mandatory()
        .doc_text("pattern of names of row tables, e.g. emb.*.weight; the first that matches counts"),
};
constexpr OptionSpec kBudget[] = {
    text("bytes", nullptr)
        .mandatory()
        .doc_text(
            "of this tier on each rank, for weights and optimizer rows: \"2GiB\"; from the fastest tier "
            "to the slowest"),
};

constexpr OptionSpec kFault[] = {
    integer("rank", nullptr).mandatory().at_least(0).doc_text("the rank that fails"),
    integer("step", nullptr).mandatory().at_least(0).doc_text("the slot in which it fails"),
    text("kind", nullptr).mandatory().one_of(kFaults).doc_text("how it fails"),
    text("phase", "'slot'")
        .one_of(kFaultPhases)
        .doc_text("when: before the slot, in its forward or backward, at its next collective, or before its "
                  "update"),
    real("seconds", "0").at_least(0).in_unit("s").doc_text("how long it lasts; 0 = for good"),
    integer("peer", nullptr).at_least(0).doc_text("the other end of a broken link"),
    text("what", nullptr)
        .one_of(kFlipped)
        .doc_text("flip: what the tensor is; the gradient of a slot, a weight or an optimizer state changes "
                  "before it is used next"),
    text("tensor", nullptr)
        .doc_text("flip: name of a node, of a parameter, or optimizer.SLOT/PARAMETER, as a witness has it"),
    integer("bit", nullptr)
        .at_least(0)
        .doc_text(
            "flip: which bit, from the tensor's first byte, the lowest of a byte first; 0 unless given"),
};

constexpr OptionSpec kEmulate[] = {
    real("hours", nullptr)
        .mandatory()
        .at_least(1e-6)
        .in_unit("h")
        .doc_text("length of the emulated job, over which the planned slots are spread"),
    integer("shards", "8")
        .between(1, 1 << 20)
        .doc_text("number of failure domains; a fixed hash assigns each row of a table to one"),
    text("law", "'none'").one_of(kFailureLaws).doc_text("distribution of the times between drawn failures"),
    real("mtbf_hours", nullptr).at_least(1e-6).in_unit("h").doc_text("mean time between failures of the job"),
    real("shape", "0.7")
        .between(0.01, 1000)
        .doc_text("shape of the gamma law; below 1, failures come in clusters"),
    integer("lost", "1").between(1, 1 << 20).doc_text("failure domains that each drawn failure loses"),
    integer("at_least", "0")
        .between(0, 1000)
        .doc_text("draw the schedule again until it has at least this many failures"),
    integer("seed", nullptr).at_least(0).doc_text("seed of the schedule; the run's own unless given"),
    real("save_minutes", "0")
        .at_least(0)
        .in_unit("min")
        .doc_text("cost of a complete save; other saves are charged by their bytes"),
    real("load_minutes", "0").at_least(0).in_unit("min").doc_text("cost of loading after a failure"),
    real("restart_minutes", "0").at_least(0).in_unit("min").doc_text("cost of starting a replacement"),
};

constexpr OptionSpec kEmulatedFailure[] = {
    real("hour", nullptr).mandatory().at_least(0).in_unit("h").doc_text("of productive time"),
    integers("shards", nullptr).mandatory().at_least(0).doc_text("failure domains that lose their rows"),
};

constexpr OptionSpec kPlugins[] = {
    paths("paths", "[]").doc_text("files and folders to search for plugins first"),
};

constexpr OptionSpec kModelLayer[] = {
    text("name", nullptr).mandatory().doc_text("name of the node"),
    texts("inputs", nullptr).doc_text("data fields and nodes that feed it; the node before it unless given"),
};
constexpr OptionSpec kModelOverride[] = {
    text("match", nullptr).mandatory().doc_text("pattern of node names, e.g. block.*.mlp.*"),
};
constexpr OptionSpec kModelInsert[] = {
    text("after", nullptr).doc_text("node, pattern of nodes or data field whose readers read the new node"),
    text("before", nullptr).doc_text("node or pattern of nodes whose first input becomes the new node"),
    text("name", nullptr).mandatory().doc_text("name of the new node; {} is that of the matched one"),
    texts("inputs", nullptr).doc_text("data fields and nodes that feed it; the replaced edge unless given"),
};
constexpr OptionSpec kModelRemove[] = {
    text("match", nullptr).mandatory().doc_text("pattern of names of nodes to take out"),
};

struct CoreTable {
  std::string_view table;
  std::span<const OptionSpec> specs;
  std::string_view children[4] = {};  // sub-tables and lists of the core inside it
  bool is_list = false;
};

constexpr CoreTable kTables[] = {
    {"run", kRun},
    {"init", kInit},
    {"evaluate", kEvaluate, {"data"}, true},
    {"device", kDevice},
    {"parallel", kParallel},
    {"transport", {}, {"link", "clock", "straggler"}},
    {"transport.link", kLink},
    {"transport.clock", kClock},
    {"transport.straggler", kStraggler, {}, true},
    {"model", {}, {"layer", "override", "remove", "insert"}},
    {"model.layer", kModelLayer, {}, true},
    {"model.override", kModelOverride, {}, true},
    {"model.remove", kModelRemove, {}, true},
    {"model.insert", kModelInsert, {}, true},
    {"sync", kSync},
    {"recovery", kRecovery},
    {"power", kPower, {"source", "actuator"}},
    {"tables", kTableKeys, {"place", "budget"}},
    {"tables.place", kPlace, {"tier", "state"}, true},
    {"tables.budget", kBudget, {"tier"}, true},
    {"emulate", kEmulate, {"failure"}},
    {"emulate.failure", kEmulatedFailure, {}, true},
    {"fault", kFault, {}, true},
    {"plugins", kPlugins},
};

constexpr ComponentSection kComponents[] = {
    {"device", "device/1", false, true}, {"transport", "transport/1"},
    {"data", "dataset/1", false, true},  {"model", "model/1", false, true},
    {"precision", "precision/1"},        {"optimizer", "optimizer/1", false, true},
    {"schedule", "schedule/1"},          {"sync", "sync/1"},
    {"recovery", "recovery/1"},          {"observe", "observer/1", true},
    {"power.source", "power/1"},         {"power.actuator", "power/1"},
    {"evaluate.data", "dataset/1"},      {"tables.place.tier", "tier/1"},
    {"tables.place.state", "tier/1"},    {"tables.budget.tier", "tier/1"},
};

}  // namespace

std::span<const ComponentSection> component_sections() {
  return kComponents;
}

std::span<const OptionSpec> core_specs(std::string_view table) {
  for (const CoreTable& entry : kTables) {
    if (entry.table == table) return entry.specs;
  }
  return {};
}

std::vector<std::string> core_children(std::string_view table) {
  std::vector<std::string> children;
  for (const CoreTable& entry : kTables) {
    if (entry.table != table) continue;
    for (const std::string_view child : entry.children) {
      if (!child.empty()) children.emplace_back(child);
    }
  }
  return children;
}

std::vector<std::string> core_keys(std::string_view table) {
  std::vector<std::string> keys;
  for (const CoreTable& entry : kTables) {
    if (entry.table != table) continue;
    for (const OptionSpec& spec : entry.specs) keys.emplace_back(spec.name);
  }
  for (std::string& child : core_children(table)) keys.push_back(std::move(child));
  return keys;
}

bool is_core_list(std::string_view table) {
  return std::ranges::any_of(kTables,
                             [&](const CoreTable& entry) { return entry.table == table && entry.is_list; });
}

std::vector<std::string> top_level_tables() {
  return {"run",   "init",      "device",    "parallel", "transport", "data",     "evaluate",
          "model", "precision", "optimizer", "schedule", "sync",      "recovery", "observe",
          "power", "tables",    "emulate",   "fault",    "plugins"};
}

std::vector<TableSpecs> run_tables() {
  std::vector<TableSpecs> tables;
  for (const CoreTable& entry : kTables)
    tables.push_back({std::string(entry.table), entry.specs, entry.is_list});
  const auto table_of = [&](std::string_view path) -> TableSpecs& {
    const auto found =
        std::find_if(tables.begin(), tables.end(), [&](const TableSpecs& t) { return t.path == path; });
    return found != tables.end() ? *found : tables.emplace_back(TableSpecs{std::string(path)});
  };
  for (const ComponentSection& section : kComponents) {
    TableSpecs& table = table_of(section.table);
    table.kind = section.kind;
    table.is_list = section.is_list;
  }
  for (const char* edit : {"model.layer", "model.override", "model.insert"}) table_of(edit).kind = "layer/1";
  table_of("model.override").overrides = true;
  return tables;
}

}  // namespace config
TENON_ABI_END
