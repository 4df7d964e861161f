// Neutrality: for every precision, synchronisation, recovery and observer, a run ends with the same weights
// whatever is evaluated, saved or observed, and whatever reads its power or fills its waits (P7). A run that
// is thrown back to one of its checkpoints and resumed ends with the same hashes, and its metrics are those
// of the undisturbed run, except for times. Each precision, strategy, policy and observer once or more, drawn
// from a fixed seed; all of them with each other with TENON_MATRIX=all (scripts/soak).
#include "cell.hpp"

#include <cstdlib>
#include <random>
#include <set>

namespace tenon::integration::neutral_test {
namespace {

struct Choice {
  const char* name;
  const char* toml;  ///< of an inline table, or lines of [precision] and [sync]
};

constexpr Choice kPrecisions[] = {
    {"fp32", "type = 'fp32'\n"},
    {"bf16", "type = 'bf16'\n"},
    {"fp16", "type = 'fp16'\ninit = 1e9\ninterval = 2\n"},
    {"fp8_current", "type = 'fp8'\nhead = true\n"},
    {"fp8_delayed", "type = 'fp8'\nrecipe = 'delayed'\nhistory = 3\nhead = true\n"},
    {"fp8_latest", "type = 'fp8'\nrecipe = 'delayed'\namax = 'latest'\nkeep_first = 0\nkeep_last = 0\n"},
    {"fp8_block", "type = 'fp8'\nrecipe = 'block'\nkeep_first = 0\nkeep_last = 0\n"},
    {"mxfp8", "type = 'mxfp8'\nkeep_first = 0\nkeep_last = 0\n"},
    {"mxfp4", "type = 'mxfp4'\nkeep_first = 0\nkeep_last = 0\n"},
    {"nvfp4", "type = 'nvfp4'\nkeep_first = 0\nkeep_last = 0\n"},
    {"nvfp4_worst", "type = 'nvfp4'\nkeep_worst = 0.5\nkeep_worst_slot = 2\nkeep_first = 0\nkeep_last = 0\n"},
    {"mor", "type = 'mor'\nkeep_first = 0\nkeep_last = 0\n"},
    {"mor_sub3", "type = 'mor'\nlevel = 'sub3'\nkeep_first = 0\nkeep_last = 0\n"},
};

struct Strategy {
  const char* name;
  const char* toml;     ///< of [sync]; empty: one replica
  bool shares = false;  ///< gradients in each slot
  int servers = 0;
};
constexpr Strategy kStrategies[] = {
    {"none", "", true},
    {"ddp", "type = 'ddp'\n", true},
    {"local_sgd", "type = 'local_sgd'\ninterval = 4\n"},
    {"post_local_sgd", "type = 'post_local_sgd'\ninterval = 4\nwarmup = 3\n"},
    {"diloco", "type = 'diloco'\ninterval = 4\n"},
    {"palsgd", "type = 'palsgd'\ninterval = 4\nwarmup = 2\np = 0.3\neta = 0.5\n"},
    {"bmuf", "type = 'bmuf'\ninterval = 4\n"},
    {"easgd", "type = 'easgd'\ninterval = 3\n"},
    {"streaming_diloco", "type = 'streaming_diloco'\ninterval = 4\nfragments = 2\ndelay = 1\nalpha = 0.5\n"},
    {"powersgd", "type = 'powersgd'\nstart_after = 3\nrank = 1\n[sync.inner]\ntype = 'ddp'\n", true},
    {"sign", "type = 'sign'\nstart_after = 3\n[sync.inner]\ntype = 'diloco'\ninterval = 4\n"},
    {"shadow_easgd", "type = 'shadow_easgd'\nmode = 'stepped'\ninterval = 3\n", false, 1},
    {"shadow_ma", "type = 'shadow_ma'\nmode = 'stepped'\ninterval = 3\n"},
    {"shadow_bmuf", "type = 'shadow_bmuf'\nmode = 'stepped'\ninterval = 3\n"},
};

constexpr const char* kFull = "type='full', every=3, async=false, keep=50";
constexpr Choice kPolicies[] = {
    {"none", "type='none'"},
    {"full", kFull},
    {"replica", "type='replica', every=3, async=false, keep=50"},
    {"checkfreq", "type='checkfreq', profile=1, max_overhead=0.9, keep=50"},
    {"checknrun", "type='checknrun', every=3, async=false, keep=50"},
    {"cpr", "type='cpr', partial='never', mtbf_seconds=0.01, save_seconds=1e-9, async=false, keep=50"},
    {"peer_memory", "type='peer_memory', every=3, copy_every=3, async=false, keep=50"},
    {"multilevel", "type='multilevel', every=3, local_every=2, async=false, keep=50, local_keep=50"},
    {"spike_guard",
     "type='spike_guard', norm_factor=1e6, loss_factor=1e6, inner={type='full', every=3, async=false, "
     "keep=50}"},
};

constexpr Choice kObservers[] = {
    {"csv", "type='csv'"},
    {"health", "type='health', every=1"},
    {"numerics", "type='numerics', every=1, blocks=true"},
    {"profile", "type='profile', skip=0, print=false"},
    {"progress", "type='progress'"},
    {"sqlite", "type='sqlite', every_s=0"},
    {"tables", "type='tables', every=1"},
    {"tensorboard", "type='tensorboard', histograms_every=1"},
    {"trace", "type='trace'"},
};

/// Sources, among them one that this machine has not, and the actuator at its busiest.
constexpr Choice kPowers[] = {
    {"activity", "source={type='cpu_activity'}, actuator={type='filler'}"},
    {"model",
     "source={type='phase_model'}, actuator={type='filler', fill=['communication', 'wait', 'idle', 'data', "
     "'save']}"},
    {"packages", "source={type='rapl'}, actuator={type='filler', fill_threads=2, ramp_seconds=0.01}"},
    {"absent", "source={type='nvml', library='/nowhere/libnvidia-ml.so.1'}"},
};

constexpr std::int64_t kSlots = 9, kLogEvery = 4;

struct Watched {
  Choice policy, observer, power;
};
struct Cell {
  Choice precision;
  Strategy strategy;
  Model model;
  std::vector<Watched> watched;

