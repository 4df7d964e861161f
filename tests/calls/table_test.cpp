// Every virtual function of every interface that plugins implement, made to fail in four ways: a sentence or
// a report names the plugin and the component, and the process ends with the status of plugin errors.
//
// The functions come from the headers: one that is new needs a row here, or a reason. Each cell is a process
// that trains as `tenon train` does. TENON_CALLS=TEXT runs the cells whose names contain TEXT.
#include "functions.hpp"
#include "lookup.hpp"
#include "sabotage.hpp"

#include "plugin/process_end.hpp"

#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/language_model.hpp>
#include <tenon/numerics.hpp>
#include <tenon/observer.hpp>
#include <tenon/on_policy.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/phases.hpp>
#include <tenon/recovery.hpp>
#include <tenon/registry.hpp>
#include <tenon/reward.hpp>
#include <tenon/save_places.hpp>
#include <tenon/stepwise.hpp>
#include <tenon/sync_extra.hpp>

#include <test_paths.hpp>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace tenon::calls {
namespace {

// Interfaces that the core or a service implements: plugins call them.
const std::set<std::string> kOfTheHost = {
    "Actor",        "BackwardContext", "Clock",        "ComponentCatalog", "ControlPlane",   "FactReport",
    "FileSystem",   "ForwardContext",  "Host",         "InferContext",     "LayerFactory",   "LayerOwner",
    "Generator",    "MetricReport",    "MetricSink",   "NumericsSink",     "OperandCounter", "Options",
    "ParameterSet", "ReadableFile",    "RecoveryHost", "Replica",          "RewardParts",    "RowPlaces",
    "RowService",   "RowTable",        "RunContext",   "SequenceState",    "ServerNode",     "SharedObjects",
    "SiteHost",     "SpanSink",        "TableCounts",  "StateVisitor",     "StoredModel",    "StoredModels",
    "TaskWatch",    "TensorWriter",    "WritableFile"};

/// Passes its input on, and uses every operation between the replicas.
class Talker final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "talker", .summary = "talks to the other replicas"};
  explicit Talker(const Options&) {}
  void infer(InferContext& context) override {
    context.output(context.input(0));
    replicas_ = context.replicas();
  }
  void forward(ForwardContext& context) override {
    const TensorView x = context.input(0), y = context.output(0);
    std::copy_n(x.raw().data(), x.raw().size(), y.raw().data());
    if (context.training()) talk();
  }
  void backward(BackwardContext&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  void talk() {
    Communicator& all = *replicas_;
    const TensorView flat{numbers_.data(), Shape{all.size()}, DType::kF64};
    const TensorView rows{numbers_.data(), Shape{all.size(), 1}, DType::kF64};
    const int other = 1 - all.rank();
    if (other == 1) all.send(flat, other, 1);
    if (other == 0) all.receive(flat, other, 1);
    if (other == 0) all.send(flat, other, 1);
    if (other == 1) all.receive(flat, other, 1);
    all.all_gather(rows);
    all.wait(all.start_reduce_scatter(rows, ReduceOp::kSum));
    all.broadcast(flat, 0);
    all.wait(all.start_reduce(flat, 0, ReduceOp::kSum));
    const Request request =
        all.start_all_to_all(flat, one_each_, {received_.data(), Shape{all.size()}, DType::kF64}, one_each_);
    all.done(request);
    all.wait(request);
    all.barrier();
    all.counts();
    all.cancel("the end of this talk");
  }
  Communicator* replicas_ = nullptr;
  // Another rank may still read and write them when a call has thrown.
  std::vector<double> numbers_ = std::vector<double>(2), received_ = std::vector<double>(2);
  const std::vector<std::int64_t> one_each_ = {1, 1};
};

/// Acts at every boundary.
class Bounds final : public RecoveryBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "bounds", .summary = "acts at every boundary"};
  explicit Bounds(const Options&) {}
  BoundaryPlan plan_boundary(const SaveMoment&) override { return {.acts = true}; }
};

