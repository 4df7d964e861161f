// Shared by the matrices: synchronisation strategies, models that learn something in a few slots, the text of
// a short run, its losses.
#pragma once

#include "run_program.hpp"
#include "test_paths.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::integration {

/// A synchronisation strategy of this tree, with intervals of which 12 slots are a multiple and 14 are not.
struct Strategy {
  const char* name;
  const char* toml;  ///< of [sync]
  int servers = 0;
};

inline constexpr Strategy kStrategies[] = {
    {"ddp_bf16", "type = 'ddp'\ncommunication = 'bf16'\nbucket_mb = 0.001\n"},
    {"local_sgd", "type = 'local_sgd'\ninterval = 4\n"},
    {"post_local_sgd", "type = 'post_local_sgd'\ninterval = 4\nwarmup = 6\n"},
    {"diloco", "type = 'diloco'\ninterval = 4\n"},
    {"palsgd", "type = 'palsgd'\ninterval = 4\nwarmup = 4\np = 0.2\neta = 0.5\n"},
    {"bmuf", "type = 'bmuf'\ninterval = 4\n"},
    {"easgd", "type = 'easgd'\ninterval = 3\n"},
    {"streaming_diloco", "type = 'streaming_diloco'\ninterval = 6\nfragments = 2\ndelay = 1\nalpha = 0.5\n"},
    {"powersgd", "type = 'powersgd'\nstart_after = 4\nrank = 1\n[sync.inner]\ntype = 'ddp'\n"},
    {"sign", "type = 'sign'\nstart_after = 4\n[sync.inner]\ntype = 'diloco'\ninterval = 4\n"},
    {"shadow_easgd", "type = 'shadow_easgd'\nmode = 'stepped'\ninterval = 3\n", 1},
    {"shadow_ma", "type = 'shadow_ma'\nmode = 'stepped'\ninterval = 3\n"},
    {"shadow_bmuf", "type = 'shadow_bmuf'\nmode = 'stepped'\ninterval = 3\n"},
};

struct Model {
  const char* name;
  const char* toml;            ///< [model], [data], [optimizer]
  std::uint64_t padding;       ///< numbers between tensors, each of which begins at a multiple of 64 bytes
  std::uint64_t width;         ///< of the rows of tables
  std::uint64_t linear_sites;  ///< besides the head
};

inline constexpr Model kModels[] = {
    {"gpt_neo", R"(
[data]
type = "text"
path = "data/text/tinyshakespeare.txt"
context = 16
batch = 4
[model]
type = "gpt_neo"
layers = 1
width = 16
heads = 2
[optimizer]
type = "adamw"
lr = 1e-2
)",
     0, 0, 6},
    {"decoder", R"(
[data]
type = "text"
path = "data/text/tinyshakespeare.txt"
context = 16
batch = 4
[model]
type = "decoder"
pattern = "*-"
width = 16
heads = 2
kv_heads = 1
hidden = 32
[optimizer]
type = "adamw"
lr = 1e-2
)",
     0, 0, 7},
    {"hybrid", R"(
[data]
type = "text"
path = "data/text/tinyshakespeare.txt"
context = 16
batch = 4
[model]
type = "decoder"
pattern = "M*-"
width = 16
position = "none"
heads = 2
hidden = 32
ffn = "squared_relu"
mamba_heads = 16
mamba_head_width = 4
mamba_state = 8
mamba_groups = 2
mamba_chunk = 8
[optimizer]
type = "adamw"
lr = 1e-2
)",
     0, 0, 8},
    {"mlp", R"(
[data]
type = "mnist"
batch = 16
scale = "standard"
[model]
type = "mlp"
hidden = [32]
[optimizer]
type = "sgd"
lr = 0.1
)",
     6, 0, 2},
    {"lenet5", R"(
[data]
type = "mnist"
batch = 8
scale = "standard"
[model]
type = "lenet5"
[optimizer]
type = "adamw"
lr = 2e-3
)",
     44, 0, 4},
    {"resnet", R"(
[data]
type = "mnist"
batch = 4
scale = "standard"
[model]
type = "resnet"
width = 4
[optimizer]
type = "sgd"
lr = 0.02
)",
     206, 0, 21},
    {"dlrm", R"(
[data]
type = "adult"
buckets = 8
batch = 64
[model]
type = "dlrm"
bottom = [16, 8]
top = [16, 1]
[optimizer]
type = "rowwise_adagrad"
lr = 0.05
)",
     23, 8, 4},
    {"logistic_regression", R"(
[data]
type = "adult"
buckets = 8
batch = 64
[model]
type = "logistic_regression"
[optimizer]
type = "adagrad"
lr = 0.1
)",
     15, 1, 1},
};