  std::string name() const {
    std::string text = std::string(precision.name) + "_" + strategy.name + "_" + model.name;
    if (watched.size() == 1)
      text += std::string("_") + watched[0].policy.name + "_" + watched[0].observer.name + "_" +
              watched[0].power.name;
    return text;
  }
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name();
}

bool fits(const Choice& precision, const Strategy& strategy, const Choice& policy) {
  const std::string_view name = policy.name;
  // Replicas that update alone have norms of their own, and a norm that overflows is one that diverges.
  if (name == "spike_guard") return strategy.shares && std::string_view(precision.name) != "fp16";
  return name != "peer_memory" || strategy.servers == 0;
}

template <typename T, std::size_t N>
std::vector<T> shuffled(const T (&values)[N], std::mt19937& random) {
  std::vector<T> drawn(std::begin(values), std::end(values));
  for (std::size_t i = N; i > 1; --i) std::swap(drawn[i - 1], drawn[random() % i]);
  return drawn;
}

std::set<std::string_view> names_of(const std::vector<Choice>& choices) {
  std::set<std::string_view> names;
  for (const Choice& choice : choices) names.insert(choice.name);
  return names;
}

const Model& model_of(std::size_t number) {
  return model_named(number % 3 == 2 ? "dlrm" : "gpt_neo");
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const Strategy& strategy : kStrategies) {
    for (const Choice& precision : kPrecisions) {
      Cell cell{precision, strategy, model_of(cells.size()), {}};
      for (const Choice& policy : kPolicies) {
        for (const Choice& observer : kObservers)
          if (fits(precision, strategy, policy))
            cell.watched.push_back({policy, observer, kPowers[cell.watched.size() % std::size(kPowers)]});
      }
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

std::vector<Cell> cells() {
  const char* wanted = std::getenv("TENON_MATRIX");
  if (wanted != nullptr && std::string_view(wanted) == "all") return all_cells();
  std::mt19937 random(20);
  const auto precisions = shuffled(kPrecisions, random), policies = shuffled(kPolicies, random),
             observers = shuffled(kObservers, random);
  const auto strategies = shuffled(kStrategies, random);
  std::vector<Cell> chosen;
  std::set<std::string_view> open = names_of(policies);  // those that no cell has yet, then once more
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    Cell cell{precisions[i % precisions.size()], strategies[i], model_of(i), {}};
    // The first that is open and fits, else the first that fits.
    const Choice* policy = nullptr;
    for (const Choice& each : policies) {
      if (!fits(cell.precision, cell.strategy, each)) continue;
      if (policy == nullptr || (!open.contains(policy->name) && open.contains(each.name))) policy = &each;
    }
    open.erase(policy->name);
    if (open.empty()) open = names_of(policies);
    cell.watched.push_back({*policy, observers[i % observers.size()], kPowers[i % std::size(kPowers)]});
    chosen.push_back(std::move(cell));
  }
  return chosen;
}

/// metrics.jsonl without values that depend on the clock, or, like written bytes, on the history of this
/// process. Background actors send while lines are written.
std::vector<std::string> lines_of(const std::string& folder, bool actors) {
  static const std::regex clocked(
      R"re("name": "(compute_s|exposed_comm_s|late_s|samples_per_s|tokens_per_s|checkpoint_.*|memory_copy_s|save_interval_s|touched_share|power/.*)")re");
  static const std::regex wall(R"re("wall_s": [^,]*, )re"), sent(R"re(, "bytes_sent": [0-9]*)re");
  std::vector<std::string> found;
  std::ifstream lines(folder + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, clocked)) continue;
    line = std::regex_replace(line, wall, "");
    found.push_back(actors ? std::regex_replace(line, sent, "") : line);
  }
  return found;
}

class Neutral : public ::testing::TestWithParam<Cell> {
 protected:
  Neutral() {
    const Cell& cell = GetParam();
    plain_.precision = cell.precision.toml;
    plain_.replicas = *cell.strategy.toml != 0;
    plain_.slots = kSlots;
    plain_.sync = cell.strategy.toml;
    plain_.servers = cell.strategy.servers;
    plain_.sets = {"run.eval_every=0", "run.log_every=" + std::to_string(kSlots)};
    if (cell.model.width == 0) {
      plain_.sets.emplace_back("model.dropout=0.1");
    } else if (plain_.replicas) {
      plain_.sets.emplace_back("model.placement=rows");
      if (std::string_view(cell.strategy.name) == "palsgd")
        plain_.sets.emplace_back("sync.decision_scope=shared");
    }
  }