/// One for every answer.
class Always final : public Reward {
 public:
  static constexpr ComponentInfo kInfo{.id = "always", .summary = "one"};
  explicit Always(const Options&) {}
  void score(const RewardSample&, RewardParts& parts) const override { parts.add("one", 1); }
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(rehearsal_calls,
                    PluginInfo{.id = "rehearsal.calls", .version = "1.0.0", .summary = "for calls"},
                    rehearsal::Lookup, Talker, Bounds, Always)

// Answers for interfaces that no shipped component of these runs offers.

struct Watching final : MemoryWatch {
  void begins(TensorView, std::string_view) override {}
};
struct Scoring final : MetricLayer {
  void begin() override {}
  void finish(Communicator*, MetricReport&) override {}
};
struct Operands final : NumericsObserver {
  bool numerics(std::int64_t) override { return true; }
  void on_operand(const OperandNumerics&) override {}
};
struct Tensors final : TensorObserver {
  TensorRequest tensors(std::int64_t) override { return {.parameters = true, .outputs = true}; }
  void on_output(const ObservedOutput&) override {}
  void on_parameters(std::span<const ObservedParameter>) override {}
};
struct Hearing final : PhaseObserver {
  void on_phase(Phase, double) override {}
};
struct Accesses final : RowObserver {
  void on_tables(std::span<const ParameterInfo>) override {}
  void on_accesses(int, std::span<const std::int64_t>, std::span<const std::uint32_t>) override {}
};
struct Binding final : OptimizerBinding {
  void bind(const OptimizerSetup&) override {}
};
struct Scaling final : LossScaler {
  bool answers_overflow() const override { return false; }
};
struct Counting final : PrecisionMetrics {
  void metrics(const std::function<void(std::string_view, double)>&) override {}
};
struct Selecting final : SaveSelector {
  void select(const SaveMoment&, SavePlan&) override {}
};
struct Placing final : SavePlaces {
  std::span<const SavePlace> places() const override { return {}; }
  int place(const SaveMoment&) const override { return kRunFolder; }
};
struct Varying final : NotRepeatable {
  std::string reason() const override { return "of this test"; }
};
struct Reaching final : DeviceTransport {
  std::string missing() override { return ""; }
  void attach(int, Device&) override {}
};
struct Launched final : Rendezvous {
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  std::vector<std::string> exchange(const std::string& text) override { return {text}; }
};

Watching watching;
Scoring scoring;
Operands operands;
Tensors tensors;
Accesses accesses;
Hearing hearing;
Binding binding;
Scaling scaling;
Counting counting;
Selecting selecting;
Placing placing;
Varying varying;
Reaching reaching;
Launched launched;

// The runs.

struct Run {
  std::vector<std::string> sets;
  bool resumed = false;  ///< an attempt without failures goes before
  int rank = 0;          ///< whose component fails
};

const char* const kBase = R"(
[run]
steps = 4
log_every = 1
eval_every = 2
deadline = 20
[device]
type = "cpu"
threads = 1
[data]
type = "points"
[model]
type = "blank"
[precision]
type = "fp16"
[optimizer]
type = "adamw"
lr = 0.01
[schedule]
type = "cosine"
[recovery]
type = "full"
every = 2
[[observe]]
type = "trace"
)";

using Sets = std::vector<std::string>;

const Sets kGraph = {
    "model.layer=[{name='fc', type='linear', features=16, inputs=['x']}, {name='fc2', type='linear', "
    "features=16, inputs=['fc']}, {name='loss', type='quadratic', inputs=['fc2']}]"};

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Sets kTwo = {"transport={type='thread'}", "parallel={ranks=2}"};
const Sets kTable = {"model.layer=[{name='loss', type='lookup', inputs=['x']}]", "precision={type='fp32'}",
                     "optimizer={type='rowwise_adagrad', lr=0.05}"};
const Sets kTalk = {
    "model.layer=[{name='talk', type='talker', inputs=['x']}, {name='loss', type='quadratic', "
    "inputs=['talk']}]"};