inline const Model& model_named(std::string_view name) {
  return *std::find_if(std::begin(kModels), std::end(kModels),
                       [&](const Model& model) { return model.name == name; });
}

/// Additions of a cell to its model.
struct Choices {
  std::string precision;  ///< lines of [precision]
  bool replicas = false;  ///< two
  std::int64_t save_every = 0;
  std::int64_t slots = 0;
  std::string sync = "type = \"ddp\"\n";  ///< lines of [sync] when there are two
  int servers = 0;
  std::vector<std::string> sets = {};  ///< over all of it, "table.key=value"
};

inline Config cell_config(const Model& model, const Choices& choices) {
  std::string toml =
      std::string(model.toml) +
      "[run]\nname = \"cell\"\nlog_every = 1\neval_batches = 1\nsteps = " + std::to_string(choices.slots) +
      "\n[device]\ntype = \"cpu\"\nthreads = 1\n[precision]\n" + choices.precision;
  toml += choices.replicas ? "[parallel]\nranks = 2\nservers = " + std::to_string(choices.servers) +
                                 "\n[transport]\ntype = \"thread\"\n[sync]\n" + choices.sync
                           : "[sync]\ntype = \"none\"\n";
  toml +=
      choices.save_every > 0
          ? "[recovery]\ntype = \"full\"\nasync = false\nevery = " + std::to_string(choices.save_every) + "\n"
          : "[recovery]\ntype = \"none\"\n";
  return Config::parse(toml, "cell.toml", choices.sets);
}

/// train/loss after slot 1, 2, ...
inline std::vector<double> losses(const RunResult& result) {
  static const std::regex pattern(R"re("split": ?"train", ?"name": ?"loss", ?"value": ?([-+0-9.eE]+))re");
  std::vector<double> found;
  std::ifstream lines(result.folder + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    std::smatch value;
    if (std::regex_search(line, value, pattern)) found.push_back(std::stod(value[1]));
  }
  return found;
}

/// Simulates a kill of a run of `slots`: back to a checkpoint, between two lines of train/loss where there is
/// one. Returns false if there is none.
inline bool throw_back(const std::string& folder, std::int64_t slots, std::int64_t log_every) {
  const auto files = make_posix_files();
  const std::string checkpoints = folder + "/checkpoints";
  if (!fs::exists(checkpoints)) return false;
  const CheckpointStore store(*files, checkpoints, {});
  std::int64_t left = -1;
  for (const std::int64_t step : store.generations()) {
    if (step > 0 && step < slots - 1 && (left < 0 || step % log_every != 0)) left = step;
  }
  if (left < 0) return false;
  for (const std::int64_t step : store.generations())
    if (step > left) fs::remove_all(checkpoints + "/step-" + std::to_string(step));
  fs::remove(folder + "/summary.json");
  return true;
}

/// Runs in a scratch folder, with every plugin of this tree.
class CellRuns {
 public:
  CellRuns() { runtime_.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"}); }

  RunResult train(const std::string& folder, const Model& model, const Choices& choices,
                  bool resume = false) {
    TrainRequest request;
    request.run_dir = (scratch_ / folder).string();
    request.quiet = true;
    request.resume = resume;
    return runtime_.train(cell_config(model, choices), request);
  }
  Runtime& runtime() { return runtime_; }

 private:
  Scratch scratch_;
  Runtime runtime_;
};

}  // namespace tenon::integration