  Choices busy(const Watched& watched) const {
    Choices choices = plain_;
    choices.sets.emplace_back("run.eval_every=1");
    choices.sets.emplace_back("run.log_every=" + std::to_string(kLogEvery));
    choices.sets.push_back("recovery={" + std::string(watched.policy.toml) + "}");
    if (std::string_view(watched.policy.name) == "multilevel")
      choices.sets.push_back("recovery.local_folder='" + local_ + "'");
    choices.sets.push_back("observe=[{" + std::string(watched.observer.toml) + "}]");
    choices.sets.push_back("power={" + std::string(watched.power.toml) + "}");
    return choices;
  }

  RunResult train(const std::string& folder, const Choices& choices, bool resume = false) {
    RunResult result = runs_.train(folder, GetParam().model, choices, resume);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.steps, kSlots);
    return result;
  }

  CellRuns runs_;
  Choices plain_;
  std::string local_;  ///< folder of policies that keep checkpoints beside the run's
};

TEST_P(Neutral, P7WhateverIsEvaluatedSavedWatchedOrPoweredTheRunIsTheSame) {
  const bool actors = std::string_view(GetParam().strategy.name).starts_with("shadow");
  const RunResult plain = train("plain", plain_);
  local_ = fs::path(plain.folder).parent_path().string() + "_local";
  int number = 0;
  for (const Watched& watched : GetParam().watched) {
    SCOPED_TRACE(std::string(watched.policy.name) + ", " + watched.observer.name + ", " + watched.power.name);
    const std::string folder = "busy" + std::to_string(number++);
    const Choices choices = busy(watched);
    const RunResult whole = train(folder, choices);
    EXPECT_EQ(whole.weights_hash, plain.weights_hash);
    const std::vector<std::string> lines = lines_of(whole.folder, actors);
    EXPECT_GT(lines.size(), static_cast<std::size_t>(kSlots));
    if (throw_back(whole.folder, kSlots, kLogEvery)) {
      const RunResult resumed = train(folder, choices, true);
      EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
      EXPECT_EQ(resumed.state_hash, whole.state_hash);
      EXPECT_EQ(lines_of(whole.folder, actors), lines);
    } else {
      // By the clock there may be none.
      EXPECT_THAT(watched.policy.name, ::testing::AnyOf("none", "checkfreq", "cpr"));
    }
    fs::remove_all(fs::path(whole.folder).parent_path());
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Neutral, ::testing::ValuesIn(cells()),
                         [](const ::testing::TestParamInfo<Cell>& info) { return info.param.name(); });

}  // namespace
}  // namespace tenon::integration::neutral_test