const Sets kCodes = {"recovery={type='checknrun', every=2, bits='8'}"};
const Sets kRollouts = {"data={type='rollouts', path='" TENON_SOURCE_DIR
                        "/plugins/dataset/rollouts/prompts.jsonl', context=16, batch=4, answers=2, "
                        "answer_tokens=3, reward={type='always'}}",
                        "model={type='gpt_neo', layers=1, width=8, heads=2, objective='policy'}",
                        "precision={type='fp32'}"};
const Sets kClicks = {"data={type='synthetic_ctr', tables=2, rows=[40], batch=16}",
                      "model={type='dlrm', placement='rows'}",
                      "precision={type='fp32'}",
                      "optimizer={type='rowwise_adagrad', lr=0.02}",
                      "transport={type='thread'}",
                      "sync={type='local_sgd'}",
                      "parallel={ranks=2, rows='request'}"};

const std::map<std::string, Run> kRuns = {
    {"one rank", {kGraph}},
    {"boundaries", {{"recovery={type='bounds'}"}}},
    {"many slots", {kGraph + Sets{"run.steps=24"}}},
    {"its own graph", {}},
    {"any device", {kGraph + Sets{"device={type='auto'}"}}},
    {"two ranks", {kGraph + kTwo + Sets{"sync={type='ddp'}"}}},
    {"two ranks, the second", {kGraph + kTwo + Sets{"sync={type='ddp'}"}, false, 1}},
    {"all operations", {kTwo + kTalk + Sets{"sync={type='ddp'}"}}},
    {"a failure", {kGraph + kTwo + Sets{"sync={type='ddp'}", "fault=[{rank=1, step=2, kind='crash'}]"}}},
    {"rows", {kTable}},
    {"tiers", {kTable + Sets{"tables={place=[{match='*', tier={type='dram'}}]}"}}},
    {"increments", {kTable + kCodes}},
    {"increments, continued", {kTable + kCodes, true}},
    {"outages",
     {kTable + Sets{"recovery={type='cpr', partial='always'}", "run.steps=16", "sync={type='ddp'}",
                    "emulate={hours=16.0, shards=4, failure=[{hour=5.0, shards=[1]}]}"}}},
    {"rollouts", {kRollouts}},
    {"lookups", {kClicks}},
    {"hints", {kClicks + Sets{"tables={prefetch=1, place=[{match='*', tier={type='cached'}}]}"}}},
    {"servers",
     {{"transport={type='thread'}", "parallel={ranks=2, servers=1}", "sync={type='shadow_easgd'}"},
      false,
      2}},
    {"compressed", {kGraph + kTwo + Sets{"sync={type='powersgd', inner={type='ddp'}}"}}},
};

// The rows.

/// Another run, and another component in it.
struct Other {
  std::string run, type = {}, plugin = {};
};

struct Row {
  std::string interface, run;
  Sabotage sabotage;
  std::string plugin;
  std::map<std::string, Other> others = {};          ///< of single functions
  std::map<std::string, std::string> uncalled = {};  ///< functions that no run calls, and why
};

const char* const kDoctor = "`tenon doctor` alone asks, in a process of its own";
const char* const kOther = "plugins call it, and never the core: the caller is named";
const char* const kDeath = "needs a rank that dies in a process of its own";
const char* const kSimulates = "`tenon simulate` calls it in processes of its own";
const char* const kTransforms = "`tenon transform` calls it, outside of runs";
const char* const kShared = "the core ends it, and calls nothing else";
const char* const kPower = "`tenon power` alone calls it, outside of runs";
const char* const kBeside = "they may fail without ending a run: contract_power_test makes each of them fail";
const char* const kCheck = "`tenon check` alone asks";
const char* const kOfTables = "layers and updates call it through their table: they are named";
const char* const kStated = "tenon fuzz and tests of identities ask, without a run";
const char* const kKept = "saves and restores call it, of tiers that outlive the process: tier_shared_test";
const char* const kWithinData = "data sets call it, and drop the answer: contract_on_policy_test";
const char* const kMarks = "it has no functions";
const char* const kExports = "`tenon export` and `tenon tokenize` alone call it, outside of runs";
const char* const kNowhere = "the core never calls it";

const std::vector<Row> kRows = {
    {"Dataset", "one rank", {"dataset/1", "points"}, "rehearsal.support", {}, {{"query", kNowhere}}},
    {"Device", "one rank", {"device/1", "cpu"}, "tenon.device_cpu", {{"synchronize", {"many slots"}}}},
    {"DeviceAvailability",
     "any device",
     {"device/1", "cpu", Origin::kOffered, DeviceAvailability::kId},
     "tenon.device_cpu"},
    {"MemoryWatch",
     "one rank",
     {"device/1", "cpu", Origin::kAnswered, MemoryWatch::kId, &watching},
     "tenon.device_cpu"},
    {"Layer", "one rank", {"layer/1", "linear"}, "tenon.nn"},
    {"LossLayer",
     "one rank",
     {"layer/1", "quadratic", Origin::kOffered, LossLayer::kId},
     "rehearsal.support"},
    {"MetricLayer",
     "one rank",
     {"layer/1", "linear", Origin::kAnswered, MetricLayer::kId, &scoring},
     "tenon.nn"},
    {"Model",
     "one rank",
     {"model/1", "blank"},
     "rehearsal.support",
     {{"build", {"its own graph"}}},
     {{"query", kNowhere}}},
    {"NumericsObserver",
     "one rank",
     {"observer/1", "trace", Origin::kAnswered, NumericsObserver::kId, &operands},
     "tenon.trace"},
    {"Observer",
     "one rank",
     {"observer/1", "trace"},
     "tenon.trace",
     {{"every_rank", {"two ranks, the second"}}}},
    {"TensorObserver",
     "one rank",
     {"observer/1", "trace", Origin::kAnswered, TensorObserver::kId, &tensors},
     "tenon.trace"},
    {"RowObserver",
     "rows",
     {"observer/1", "trace", Origin::kAnswered, RowObserver::kId, &accesses},
     "tenon.trace"},
    {"PhaseObserver",
     "one rank",
     {"observer/1", "trace", Origin::kAnswered, PhaseObserver::kId, &hearing},
     "tenon.trace"},
    {"Optimizer", "one rank", {"optimizer/1", "adamw"}, "tenon.adamw"},
    {"OptimizerBinding",
     "one rank",
     {"optimizer/1", "adamw", Origin::kAnswered, OptimizerBinding::kId, &binding},
     "tenon.adamw"},
    {"RowOptimizer",
     "rows",
     {"optimizer/1", "rowwise_adagrad", Origin::kOffered, RowOptimizer::kId},
     "tenon.rowwise_adagrad"},
    {"Schedule", "one rank", {"schedule/1", "cosine"}, "tenon.schedule_basic"},
    {"Tier", "tiers", {"tier/1", "dram"}, "tenon.tier_dram", {}, {{"query", kNowhere}}},
    {"Precision", "one rank", {"precision/1", "fp16"}, "tenon.precision_fp16"},
    {"LossScaler",
     "one rank",
     {"precision/1", "fp16", Origin::kAnswered, LossScaler::kId, &scaling},
     "tenon.precision_fp16"},
    {"PrecisionMetrics",
     "one rank",
     {"precision/1", "fp16", Origin::kAnswered, PrecisionMetrics::kId, &counting},
     "tenon.precision_fp16"},
    {"LinearSite", "one rank", {"precision/1", "fp16", Origin::kBound}, "tenon.precision_fp16"},
    {"Recovery",
     "one rank",
     {"recovery/1", "full"},
     "tenon.recovery_basic",
     {{"on_accesses", {"rows"}},
      {"at_boundary", {"boundaries", "bounds", "rehearsal.calls"}},
      {"on_failure", {"outages", "cpr", "tenon.recovery_cpr"}},
      {"on_restored", {"outages", "cpr", "tenon.recovery_cpr"}}},
     {{"rejoin", kDeath}, {"bring_back", kDeath}}},
    {"SaveSelector",
     "one rank",
     {"recovery/1", "full", Origin::kAnswered, SaveSelector::kId, &selecting},
     "tenon.recovery_basic"},
    {"SavePlaces",
     "one rank",
     {"recovery/1", "full", Origin::kAnswered, SavePlaces::kId, &placing},
     "tenon.recovery_basic"},
    {"RowCodec",
     "increments",
     {"recovery/1", "checknrun", Origin::kOffered, RowCodec::kId},
     "tenon.recovery_checknrun",
     {{"encodings", {"increments, continued"}}, {"decode", {"increments, continued"}}}},
    {"LanguageModel",
     "rollouts",
     {"model/1", "gpt_neo", Origin::kOffered, LanguageModel::kId},
     "tenon.gpt_neo"},
    {"OnPolicyDataset",
     "rollouts",
     {"dataset/1", "rollouts", Origin::kOffered, OnPolicyDataset::kId},
     "tenon.rollouts"},
    {"StepwiseLayer", "rollouts", {"layer/1", "attention", Origin::kOffered, StepwiseLayer::kId}, "tenon.nn"},
    {"RowLookupHandler", "lookups", {"layer/1", "embedding_bag", Origin::kLookups}, "tenon.recsys"},
    {"RowLookups", "hints", {"layer/1", "embedding_bag", Origin::kOffered, RowLookups::kId}, "tenon.recsys"},
    {"Sync", "two ranks", {"sync/1", "ddp"}, "tenon.sync_basic"},
    {"BucketSizes", "two ranks", {"sync/1", "ddp", Origin::kOffered, BucketSizes::kId}, "tenon.sync_basic"},
    {"MeanReducer", "compressed", {"sync/1", "ddp", Origin::kReducer, MeanUser::kId}, "tenon.sync_compress"},
    {"MeanUser",
     "compressed",
     {"sync/1", "ddp", Origin::kOffered, MeanUser::kId},
     "tenon.sync_basic",
     {},
     {{"take_means_by", kOther}}},
    {"SyncServer",
     "servers",
     {"sync/1", "shadow_easgd", Origin::kOffered, SyncServer::kId},
     "tenon.sync_shadow"},
    {"Communicator", "all operations", {"transport/1", "thread", Origin::kOpened}, "tenon.transport_thread"},
    {"Rendezvous",
     "two ranks",
     {"transport/1", "thread", Origin::kAnswered, Rendezvous::kId, &launched},
     "tenon.transport_thread"},
    {"NotRepeatable",
     "two ranks",
     {"transport/1", "thread", Origin::kAnswered, NotRepeatable::kId, &varying},
     "tenon.transport_thread"},
    {"Transport",
     "two ranks",
     {"transport/1", "thread"},
     "tenon.transport_thread",
     {{"cancel", {"a failure"}}}},
    {"DeviceTransport",
     "two ranks",
     {"transport/1", "thread", Origin::kAnswered, DeviceTransport::kId, &reaching},
     "tenon.transport_thread",
     {},
     {{"missing", kCheck}}},
};

/// Interfaces of which no run here calls any function.
const std::map<std::string, const char*> kUncalled = {
    {"ComponentFacts", kDoctor},
    {"ComponentIdentities", kStated},
    {"DeviceEvents", kOther},
    {"DeviceStreams", kOther},
    {"Power", kPower},
    {"PowerPolicy", kPower},
    {"Simulator", kSimulates},
    {"PowerSource", kBeside},
    {"PowerActuator", kBeside},
    {"Transform", kTransforms},
    {"SharedObject", kShared},
    {"RowMemory", kOfTables},
    {"RowsAhead", kOfTables},
    {"TierCounts", kOfTables},
    {"DeviceRows", kOfTables},
    {"KeptRows", kKept},
    {"PositionwiseLayer", kMarks},
    {"Tokenizer", kOther},
    {"TokenizerFile", kExports},
    {"TokenizerTraining", kExports},
    {"Reward", kWithinData},
};

// The cells.

struct Cell {
  const Row* row = nullptr;
  Function function;
  Way way = Way::kError;
  std::string name = {};
  std::string said = {};  ///< standard error
  int status = 0;         ///< of waitpid
  bool called = false;
  double seconds = 0;
};

const char* const kWays[] = {"error", "number", "crash", "hang"};

const Functions& contracts() {
  static const Functions all = read_functions(std::string(TENON_SOURCE_DIR) + "/core/include/tenon");
  return all;
}

const Other* other_of(const Cell& cell) {
  const auto found = cell.row->others.find(cell.function.name);
  return found == cell.row->others.end() ? nullptr : &found->second;
}

/// A component ends all that it offers.
bool offered(Origin origin) {
  return origin == Origin::kOffered || origin == Origin::kAnswered || origin == Origin::kLookups ||
         origin == Origin::kReducer;
}

std::vector<Cell> all_cells() {
  const char* const wanted = std::getenv("TENON_CALLS");
  std::vector<Cell> cells;
  for (const Row& row : kRows) {
    for (const Function& function : contracts().at(row.interface)) {
      if (row.uncalled.count(function.name) > 0) continue;
      if (function.name == "~" && offered(row.sabotage.origin)) continue;
      for (const Way way : {Way::kError, Way::kNumber, Way::kCrash, Way::kHang}) {
        Cell cell{&row, function, way};
        cell.name = row.interface + "::" + function.name + " " + kWays[static_cast<int>(way)];
        if (wanted == nullptr || cell.name.find(wanted) != std::string::npos) cells.push_back(cell);
      }
    }
  }
  return cells;
}

/// Data may take twelve deadlines to open, and to draw from the model.
bool opens_data(const Cell& cell) {
  return (cell.row->interface == "Dataset" && cell.function.name == "open") ||
         (cell.row->interface == "OnPolicyDataset" && cell.function.name == "prepare");
}

/// As `tenon train`.
int train(Runtime& runtime, const Config& config, const std::string& folder, bool resume) {
  TrainRequest request;
  request.run_dir = folder;
  request.resume = resume;
  request.quiet = true;
  const RunResult result = runtime.train(config, request);
  if (!result.error.empty()) std::cerr << "tenon train: " << result.error << "\n";
  return result.exit_status;
}

/// As the program: what nothing catches ends it.
[[noreturn]] void live(Runtime& runtime, const Cell& cell, const std::string& folder,
                       volatile bool* called) noexcept {
  plugin::install_fatal_signal_handler();
  plugin::install_exit_handler();
  plugin::end_process_when_plugins_hang();
  const Row& row = *cell.row;
  const Other* const other = other_of(cell);
  const Run& run = kRuns.at(other == nullptr ? row.run : other->run);
  std::vector<std::string> sets = run.sets;
  if (cell.way == Way::kHang) sets.emplace_back(opens_data(cell) ? "run.deadline=0.1" : "run.deadline=1");
  int status = 0;
  try {
    Sabotage sabotage = row.sabotage;
    if (other != nullptr && !other->type.empty()) sabotage.type = other->type;
    sabotage.rank = run.rank;
    sabotage.function = cell.function;
    sabotage.way = cell.way;
    arrange(runtime.registry(), contracts(), sabotage, called);
    if (run.resumed) {
      arm(false);
      if (train(runtime, Config::parse(kBase, "calls.toml", sets), folder, false) != 0) std::exit(98);
      arm(true);
    }
    status = train(runtime, Config::parse(kBase, "calls.toml", sets), folder, run.resumed);
  } catch (const Error& error) {
    std::cerr << "tenon: " << error.what() << "\n";
    status = error.exit_status();
  } catch (const std::exception& error) {
    std::cerr << "tenon: " << error.what() << "\n";
    status = 1;
  }
  std::exit(status);
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Runs all cells: few that compute and many that sleep at once.
class Processes {
 public:
  Processes(Runtime& runtime, std::string folder) : runtime_(runtime), folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    called_ = static_cast<volatile bool*>(
        ::mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }

  void run(std::vector<Cell>& cells) {
    std::vector<std::size_t> computing, sleeping;
    for (std::size_t i = 0; i < cells.size(); ++i)
      (cells[i].way == Way::kHang ? sleeping : computing).push_back(i);
    while (!computing.empty() || !sleeping.empty() || !alive_.empty()) {
      begin(cells, computing, false, 2);
      begin(cells, sleeping, true, 16);
      end(cells);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  using Time = std::chrono::steady_clock;
  struct Alive {
    std::size_t cell;
    bool sleeps;
    Time::time_point begun;
  };

  std::string path(std::size_t cell) const { return folder_ + "/" + std::to_string(cell); }

  void begin(std::vector<Cell>& cells, std::vector<std::size_t>& waiting, bool sleeps, int most) {
    const auto same = std::count_if(alive_.begin(), alive_.end(),
                                    [&](const auto& entry) { return entry.second.sleeps == sleeps; });
    if (waiting.empty() || same >= most) return;
    const std::size_t cell = waiting.back();
    waiting.pop_back();
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      if (std::freopen((path(cell) + ".err").c_str(), "w", stderr) == nullptr) ::_exit(97);
      std::cerr << std::unitbuf;
      live(runtime_, cells[cell], path(cell), called_ + cell);
    }
    alive_[child] = {cell, sleeps, Time::now()};
  }

  void end(std::vector<Cell>& cells) {
    for (auto entry = alive_.begin(); entry != alive_.end();) {
      const auto& [child, alive] = *entry;
      Cell& cell = cells[alive.cell];
      cell.seconds = std::chrono::duration<double>(Time::now() - alive.begun).count();
      if (cell.seconds > 25) ::kill(child, SIGKILL);
      if (::waitpid(child, &cell.status, WNOHANG) != child) {
        ++entry;
        continue;
      }
      cell.said = read(path(alive.cell) + ".err");
      cell.called = called_[alive.cell];
      std::error_code ignored;
      std::filesystem::remove_all(path(alive.cell), ignored);
      entry = alive_.erase(entry);
    }
  }

  Runtime& runtime_;
  std::string folder_;
  volatile bool* called_;
  std::map<pid_t, Alive> alive_;
};

// What is wrong with a cell; "" = nothing.

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string kind_of(const Row& row) {
  return row.sabotage.kind.substr(0, row.sabotage.kind.find('/'));
}

// Broken observers lose their calls, and training goes on. Statuses of other exceptions that do not end the
// run with that of a plugin error:
const std::map<std::string, int> kTolerated = {
    {"Observer::every_rank", 3},  // asked before there are observers
    {"Transport::cancel", 1},     // the run has failed before, for its own reason
    // A device that cannot be asked is one that cannot be used, and there is no other.
    {"DeviceAvailability::preference", 2},
    {"DeviceAvailability::usable", 2},
    {"DeviceAvailability::reason", 2},
};

/// Passes of nodes have a watch that names the node instead of the plugin.
bool is_pass(const Cell& cell) {
  return (cell.row->interface == "Layer" &&
          (cell.function.name == "forward" || cell.function.name == "backward")) ||
         (cell.row->interface == "StepwiseLayer" && cell.function.name == "step");
}

std::string problem(const Cell& cell) {
  const Row& row = *cell.row;
  const Other* const other = other_of(cell);
  const bool elsewhere = other != nullptr && !other->type.empty();
  const std::string plugin = elsewhere ? other->plugin : row.plugin;
  const std::string component = row.interface == "MeanReducer"
                                    ? "sync.powersgd"
                                    : kind_of(row) + "." + (elsewhere ? other->type : row.sabotage.type);
  const auto ends = [&](int status) { return WIFEXITED(cell.status) && WEXITSTATUS(cell.status) == status; };
  const auto dies = [&](int signal) { return WIFSIGNALED(cell.status) && WTERMSIG(cell.status) == signal; };
  if (!cell.called) return "it was not called";
  const std::string sentence = "plugin " + plugin + " (" + component;
  const bool throws = cell.way == Way::kError || cell.way == Way::kNumber;
  if (cell.way == Way::kCrash || (throws && cell.function.no_throw)) {
    const int signal = cell.way == Way::kCrash ? SIGSEGV : SIGABRT;
    if (!has(cell.said, " inside plugin " + plugin + ", component " + component))
      return "the report names no component";
    return dies(signal) ? "" : "another end than by the signal";
  }
  if (cell.way == Way::kHang && is_pass(cell)) {
    if (!has(cell.said, component) || !has(cell.said, "did not return within")) return "no pass is named";
    return ends(1) ? "" : "another status than 1";
  }
  if (!has(cell.said, sentence)) return "the sentence names no component";
  if (cell.way == Way::kHang) {
    const char* const longest = opens_data(cell) ? "did not return within 1.2 s (12 times [run] deadline)"
                                                 : "did not return within 2 s";
    if (!has(cell.said, "did not return within 1 s") && !has(cell.said, longest))
      return "no word of the time";
  } else if (!has(cell.said,
                  cell.way == Way::kError ? kWords : "threw an object that is not a std::exception")) {
    return "the function's own words are missing";
  }
  if (has(cell.said, "): plugin ")) return "two components are named";
  const auto tolerance = kTolerated.find(row.interface + "::" + cell.function.name);
  int status = throws && kind_of(row) == "observer" ? 0 : 3;
  if (throws && tolerance != kTolerated.end()) status = tolerance->second;
  return ends(status) ? "" : "another status than " + std::to_string(status);
}

TEST(Calls, EveryFunctionHasARowOrAReason) {
  std::set<std::string> listed = kOfTheHost;
  for (const auto& [interface, reason] : kUncalled) listed.insert(interface);
  for (const Row& row : kRows) {
    EXPECT_TRUE(listed.insert(row.interface).second) << row.interface << " is listed twice";
    std::set<std::string> names;
    for (const auto& [name, other] : row.others) names.insert(name);
    for (const auto& [name, reason] : row.uncalled) names.insert(name);
    for (const Function& function : contracts().at(row.interface)) names.erase(function.name);
    EXPECT_TRUE(names.empty()) << row.interface << " has no function " << *names.begin();
  }
  for (const auto& [interface, functions] : contracts()) {
    EXPECT_EQ(listed.count(interface), 1u)
        << interface << " is not listed: is it the host's, or the plugins'?";
  }
  for (const std::string& interface : listed)
    EXPECT_EQ(contracts().count(interface), 1u) << "no header has the interface " << interface;
}

TEST(Calls, FailuresNameTheComponent) {
  const rehearsal::Folder folder;
  Runtime runtime;
  runtime.add_plugin(rehearsal::support_plugin);
  runtime.add_plugin(rehearsal_calls);
  runtime.discover({});
  for (const Row& row : kRows) runtime.registry().find(row.sabotage.kind, row.sabotage.type);
  std::vector<Cell> cells = all_cells();
  const auto begun = std::chrono::steady_clock::now();
  Processes(runtime, folder.path).run(cells);
  std::map<std::string, int> failed;
  for (const Cell& cell : cells) {
    const std::string wrong = problem(cell);
    if (!wrong.empty()) ++failed[wrong];
    EXPECT_EQ(wrong, "") << cell.name << " (" << cell.seconds << " s, "
                         << (WIFEXITED(cell.status) ? "status " + std::to_string(WEXITSTATUS(cell.status))
                                                    : "signal " + std::to_string(WTERMSIG(cell.status)))
                         << "): " << cell.said.substr(0, 600);
  }
  std::cout << cells.size() << " cells, "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() << " s\n";
  for (const auto& [wrong, count] : failed) std::cout << "  " << count << " x " << wrong << "\n";
}

}  // namespace
}  // namespace tenon::calls
